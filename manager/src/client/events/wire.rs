//! What an event looks like to the API server, and what it is asked.

use bytes::Bytes;
use http::{Method, Request, header};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use serde_json::{Value, json};

use super::Occurrence;

/// Something to do at the server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ServerAction {
    /// Create the event; it has a series if it happened more than once.
    Create(Box<Event>),
    /// Write the count of an event that is there.
    Count { namespace: String, name: String, series: EventSeries },
    /// An event of this name is there already: write the count if it is this one, which a create whose answer was lost
    /// has made, and change nothing if it is another's.
    Adopt(Box<Event>),
}

// === impl ServerAction ===

impl ServerAction {
    /// How often the event happened, as this action tells the server.
    pub(super) fn count(&self) -> i32 {
        match self {
            Self::Create(event) | Self::Adopt(event) => {
                event.series.as_ref().map_or(1, |series| series.count)
            }
            Self::Count { series, .. } => series.count,
        }
    }

    pub(super) fn request(&self) -> Result<Request<Bytes>, http::Error> {
        let collection = |namespace: &str| format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let of = |meta: &ObjectMeta| {
            let collection = collection(meta.namespace.as_deref().unwrap_or_default());
            format!("{collection}/{}", meta.name.as_deref().unwrap_or_default())
        };
        let (method, uri, content_type, body) = match self {
            Self::Create(event) => {
                let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
                (Method::POST, collection(namespace), "application/json", json!(event))
            }
            Self::Count { namespace, name, series } => {
                let uri = format!("{}/{name}", collection(namespace));
                (Method::PATCH, uri, "application/merge-patch+json", json!({ "series": series }))
            }
            Self::Adopt(event) => {
                (Method::PATCH, of(&event.metadata), "application/json-patch+json", adoption(event))
            }
        };
        Request::builder()
            .method(method)
            .uri(uri)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::ACCEPT, "application/json")
            .body(Bytes::from(body.to_string()))
    }
}

/// Makes the event of a first occurrence. `instance` is who reports it.
pub(super) fn new_event(occurrence: &Occurrence, instance: &str) -> Event {
    let namespace = occurrence.regarding.namespace.clone().filter(|namespace| !namespace.is_empty());
    Event {
        metadata: ObjectMeta {
            name: Some(event_name(&occurrence.regarding, occurrence.at)),
            // Events about cluster-scoped objects live there: the API allows no other place.
            namespace: Some(namespace.unwrap_or_else(|| "default".to_owned())),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(occurrence.at)),
        type_: Some(occurrence.kind.as_str().to_owned()),
        reason: Some(occurrence.reason.clone()),
        action: Some(occurrence.action.clone()),
        note: Some(occurrence.note.clone()).filter(|note| !note.is_empty()),
        regarding: Some(occurrence.regarding.clone()),
        related: occurrence.related.clone(),
        reporting_controller: Some(occurrence.controller.to_string()),
        reporting_instance: Some(instance.to_owned()),
        ..Event::default()
    }
}

/// `name.hextime` as client-go makes it, with `event` in place of a name that could not stand in front. The last
/// digits are random: one object can have two events at one clock reading.
pub(super) fn event_name(regarding: &ObjectReference, at: Timestamp) -> String {
    let name = regarding.name.as_deref().unwrap_or_default();
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    let label = |label: &str| !label.is_empty() && !label.starts_with('-') && !label.ends_with('-');
    let usable = name.len() <= 220 && name.chars().all(allowed) && name.split('.').all(label);
    let stem = if usable { name } else { "event" };
    format!("{stem}.{:x}{:04x}", at.as_nanosecond(), fastrand::u16(..))
}

/// A patch that fails as a whole unless the event was made by this process for this reason. So one request asks and
/// writes, and needs no right to read events.
fn adoption(event: &Event) -> Value {
    let mut steps: Vec<Value> = [
        ("/reportingController", &event.reporting_controller),
        ("/reportingInstance", &event.reporting_instance),
        ("/reason", &event.reason),
        ("/action", &event.action),
    ]
    .into_iter()
    .map(|(path, value)| json!({"op": "test", "path": path, "value": value}))
    .collect();
    steps.push(json!({"op": "test", "path": "/eventTime", "value": event.event_time}));
    if let Some(series) = &event.series {
        steps.push(json!({"op": "add", "path": "/series", "value": series}));
    }
    Value::Array(steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_cannot_stand_in_front_are_replaced() {
        let name_of = |name: &str| {
            let regarding = ObjectReference { name: Some(name.to_owned()), ..ObjectReference::default() };
            event_name(&regarding, Timestamp::from_second(1_700_000_000).unwrap())
        };
        for (name, stem) in [
            ("web-1", "web-1."),
            ("web.shop", "web.shop."),
            ("system:node", "event."),
            ("", "event."),
            ("Web", "event."),
            ("a..b", "event."),
            ("a-.b", "event."),
        ] {
            assert!(name_of(name).starts_with(stem), "{name}");
        }
        assert!(name_of(&"x".repeat(253)).len() < 253);
    }
}
