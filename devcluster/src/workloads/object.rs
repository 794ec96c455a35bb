//! Reading objects: metadata, labels, owners, conditions and times of a JSON value.

use jiff::{Timestamp, Unit};
use serde_json::{Value, json};

static NULL: Value = Value::Null;

/// Views of an object. A missing field reads as null, empty text or an empty list.
pub(super) trait Object {
    /// Returns the value at a JSON pointer.
    fn at(&self, pointer: &str) -> &Value;

    fn text(&self, pointer: &str) -> &str {
        self.at(pointer).as_str().unwrap_or_default()
    }

    fn int(&self, pointer: &str) -> Option<i64> {
        self.at(pointer).as_i64()
    }

    /// Returns the number at a JSON pointer, 0 if there is none.
    fn count(&self, pointer: &str) -> i64 {
        self.int(pointer).unwrap_or_default()
    }

    fn list(&self, pointer: &str) -> &[Value] {
        self.at(pointer).as_array().map(Vec::as_slice).unwrap_or_default()
    }

    fn time(&self, pointer: &str) -> Option<Timestamp> {
        self.text(pointer).parse().ok()
    }

    fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    fn namespace(&self) -> &str {
        self.text("/metadata/namespace")
    }

    fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    fn is_deleting(&self) -> bool {
        !self.at("/metadata/deletionTimestamp").is_null()
    }

    fn has_finalizer(&self, finalizer: &str) -> bool {
        self.list("/metadata/finalizers").iter().any(|has| has == finalizer)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.at("/metadata/annotations").get(key)?.as_str()
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.at("/metadata/labels").get(key)?.as_str()
    }

    fn owners(&self) -> &[Value] {
        self.list("/metadata/ownerReferences")
    }

    /// Returns the owner reference of the object's controller.
    fn controller(&self) -> Option<&Value> {
        self.owners().iter().find(|owner| owner["controller"] == true)
    }

    fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| owner.text("/uid") == uid)
    }

    /// Returns a condition of the status.
    fn condition(&self, kind: &str) -> Option<&Value> {
        self.list("/status/conditions").iter().find(|condition| condition["type"] == kind)
    }

    fn has_condition(&self, kind: &str) -> bool {
        self.condition(kind).is_some_and(|condition| condition["status"] == "True")
    }
}

impl Object for Value {
    fn at(&self, pointer: &str) -> &Value {
        self.pointer(pointer).unwrap_or(&NULL)
    }
}

/// Returns the reference that makes an object the controller of others.
pub(super) fn controller_reference(owner: &Value, api_version: &str, kind: &str) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "name": owner.name(),
        "uid": owner.uid(),
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Returns the time as objects carry it, in whole seconds.
pub(super) fn seconds(time: Timestamp) -> Value {
    // Rounding down to a second cannot leave the range of times.
    let time = time.round(jiff::TimestampRound::new().smallest(Unit::Second).mode(jiff::RoundMode::Trunc));
    Value::String(time.map(|time| time.to_string()).unwrap_or_default())
}

/// Whether a `LabelSelector` matches the labels. A missing selector matches nothing, an empty one everything.
pub(super) fn selects(selector: &Value, labels: &Value) -> bool {
    let Some(selector) = selector.as_object() else { return false };
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let named = selector.get("matchLabels").and_then(Value::as_object);
    let expressions = selector.get("matchExpressions").and_then(Value::as_array);
    named.into_iter().flatten().all(|(key, value)| label(key) == value.as_str())
        && expressions.into_iter().flatten().all(|expression| {
            let actual = label(expression.text("/key"));
            let listed =
                || actual.is_some_and(|actual| expression.list("/values").iter().any(|v| v == actual));
            match expression.text("/operator") {
                "In" => listed(),
                "NotIn" => !listed(),
                "Exists" => actual.is_some(),
                "DoesNotExist" => actual.is_none(),
                _ => false,
            }
        })
}

/// Whether a map of labels, such as the selector of a Service, is part of the labels.
pub(super) fn is_subset(wanted: &Value, labels: &Value) -> bool {
    wanted.as_object().is_some_and(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)))
}

/// Whether a Pod has neither ended nor been deleted, so that its owner counts it.
pub(super) fn is_active(pod: &Value) -> bool {
    !has_ended(pod) && !pod.is_deleting()
}

/// Whether the containers of a Pod have ended for good.
pub(super) fn has_ended(pod: &Value) -> bool {
    matches!(pod.text("/status/phase"), "Succeeded" | "Failed")
}

/// Whether a typed client would see a difference between two values.
pub(super) fn differ(a: &Value, b: &Value) -> bool {
    a != b && without_empty(a) != without_empty(b)
}

/// Returns a value without nulls, empty lists and empty maps: two values that a typed client cannot tell
/// apart are equal without them.
pub(super) fn without_empty(value: &Value) -> Value {
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    match value {
        Value::Array(items) => items.iter().map(without_empty).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (key.clone(), without_empty(value)))
            .filter(|(_, value)| !is_empty(value))
            .collect(),
        _ => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_whole_seconds() {
        let time: Timestamp = "2026-01-02T03:04:05.999Z".parse().expect("a time");
        assert_eq!(seconds(time), "2026-01-02T03:04:05Z");
    }

    #[test]
    fn selectors_match_as_kubernetes_does() {
        let labels = json!({"app": "web", "tier": "front"});
        let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
        assert!(selects(&json!({}), &labels));
        assert!(!selects(&Value::Null, &labels));
        assert!(selects(&json!({"matchLabels": {"app": "web"}}), &labels));
        assert!(!selects(&json!({"matchLabels": {"app": "db"}}), &labels));
        assert!(selects(&expression("app", "In", &["db", "web"]), &labels));
        assert!(selects(&expression("zone", "NotIn", &["a"]), &labels));
        assert!(!selects(&expression("zone", "Exists", &[]), &labels));
        assert!(selects(&expression("zone", "DoesNotExist", &[]), &labels));
    }

    #[test]
    fn empty_fields_do_not_count() {
        let one = json!({"metadata": {"labels": {}, "creationTimestamp": null}, "spec": {"x": [{"y": []}]}});
        assert_eq!(without_empty(&one), json!({"spec": {"x": [{}]}}));
    }
}
