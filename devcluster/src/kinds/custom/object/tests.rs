//! Compares errors with those of the real server's packages. `tests/controlplane/custom` generates the
//! answers.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::kinds::FieldError;
use crate::kinds::custom::{CustomKind, kinds};

const ANSWERS: &str = include_str!("../answers.json");

fn kind(case: &Value) -> CustomKind {
    let definition = json!({"spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
        "versions": [{
            "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": case["schema"]},
            "subresources": case["subresources"],
        }],
    }});
    kinds(&definition).remove(0)
}

type Answer = (String, String, String);

fn answer(error: &FieldError) -> Answer {
    (error.path.clone(), error.reason.cause().to_owned(), error.message.clone())
}

fn answers(case: &Value) -> BTreeSet<Answer> {
    let text = |error: &Value, field: &str| error[field].as_str().unwrap().to_owned();
    let errors = case["errors"].as_array().into_iter().flatten();
    errors.map(|error| (text(error, "field"), text(error, "reason"), text(error, "message"))).collect()
}

/// Replaces whole floats by integers, which the answers have.
fn whole(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(whole).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), whole(value))).collect(),
        Value::Number(number) => number.to_string().strip_suffix(".0").map_or_else(
            || value.clone(),
            |text| text.parse::<i64>().map_or_else(|_| value.clone(), Value::from),
        ),
        _ => value.clone(),
    }
}

/// Returns the differences from the answers, one per line.
fn differences(case: &Value) -> Vec<String> {
    let kind = kind(case);
    let mut object = case["object"].clone();
    let mut lines = Vec::new();
    let errors = match kind.admit(&mut object) {
        Err(error) => vec![error],
        Ok(unknown) => {
            let mut expected: Vec<_> = case["unknown"].as_array().into_iter().flatten().cloned().collect();
            expected.sort_by_key(ToString::to_string);
            let unknown: Vec<Value> = unknown.into_iter().map(Value::from).collect();
            if unknown != expected {
                lines.push(format!("unknown fields {unknown:?}, not {expected:?}"));
            }
            if whole(&object) != whole(&case["result"]) {
                lines.push(format!("result {object}, not {}", case["result"]));
            }
            match case.get("old") {
                None => kind.check_create(&object),
                Some(old) => {
                    let mut old = old.clone();
                    kind.admit(&mut old).unwrap();
                    if case["status"] == true {
                        kind.check_status_update(&object, &old)
                    } else {
                        kind.check_update(&object, &old)
                    }
                }
            }
        }
    };
    let (found, expected) = (errors.iter().map(answer).collect::<BTreeSet<_>>(), answers(case));
    lines.extend(expected.difference(&found).map(|error| format!("missing {error:?}")));
    lines.extend(found.difference(&expected).map(|error| format!("surplus {error:?}")));
    lines
}

#[test]
fn objects_get_the_errors_of_the_real_server() {
    let cases: Vec<Value> = serde_json::from_str(ANSWERS).unwrap();
    let mut report = String::new();
    for case in cases.iter().filter(|case| case.get("schema").is_some()) {
        for line in differences(case) {
            writeln!(report, "{}: {line}", case["name"]).unwrap();
        }
    }
    assert!(report.is_empty(), "\n{report}");
}

#[test]
fn stored_objects_convert_to_another_version() {
    let target =
        kind(&json!({"schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "kept": {"type": "string"}, "new": {"type": "string", "default": "a"},
        }}}}}));
    let mut object = json!({
        "apiVersion": "example.com/v1alpha1", "kind": "Widget", "metadata": {"name": "a"},
        "spec": {"kept": "x", "gone": 1},
    });
    target.convert(&mut object);
    assert_eq!(
        object,
        json!({
            "apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
            "spec": {"kept": "x", "new": "a"},
        })
    );
}

#[test]
fn rules_that_overload_the_parser_are_refused() {
    use crate::kinds::custom::rules::parse;
    for text in ["(".repeat(200), "[{(!".repeat(10), format!("{}1{}", "(".repeat(97), ")".repeat(97))] {
        assert!(parse(&text).is_err(), "{text}");
    }
    assert!(parse("((self.a == 1) && !(self.b in [1, 2]))").is_ok());
}
