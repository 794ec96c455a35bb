//! Whether an object is in the state that a check names.
//!
//! A condition is compared as `kubectl wait --for=condition` does
//! (<https://github.com/kubernetes/kubectl/blob/master/pkg/cmd/wait/condition.go>): types and statuses
//! without regard to case. A condition or a value counts only if its `observedGeneration`, or else that of
//! the status around it, is not older than the object's generation.

use mainstay_api::json_path::NotOneValue;
use mainstay_api::plan::{ResourceCheck, ResourceState};
use serde::Deserialize;

/// Whether an object is in the state that a check expects; of several objects the greatest value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    /// The object is in the state of the check.
    InState,
    /// The object is not in the state of the check.
    NotInState,
    /// The status of the object is of an earlier generation, so it does not count yet.
    NotObserved,
    /// The object has failed and will not reach the state.
    Failed,
}

/// The fields of an object that its conditions are read from.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ObjectView {
    status: Option<StatusView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusView {
    observed_generation: Option<i64>,
    conditions: Option<Vec<ConditionView>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConditionView {
    r#type: String,
    status: String,
    observed_generation: Option<i64>,
}

/// Returns whether an object, given as JSON, is in the state of a check.
///
/// # Errors
/// The path of the check selects something other than one value.
pub(super) fn compare(
    check: &ResourceCheck,
    object: &[u8],
    generation: Option<i64>,
) -> Result<Found, NotOneValue> {
    match &check.state {
        ResourceState::Condition { type_, status } => {
            // A status of another form has no conditions.
            let object: ObjectView = serde_json::from_slice(object).unwrap_or_default();
            let found = object.compare(type_, status, generation);
            let has_failed = check.group == "batch" && check.kind == "Job" && object.has_failed();
            Ok(if found == Found::NotInState && has_failed { Found::Failed } else { found })
        }
        ResourceState::JsonPath { path, value } => Ok(match path.find(object)? {
            Some(found) => found_if(found.text == *value, found.observed_generation, generation),
            None => Found::NotInState,
        }),
    }
}

// === impl ObjectView ===

impl ObjectView {
    fn compare(&self, type_: &str, status: &str, generation: Option<i64>) -> Found {
        let Some(condition) = self.condition(type_) else { return Found::NotInState };
        let of_status = self.status.as_ref().and_then(|status| status.observed_generation);
        let observed = condition.observed_generation.or(of_status);
        found_if(condition.status.eq_ignore_ascii_case(status), observed, generation)
    }

    fn has_failed(&self) -> bool {
        self.condition("Failed").is_some_and(|condition| condition.status.eq_ignore_ascii_case("True"))
    }

    fn condition(&self, type_: &str) -> Option<&ConditionView> {
        let conditions = self.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|condition| condition.r#type.eq_ignore_ascii_case(type_))
    }
}

// === private ===

fn found_if(is_equal: bool, observed: Option<i64>, generation: Option<i64>) -> Found {
    match (observed, generation) {
        (Some(observed), Some(generation)) if observed < generation => Found::NotObserved,
        _ if is_equal => Found::InState,
        _ => Found::NotInState,
    }
}

#[cfg(test)]
mod tests;
