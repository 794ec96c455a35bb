//! Compares errors with those of the real server's packages. `tests/controlplane/custom` generates the
//! answers.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::Value;

use super::{check_create, check_update, prepare_create, set_defaults};

const ANSWERS: &str = include_str!("../answers.json");

fn prepared(definition: &Value) -> Value {
    let mut definition = definition.clone();
    set_defaults(&mut definition);
    if definition.get("status").is_none() {
        prepare_create(&mut definition);
    }
    definition
}

fn differences(case: &Value) -> Vec<String> {
    let definition = prepared(&case["definition"]);
    let errors = match case.get("oldDefinition") {
        None => check_create(&definition),
        Some(old) => check_update(&definition, &prepared(old)),
    };
    let found: BTreeSet<_> = errors.iter().map(|error| (error.reason.cause(), error.to_string())).collect();
    let answers = case["errors"].as_array().into_iter().flatten();
    let expected: BTreeSet<_> = answers
        .map(|answer| {
            let text = |field: &str| answer[field].as_str().unwrap();
            (text("reason"), format!("{}: {}", text("field"), text("message")))
        })
        .collect();
    let missing = expected.difference(&found).map(|error| format!("missing {error:?}"));
    missing.chain(found.difference(&expected).map(|error| format!("surplus {error:?}"))).collect()
}

/// Cases with a different message: the server quotes a schema as its Go struct, adds a random type name, or
/// reports another column.
const DIFFERENT_TEXTS: [&str; 3] = [
    "definition: status root keywords",
    "definition: rule self.o == 'a'",
    "definition: rule self.a.matches('[')",
];

#[test]
fn definitions_get_the_errors_of_the_real_server() {
    let cases: Vec<Value> = serde_json::from_str(ANSWERS).unwrap();
    let mut report = String::new();
    for case in cases.iter().filter(|case| case.get("definition").is_some()) {
        if DIFFERENT_TEXTS.iter().any(|name| case["name"] == *name) {
            assert_eq!(differences(case).len(), 2, "{}", case["name"]);
            continue;
        }
        for line in differences(case) {
            writeln!(report, "{}: {line}", case["name"]).unwrap();
        }
    }
    assert!(report.is_empty(), "\n{report}");
}
