//! Validation of Events. Both groups store the same objects, so most errors name the fields of `v1`.

use serde_json::Value;

use super::{Checks, internal};
use crate::kinds::{FieldError, names};

/// The largest length of the sender's instance, the action and the reason, in bytes.
const MAX_TEXT: usize = 128;
/// The largest length of the message, in bytes.
const MAX_MESSAGE: usize = 1024;

/// Fields with another name in `v1`: the name there, and in `events.k8s.io/v1`.
const OLDER: [(&str, &str); 5] = [
    ("involvedObject", "regarding"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
];

/// Checks a new Event of `events.k8s.io/v1`.
pub(super) fn check(checks: &mut Checks, object: &Value) {
    older(checks, object, "regarding", "reportingController", "note");
    check_series(checks, &object["series"]);
    if object["eventTime"].is_null() {
        checks.add(FieldError::required("eventTime", ""));
    }
    // The server quotes an empty text in place of these values.
    if !matches!(object["type"].as_str(), Some("Normal" | "Warning")) {
        let given = object["type"].as_str().unwrap_or_default();
        checks.add(FieldError::invalid("type", &"".into(), &format!("has invalid value: {given}")));
    }
    for (path, field) in OLDER.iter().skip(1) {
        let unset = match &object[field] {
            Value::Null => true,
            Value::Object(source) => source.is_empty(),
            other => *other == 0,
        };
        if !unset {
            checks.add(FieldError::invalid(*path, &"".into(), "needs to be unset"));
        }
    }
}

/// Checks that an update of an Event of `events.k8s.io/v1` changes only its series and metadata.
pub(super) fn check_update(checks: &mut Checks, object: &Value, old: &Value) {
    older(checks, object, "regarding", "reportingController", "note");
    if object["series"] != old["series"] {
        check_series(checks, &object["series"]);
    }
    let changed = |field: &str| object[field] != old[field];
    let mut refuse =
        |path: &str, shown: &str| checks.add(FieldError::invalid_shown(path, shown, "field is immutable"));
    for (path, field) in [("involvedObject", "regarding"), ("related", "related")] {
        if changed(field) {
            let shown = match &object[field] {
                Value::Null if path == "related" => "null".to_owned(),
                reference => shown_reference(reference),
            };
            refuse(path, &shown);
        }
    }
    if changed("deprecatedSource") {
        let fields = [("Component", "component"), ("Host", "host")];
        refuse("source", &internal(&object["deprecatedSource"], &fields, &"".into()));
    }
    let texts = [
        ("reason", "reason"),
        ("message", "note"),
        ("type", "type"),
        ("action", "action"),
        ("reportingController", "reportingController"),
        ("reportingInstance", "reportingInstance"),
    ];
    for (path, field) in texts.into_iter().filter(|(_, field)| changed(field)) {
        refuse(path, &Value::from(object[field].as_str().unwrap_or_default()).to_string());
    }
    let others = [
        ("firstTimestamp", "deprecatedFirstTimestamp"),
        ("lastTimestamp", "deprecatedLastTimestamp"),
        ("eventTime", "eventTime"),
    ];
    for (path, field) in others.into_iter().filter(|(_, field)| changed(field)) {
        refuse(path, &object[field].to_string());
    }
    if changed("deprecatedCount") {
        refuse("count", &object["deprecatedCount"].as_i64().unwrap_or(0).to_string());
    }
}

/// Checks a new or changed Event of `v1`.
pub(super) fn check_older(checks: &mut Checks, object: &Value) {
    older(checks, object, "involvedObject", "reportingComponent", "message");
}

fn shown_reference(reference: &Value) -> String {
    let fields = [
        ("Kind", "kind"),
        ("Namespace", "namespace"),
        ("Name", "name"),
        ("UID", "uid"),
        ("APIVersion", "apiVersion"),
        ("ResourceVersion", "resourceVersion"),
        ("FieldPath", "fieldPath"),
    ];
    internal(reference, &fields, &"".into())
}

fn check_series(checks: &mut Checks, series: &Value) {
    if series.is_null() {
        return;
    }
    if series["count"].as_i64().unwrap_or(0) < 2 {
        checks.add(FieldError::invalid("series.count", &"".into(), "should be at least 2"));
    }
    if series["lastObservedTime"].is_null() {
        checks.add(FieldError::required("series.lastObservedTime", ""));
    }
}

/// Checks an Event by the rules for both groups, with the names that three of its fields have.
fn older(checks: &mut Checks, object: &Value, reference: &str, sender: &str, message: &str) {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let involved = object[reference]["namespace"].as_str().unwrap_or_default();
    let timed = !object["eventTime"].is_null();
    let fits = match involved {
        "" => namespace == "default" || namespace == if timed { "kube-system" } else { "" },
        involved => timed || involved == namespace,
    };
    if !fits {
        let text = "does not match event.namespace";
        checks.add(FieldError::invalid("involvedObject.namespace", &involved.into(), text));
    }
    if !timed {
        return;
    }
    for field in [sender, "reportingInstance", "action", "reason"] {
        if text(field).is_empty() {
            checks.add(FieldError::required(field, ""));
        }
        if field == sender {
            for error in names::qualified_name(text(field)) {
                checks.add(FieldError::invalid(field, &text(field).into(), &error));
            }
        }
    }
    let limits = [
        ("reportingInstance", text("reportingInstance"), MAX_TEXT),
        ("action", text("action"), MAX_TEXT),
        ("reason", text("reason"), MAX_TEXT),
        ("message", text(message), MAX_MESSAGE),
    ];
    for (path, given, max) in limits {
        if given.len() > max {
            let text = format!("can have at most {max} characters");
            checks.add(FieldError::invalid(path, &"".into(), &text));
        }
    }
}
