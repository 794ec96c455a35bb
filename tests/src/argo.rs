//! The health script for Argo CD, in the Lua that Argo CD runs.

use mlua::{Lua, Table};

/// As shipped.
const SCRIPT: &str = include_str!("../../deploy/argocd/health.lua");

/// An object of generation 2 whose gate has spoken of this generation.
fn object(observed: i64, ready: &str, reason: &str, stalled: &str) -> String {
    let condition = |type_: &str, status: &str| {
        format!(
            "{{type = '{type_}', status = '{status}', reason = '{reason}', message = 'because', observedGeneration = {observed}}}"
        )
    };
    let conditions = format!("{}, {}", condition("Ready", ready), condition("Stalled", stalled));
    format!(
        "obj = {{metadata = {{generation = 2}}, status = {{observedGeneration = {observed}, conditions = {{{conditions}}}}}}}"
    )
}

fn health(object: &str) -> (String, String) {
    let lua = Lua::new();
    lua.load(object).exec().unwrap();
    let health: Table = lua.load(SCRIPT).eval().unwrap();
    (health.get("status").unwrap(), health.get("message").unwrap())
}

#[test]
fn each_state_has_its_health() {
    let because = |status: &str| (status.to_owned(), "because".to_owned());
    let cases = [
        (object(2, "True", "Available", "False"), "Healthy"),
        (object(2, "False", "WaitingForDependencies", "False"), "Progressing"),
        (object(2, "Unknown", "WaitingForDependencies", "False"), "Progressing"),
        (object(2, "False", "RolloutInProgress", "False"), "Progressing"),
        (object(2, "False", "Paused", "False"), "Suspended"),
        (object(2, "False", "DeadlineExceeded", "True"), "Degraded"),
        (object(2, "False", "PolicyDenied", "True"), "Degraded"),
    ];
    for (object, expected) in cases {
        assert_eq!(health(&object), because(expected), "{object}");
    }
}

#[test]
fn what_was_said_of_an_earlier_spec_does_not_count() {
    for object in [
        object(1, "True", "Available", "False"),
        object(1, "False", "DeadlineExceeded", "True"),
        "obj = {metadata = {generation = 1}}".to_owned(),
        "obj = {metadata = {generation = 1}, status = {observedGeneration = 1}}".to_owned(),
    ] {
        assert_eq!(health(&object).0, "Progressing", "{object}");
    }
}
