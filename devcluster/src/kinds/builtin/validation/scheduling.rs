//! Validation of `PriorityClasses` and `RuntimeClasses`.

use serde_json::Value;

use super::{Checks, entries};
use crate::kinds::{FieldError, names};

/// The priority classes of every cluster, with their values.
pub const SYSTEM_CLASSES: [(&str, i64); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const HIGHEST: i64 = 1_000_000_000;

pub(super) fn check_priority(checks: &mut Checks, class: &Value) {
    let name = class["metadata"]["name"].as_str().unwrap_or_default();
    let value = class["value"].as_i64().unwrap_or_default();
    if name.starts_with("system-") {
        let why = match SYSTEM_CLASSES.iter().find(|(known, _)| *known == name) {
            None => Some(format!("{name} is not a known system priority class")),
            Some((_, known)) if *known != value => {
                Some(format!("value of {name} PriorityClass must be {known}"))
            }
            Some(_) if class["globalDefault"] == true => {
                Some(format!("globalDefault of {name} PriorityClass must be false"))
            }
            Some(_) => None,
        };
        if let Some(why) = why {
            let text = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            );
            checks.add(FieldError::forbidden("metadata.name", &text));
        }
    } else if value > HIGHEST {
        let text = format!("maximum allowed value of a user defined priority is {HIGHEST}");
        checks.add(FieldError::forbidden("value", &text));
    }
    match class["preemptionPolicy"].as_str() {
        None | Some("PreemptLowerPriority" | "Never") => {}
        Some("") => checks.add(FieldError::required("preemptionPolicy", "")),
        Some(_) => {
            let supported = ["PreemptLowerPriority", "Never"];
            let policy = &class["preemptionPolicy"];
            checks.add(FieldError::unsupported("preemptionPolicy", policy, &supported));
        }
    }
}

pub(super) fn check_priority_update(checks: &mut Checks, class: &Value, old: &Value) {
    if class["value"] != old["value"] {
        checks.add(FieldError::forbidden("value", "may not be changed in an update."));
    }
    checks.immutable("preemptionPolicy", &class["preemptionPolicy"], &old["preemptionPolicy"]);
}

pub(super) fn check_runtime(checks: &mut Checks, class: &Value) {
    if class["handler"].as_str().is_none_or(str::is_empty) {
        checks.add(FieldError::required("handler", ""));
    } else {
        checks.label("handler", &class["handler"]);
    }
    for (key, value) in entries(&class["scheduling"]["nodeSelector"]) {
        let path = "scheduling.nodeSelector";
        for error in names::qualified_name(key) {
            checks.add(FieldError::invalid(path, &key.as_str().into(), &error));
        }
        for error in names::label_value(value.as_str().unwrap_or_default()) {
            checks.add(FieldError::invalid(path, value, &error));
        }
    }
}
