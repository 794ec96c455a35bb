//! What makes two occurrences the same event.
//!
//! The note is left out, since the API keeps the first one's anyway, and so are resource versions: they differ at each
//! occurrence and would make each an event of its own.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;

use super::{EventType, Occurrence};

/// What one controller says about one object, warnings apart from news. It has a budget of its own: a controller that
/// floods an object with news silences neither its warnings nor another controller.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Topic {
    object: ObjectId,
    kind: EventType,
    controller: Arc<str>,
}

/// Occurrences with the same key become one event with a count.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SeriesKey {
    pub(super) topic: Arc<Topic>,
    /// The part of the object that it is about, such as a container.
    part: Option<String>,
    related: Option<(ObjectId, Option<String>)>,
    reason: String,
    action: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct ObjectId {
    api_version: Option<String>,
    kind: Option<String>,
    namespace: Option<String>,
    name: Option<String>,
    uid: Option<String>,
}

// === impl SeriesKey ===

impl SeriesKey {
    pub(super) fn of(occurrence: &Occurrence) -> Self {
        let topic = Topic {
            object: ObjectId::of(&occurrence.regarding),
            kind: occurrence.kind,
            controller: Arc::clone(&occurrence.controller),
        };
        let related = occurrence.related.as_ref();
        Self {
            topic: Arc::new(topic),
            part: occurrence.regarding.field_path.clone(),
            related: related.map(|related| (ObjectId::of(related), related.field_path.clone())),
            reason: occurrence.reason.clone(),
            action: occurrence.action.clone(),
        }
    }
}

// === impl ObjectId ===

impl ObjectId {
    fn of(reference: &ObjectReference) -> Self {
        let ObjectReference { api_version, kind, namespace, name, uid, .. } = reference.clone();
        Self { api_version, kind, namespace, name, uid }
    }
}
