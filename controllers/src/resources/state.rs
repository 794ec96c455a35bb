//! Whether an object is in the state that is waited for.
//!
//! A condition is judged as `kubectl wait --for=condition` does
//! (<https://github.com/kubernetes/kubectl/blob/master/pkg/cmd/wait/condition.go>): names and values without regard to
//! case, and none that speaks of an older generation than the object has.

use serde::Deserialize;

/// The few fields of an object that a condition needs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ObjectView {
    metadata: MetadataView,
    status: Option<StatusView>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MetadataView {
    generation: Option<i64>,
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

/// What an object is found to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Found {
    /// In the state.
    There,
    /// Not in it.
    NotThere,
    /// What it says of itself is about an older generation than it has.
    Outdated,
    /// It will not get there any more.
    Failed,
}

// === impl ObjectView ===

impl ObjectView {
    /// Looks for a condition of this type and status.
    pub(super) fn judge(&self, type_: &str, status: &str) -> Found {
        let Some(condition) = self.condition(type_) else { return Found::NotThere };
        let of_status = self.status.as_ref().and_then(|status| status.observed_generation);
        let observed = condition.observed_generation.or(of_status);
        if let (Some(observed), Some(generation)) = (observed, self.metadata.generation)
            && observed < generation
        {
            return Found::Outdated;
        }
        if condition.status.eq_ignore_ascii_case(status) { Found::There } else { Found::NotThere }
    }

    /// Returns whether a condition of this type is true.
    pub(super) fn is(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status.eq_ignore_ascii_case("True"))
    }

    fn condition(&self, type_: &str) -> Option<&ConditionView> {
        let conditions = self.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|condition| condition.r#type.eq_ignore_ascii_case(type_))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn judge(object: Value) -> Found {
        serde_json::from_value::<ObjectView>(object).unwrap().judge("Available", "True")
    }

    fn with(conditions: &Value) -> Value {
        json!({"metadata": {"generation": 3}, "status": {"conditions": conditions}})
    }

    #[test]
    fn a_condition_counts_as_for_kubectl_wait() {
        for (conditions, expected) in [
            (json!([{"type": "Available", "status": "True"}]), Found::There),
            (json!([{"type": "available", "status": "true"}]), Found::There),
            (json!([{"type": "Progressing", "status": "True"}]), Found::NotThere),
            (json!([{"type": "Available", "status": "False"}]), Found::NotThere),
            (json!([{"type": "Available", "status": "Unknown"}]), Found::NotThere),
            (json!([{"type": "Available"}]), Found::NotThere),
            (json!([{"type": "Available", "status": "True", "observedGeneration": 3}]), Found::There),
            (json!([{"type": "Available", "status": "True", "observedGeneration": 2}]), Found::Outdated),
            (json!([]), Found::NotThere),
            (json!(null), Found::NotThere),
        ] {
            assert_eq!(judge(with(&conditions)), expected, "{conditions}");
        }
        assert_eq!(judge(json!({"metadata": {}})), Found::NotThere, "no status yet");
    }

    #[test]
    fn the_generation_of_the_status_speaks_for_conditions_without_one() {
        let mut object = with(&json!([{"type": "Available", "status": "True"}]));
        object["status"]["observedGeneration"] = 2.into();
        assert_eq!(judge(object.clone()), Found::Outdated);
        object["status"]["conditions"][0]["observedGeneration"] = 3.into();
        assert_eq!(judge(object.clone()), Found::There, "its own goes first");
        object["metadata"] = json!({});
        object["status"]["conditions"][0]["observedGeneration"] = 0.into();
        assert_eq!(judge(object), Found::There, "kinds without generations");
    }
}
