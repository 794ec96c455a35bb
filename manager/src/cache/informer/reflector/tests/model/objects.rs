//! The objects of the model server, and the filters of its lists and watches.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use crate::cache::tests::fixtures::config_map;
use crate::client::ResourcePath;
use crate::key::{Key, KindId, NamespacedName};

/// Uid and version of each object.
pub(super) type State = BTreeMap<NamespacedName, (String, u64)>;

/// The kind of the server's objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ObjectKind {
    /// In two namespaces; removed at once when they are deleted.
    ConfigMaps,
    /// Deleted in two steps: marked as being deleted, then removed.
    Namespaces,
}

/// The objects that a list or watch selects.
#[derive(Clone, Debug, Default)]
pub(super) struct Filter {
    pub(super) namespace: Option<Arc<str>>,
    /// Whether only objects with the label are selected.
    pub(super) labelled: bool,
}

/// One version of an object.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) request: NamespacedName,
    pub(super) uid: String,
    pub(super) version: u64,
    pub(super) labelled: bool,
    pub(super) deleting: bool,
}

/// One change. A deletion has the last version of the object with the version of the deletion.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub(super) object: Object,
    pub(super) deleted: bool,
}

// === impl ObjectKind ===

impl ObjectKind {
    pub(super) fn id(self) -> KindId {
        match self {
            Self::ConfigMaps => config_map(),
            Self::Namespaces => KindId::of::<Namespace>(),
        }
    }

    pub(super) fn request(self, name: u8) -> NamespacedName {
        match self {
            Self::ConfigMaps => {
                NamespacedName::namespaced(["shop", "bank"][usize::from(name % 2)], format!("n{name}"))
            }
            Self::Namespaces => NamespacedName::cluster(format!("n{name}")),
        }
    }

    pub(super) fn path(self, request: &NamespacedName) -> ResourcePath {
        ResourcePath {
            group: String::new(),
            version: "v1".into(),
            plural: if self == Self::ConfigMaps { "configmaps" } else { "namespaces" }.into(),
            namespace: request.namespace().map(Into::into),
            name: Some(request.name().to_owned()),
            subresource: None,
        }
    }

    pub(super) fn json(self, object: &Object) -> Value {
        let mut metadata = json!({
            "name": object.request.name(), "uid": object.uid, "resourceVersion": object.version.to_string(),
            "labels": {"app": if object.labelled { "web" } else { "api" }},
        });
        if object.deleting {
            metadata["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        match self {
            Self::ConfigMaps => {
                metadata["namespace"] = json!(object.request.namespace());
                let data = json!({"at": object.version.to_string(), "left out": "x"});
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
            }
            Self::Namespaces => {
                let spec = json!({"finalizers": ["kubernetes"]});
                json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata, "spec": spec})
            }
        }
    }
}

// === impl Filter ===

impl Filter {
    /// Parses the filter of a list or watch request.
    pub(super) fn of(uri: &str) -> Self {
        let namespace = uri.split_once("/namespaces/").and_then(|(_, rest)| rest.split_once('/'));
        Self {
            namespace: namespace.map(|(namespace, _)| namespace.into()),
            labelled: uri.contains("labelSelector=app%3Dweb"),
        }
    }

    pub(super) fn admits(&self, object: &Object) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| object.request.namespace() == Some(namespace))
            && (!self.labelled || object.labelled)
    }

    /// Returns whether an object is selected after a change.
    pub(super) fn shows(&self, event: &Event) -> bool {
        !event.deleted && self.admits(&event.object)
    }
}
