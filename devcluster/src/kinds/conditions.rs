//! The list `conditions` of a status.

use serde_json::{Value, json};

/// Adds a condition to a status, or replaces the one of its type. The transition time is `now`, but stays if
/// `status` of the condition stays.
pub(crate) fn set(status: &mut Value, mut condition: Value, now: &str) {
    if !status["conditions"].is_array() {
        status["conditions"] = json!([]);
    }
    condition["lastTransitionTime"] = now.into();
    let Some(conditions) = status["conditions"].as_array_mut() else { return };
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => {
            if known["status"] == condition["status"] {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}
