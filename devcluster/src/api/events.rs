//! Conversion of Events between `v1`, the stored version, and `events.k8s.io/v1`.

use serde_json::Value;

/// Fields with different names: in `v1`, and in `events.k8s.io/v1`.
const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Renames the fields of an Event to their names in `group`; empty for the core group.
pub(super) fn convert(event: &mut Value, group: &str) {
    let Some(fields) = event.as_object_mut() else { return };
    for (core, other) in FIELDS {
        let (from, to) = if group.is_empty() { (other, core) } else { (core, other) };
        if let Some(value) = fields.remove(from) {
            fields.insert(to.to_owned(), value);
        }
    }
    // The stored form always has the sender, the newer one leaves an empty one out.
    if !group.is_empty() {
        for sender in ["reportingController", "reportingInstance"] {
            if fields.get(sender).is_some_and(|name| name == "") {
                fields.remove(sender);
            }
        }
    }
}
