//! The expiry of Events, which the real API server has from etcd.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Decision;
use super::client::Request;
use super::object::Object as _;
use super::resources;

/// How long an Event stays after its last write, the default of kube-apiserver.
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);

/// Returns the deletion of an Event that has expired.
pub(super) fn decide(event: &Value, now: Timestamp) -> Decision {
    let written = event.list("/metadata/managedFields").iter().filter_map(|entry| entry.time("/time")).max();
    let written = written.or_else(|| event.time("/metadata/creationTimestamp"));
    match written.and_then(|written| written.checked_add(LIFETIME).ok()) {
        Some(end) if end > now => Decision { again_at: Some(end), ..Decision::default() },
        Some(_) if !event.is_deleting() => {
            vec![Request::delete(&resources::events(), event, json!({}))].into()
        }
        _ => Decision::default(),
    }
}
