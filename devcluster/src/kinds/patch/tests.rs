use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::kinds::{Fields, Form, List, Merge, Schema};

/// Results of the API server's patch libraries. `tests/controlplane/patches` generates the fixture.
const FIXTURE: &str = include_str!("tests/patches.jsonl");

fn schema(form: Form) -> Arc<Schema> {
    Arc::new(Schema { form, nullable: false, default: None, checks: None })
}

fn list(items: Arc<Schema>, merge: Option<Merge>) -> Arc<Schema> {
    schema(Form::List { items, list: List::Atomic, merge })
}

fn fields(fields: Vec<(&str, Arc<Schema>)>) -> Arc<Schema> {
    let fields = fields.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect();
    schema(Form::Object(Arc::new(Fields { fields, ..Fields::default() })))
}

/// Returns the type of the fixture. The type contains itself, here down to a depth of `depth`.
fn item(depth: u8) -> Arc<Schema> {
    let string = || schema(Form::String);
    let key = |name: &str| Some(Merge::Key(name.to_owned()));
    let port = fields(vec![("port", schema(Form::Integer)), ("text", string())]);
    let mut all = vec![
        ("name", string()),
        ("value", schema(Form::Integer)),
        ("text", string()),
        ("labels", schema(Form::Map { values: string(), atomic: false })),
        ("tags", list(string(), Some(Merge::Scalars))),
        ("plain", list(string(), None)),
        ("ports", list(port, key("port"))),
    ];
    if depth > 0 {
        let below = item(depth - 1);
        let union = fields(vec![("name", string()), ("a", Arc::clone(&below)), ("b", string())]);
        all.extend([
            ("items", list(Arc::clone(&below), key("name"))),
            ("list", list(Arc::clone(&below), None)),
            ("nested", below),
            ("unions", list(Arc::clone(&union), key("name"))),
            ("union", union),
        ]);
    }
    fields(all)
}

#[test]
fn patches_have_the_results_of_the_real_server() {
    let schema = item(5);
    let file = std::env::var("PATCHES").ok().map(|path| std::fs::read_to_string(path).unwrap());
    let mut failures = Vec::new();
    let mut count = 0;
    for line in file.as_deref().unwrap_or(FIXTURE).lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let mut object = case["object"].clone();
        let patch = case["patch"].clone();
        let result = match case["type"].as_str() {
            Some("strategic") => strategic_merge_patch(&schema, &mut object, patch),
            Some("merge") => merge_patch(&mut object, patch),
            _ => json_patch(&mut object, &patch),
        };
        let same = match (&result, case["error"].as_str()) {
            (Ok(()), None) => object == *case.get("result").unwrap_or(&json!({})),
            (Err(PatchError::Unprocessable(_)), Some("unprocessable")) => true,
            // With several errors, the libraries return a random one, and the fields in its message have a
            // random order.
            (Err(_), Some(error)) => error != "unprocessable",
            _ => false,
        };
        count += 1;
        if !same {
            failures.push(format!("{line}\n{result:?}\n{object}"));
        }
    }
    let shown = failures.iter().take(3).cloned().collect::<Vec<_>>().join("\n\n");
    assert!(failures.is_empty(), "{} of {count} cases differ:\n{shown}", failures.len());
}

#[test]
fn malformed_patches_are_bad_requests() {
    let bad = |result: Result<(), PatchError>, text: &str| {
        assert_eq!(result, Err(PatchError::BadRequest(text.to_owned())));
    };
    let mut object = json!({});
    bad(
        json_patch(&mut object, &json!({})),
        "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
    );
    bad(
        merge_patch(&mut object, json!([])),
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
    );
    bad(
        strategic_merge_patch(&item(0), &mut object, json!("x")),
        "json: cannot unmarshal string into Go value of type map[string]interface {}",
    );
    bad(
        strategic_merge_patch(&item(0), &mut object, json!({"$retainKeys": "x"})),
        "invalid patch format of retainKeys",
    );
}

#[test]
fn a_json_patch_has_at_most_ten_thousand_operations() {
    let patch = |len| Value::Array(vec![json!({"op": "test", "path": "/a", "value": null}); len]);
    assert_eq!(json_patch(&mut json!({}), &patch(10_000)), Ok(()));
    let text = "The allowed maximum operations in a JSON patch is 10000, got 10001".to_owned();
    assert_eq!(json_patch(&mut json!({}), &patch(10_001)), Err(PatchError::TooLarge(text)));
}

#[test]
fn a_strategic_patch_error_quotes_the_item_without_merge_key() {
    let mut object = json!({"items": [{"name": "a"}]});
    let result = strategic_merge_patch(&item(1), &mut object, json!({"items": [{"value": 1}]}));
    let text = "map: map[value:1] does not contain declared merge key: name".to_owned();
    assert_eq!(result, Err(PatchError::Internal(text)));
}
