//! Replays writes that the field manager of Kubernetes recorded. `tests/controlplane/ownership` generates the
//! fixture.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::{ApplyError, FieldSet, Resource, Scale, Writer, apply, update};
use super::openapi;
use crate::kinds::{Schema, builtin};

const FIXTURE: &str = include_str!("ownership.jsonl");

/// Applies a change in the notation of the fixture: 0 removes, `[v]` replaces by v, an object changes
/// entries.
fn changed(from: &Value, change: &Value) -> Value {
    match (change, from) {
        (Value::Array(new), _) => new[0].clone(),
        (Value::Object(changes), Value::Object(from)) => {
            let mut to = from.clone();
            for (name, change) in changes {
                if *change == json!(0) {
                    to.remove(name);
                } else {
                    let value = changed(from.get(name).unwrap_or(&Value::Null), change);
                    to.insert(name.clone(), value);
                }
            }
            Value::Object(to)
        }
        (Value::Object(changes), Value::Array(from)) => {
            let mut to = from.clone();
            let length = changes
                .get("#")
                .map_or(from.len(), |length| usize::try_from(length.as_u64().unwrap()).unwrap());
            to.resize(length, Value::Null);
            for (index, item) in to.iter_mut().enumerate() {
                if let Some(change) = changes.get(&index.to_string()) {
                    *item = changed(item, change);
                }
            }
            Value::Array(to)
        }
        (Value::Object(changes), _) => {
            changes.iter().map(|(name, change)| (name.clone(), changed(&Value::Null, change))).collect()
        }
        _ => from.clone(),
    }
}

/// Removes nulls, empty maps and zeros, because the JSON of a Go type may contain or omit them.
fn sparse(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| (name.clone(), sparse(value)));
            let kept = fields.filter(|(_, value)| ![json!(null), json!({}), json!(0)].contains(value));
            Value::Object(kept.collect())
        }
        Value::Array(items) => items.iter().map(sparse).collect(),
        other => other.clone(),
    }
}

/// Returns whether each field of `part` has the same value in `whole`.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(name, part)| whole.get(name).is_some_and(|whole| contains(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| contains(whole, part))
        }
        _ => whole == part,
    }
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}

/// Replays a sequence. The error describes the first difference.
fn replay(sequence: &Value, schemas: &[(&str, &Schema)], empty: &Value) -> Result<(), String> {
    let mut live = None::<Value>;
    let custom = text(sequence, "kind") == "Widget";
    for (second, step) in sequence["steps"].as_array().unwrap().iter().enumerate() {
        let before = live.clone().unwrap_or(Value::Null);
        let api_version = text(step, "version");
        let subresource = step["subresource"].as_str();
        let reset = if subresource.is_some() { "spec" } else { "status" };
        let others: Vec<_> = schemas.iter().copied().filter(|(version, _)| *version != api_version).collect();
        let resource = Resource {
            kind: text(sequence, "kind"),
            api_version,
            schema: schemas.iter().find(|(version, _)| *version == api_version).unwrap().1,
            converter: None,
            other_versions: &others,
            convert: None,
            empty,
            reset: &FieldSet::of(&[&[reset]]),
        };
        let now = Timestamp::from_second(1_767_225_600 + i64::try_from(second).unwrap()).unwrap();
        let writer = Writer { manager: text(step, "manager"), subresource, now };
        let mut old = live.clone();
        if let Some(old) = &mut old {
            old["apiVersion"] = api_version.into();
        }
        let result = if text(step, "op") == "apply" {
            apply(&resource, old.as_ref(), &step["input"], &writer, step["force"] == true)
        } else {
            Ok(update(&resource, old.as_ref(), changed(&before, &step["change"]), &writer))
        };
        let expected = match step.get("object") {
            Some(change) => changed(&before, change),
            None => before.clone(),
        };
        let report = |what: &str, found: &dyn std::fmt::Debug, expected: &dyn std::fmt::Debug| {
            let name = text(sequence, "name");
            Err(format!("{name}, step {second}: {what}\nlive {before}\nstep {step}\n{found:?}\n{expected:?}"))
        };
        match result {
            Ok(mut object) => {
                if let Some(error) = step["error"].as_str() {
                    return report("an error is missing", &object, &error);
                }
                if live.is_none() {
                    object["metadata"]["uid"] = "u".into();
                }
                let entries = |object: &Value| object["metadata"]["managedFields"].clone();
                if entries(&object) != entries(&expected) {
                    return report("managedFields", &entries(&object), &entries(&expected));
                }
                let same = if custom || text(step, "op") == "update" {
                    object == expected
                } else {
                    contains(&sparse(&expected), &sparse(&object))
                };
                if !same {
                    return report("object", &object, &expected);
                }
                live = Some(expected);
            }
            Err(error) => {
                if error.to_string() != text(step, "error") {
                    return report("error", &error.to_string(), &step["error"]);
                }
                if let ApplyError::Conflict { causes, .. } = error {
                    let mut causes: Vec<_> =
                        causes.iter().map(|cause| format!("{} {}", cause.message, cause.field)).collect();
                    causes.sort();
                    if json!(causes) != step["causes"] {
                        return report("causes", &causes, &step["causes"]);
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn writes_produce_the_objects_and_owners_of_the_real_server() {
    let file = std::env::var("OWNERSHIP").ok().map(|path| std::fs::read_to_string(path).unwrap());
    let mut lines =
        file.as_deref().unwrap_or(FIXTURE).lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let documents = lines.next().unwrap();
    let zero = lines.next().unwrap();
    let widgets: BTreeMap<String, Schema> = documents
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, one)| (name.clone(), openapi::schema(one)))
        .collect();
    let widgets: Vec<_> = widgets.iter().map(|(version, schema)| (version.as_str(), schema)).collect();
    let mut failures = Vec::new();
    let mut count = 0;
    for sequence in lines.filter(|sequence| sequence["kind"] != "Scale") {
        let kind = text(&sequence, "kind");
        let result = if kind == "Widget" {
            replay(&sequence, &widgets, &json!({}))
        } else {
            let version = text(&zero[kind], "apiVersion");
            let (group, name) = version.split_once('/').unwrap_or(("", version));
            let found = builtin::find(group, name, kind).unwrap();
            replay(&sequence, &[(version, found.schema.get())], &zero[kind])
        };
        failures.extend(result.err());
        count += 1;
    }
    let shown = failures.iter().take(5).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(failures.is_empty(), "{} of {count} sequences differ:\n{shown}", failures.len());
}

#[test]
fn scale_shares_the_ownership_of_replicas() {
    let path = vec!["spec".to_owned(), "replicas".to_owned()];
    let replicas = [("apps/v1".to_owned(), Some(path)), ("apps/v2".to_owned(), None)];
    let scale = Scale { api_version: "apps/v1", replicas: &replicas };
    let lines = FIXTURE.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    for case in lines.filter(|case| case["kind"] == "Scale") {
        let entries = |value: Option<Value>| value.unwrap_or_default();
        assert_eq!(entries(scale.from_object(&case["parent"])), case["scale"], "{case}");
        assert_eq!(entries(scale.to_object(&case["parent"], &case["written"])), case["result"], "{case}");
    }
}
