//! Scenarios with the controllers of both clusters: they must lead to the same objects, though with other
//! writes in between.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::{Value, json};

/// The scenarios.
pub(crate) const SCENARIOS: &str = include_str!("scenarios/controllers.txt");

static TIME: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$").expect("a pattern"));
/// The end of the name of the Job of a `CronJob`: minutes since 1970.
static MINUTES: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"-\d{8,}$").expect("a pattern"));

/// Removes the parts of a normalised transcript that depend on the time, the Node and the number of writes.
pub(crate) fn outcome(value: &mut Value) {
    match value {
        Value::Array(items) => {
            items.iter_mut().for_each(outcome);
            items.sort_by_key(Value::to_string);
        }
        Value::Object(object) => {
            if object.get("kind").is_some_and(|kind| kind == "PodList")
                && let Some(Value::Array(pods)) = object.get_mut("items")
            {
                for pod in pods {
                    *pod = essence(pod);
                }
            }
            for field in ["resourceVersion", "managedFields"] {
                object.remove(field);
            }
            object.values_mut().for_each(outcome);
        }
        Value::String(text) if TIME.is_match(text) => "<time>".clone_into(text),
        Value::String(text) => *text = MINUTES.replace(text, "-<minutes>").into_owned(),
        _ => {}
    }
}

/// Returns the fields of a Pod that the Job controller sets, and its phase.
fn essence(pod: &Value) -> Value {
    let mut metadata = pod["metadata"].clone();
    for field in ["name", "uid", "creationTimestamp", "deletionTimestamp"] {
        metadata.as_object_mut().and_then(|metadata| metadata.remove(field));
    }
    json!({
        "metadata": metadata,
        "phase": pod["status"]["phase"],
        "restartPolicy": pod["spec"]["restartPolicy"],
        "hostname": pod["spec"]["hostname"],
        "env": pod["spec"]["containers"][0]["env"],
    })
}
