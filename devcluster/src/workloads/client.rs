//! The requests that controllers send, and the watches that they read: an API server as any client sees it.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use serde_json::{Value, json};

use super::object::Object as _;
use crate::kinds::Kind;
use crate::store::GroupResource;

/// An API server that controllers work against.
pub trait Client: Send + Sync + 'static {
    /// Returns the kinds that are served now, custom ones included; the preferred version of a kind first.
    fn kinds(&self) -> Vec<Arc<Kind>>;

    /// Lists all objects of a resource and watches it from there.
    fn watch(&self, resource: &GroupResource) -> impl Future<Output = Result<Watch, RequestError>> + Send;

    /// Reads an object.
    fn get(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Value, RequestError>> + Send;

    /// Sends a write and returns the object of the answer, or the Status where the server answers with one.
    fn send(&self, request: Request) -> impl Future<Output = Result<Value, RequestError>> + Send;
}

/// The objects of a resource, and their changes from then on.
pub struct Watch {
    /// The revision of the list.
    pub revision: u64,
    /// The objects at that revision.
    pub objects: Vec<Arc<Value>>,
    /// The changes after it; ends when the watch is cut.
    pub events: BoxStream<'static, Event>,
}

/// A change of an object, which carries its resourceVersion.
#[derive(Clone, Debug)]
pub enum Event {
    /// The object was created or changed.
    Put(Arc<Value>),
    /// The object is gone; this is its last state.
    Gone(Arc<Value>),
}

/// A write.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The verb.
    pub verb: Verb,
    /// The resource.
    pub resource: GroupResource,
    /// The namespace, empty for objects without one.
    pub namespace: String,
    /// The name of the object, empty where the verb has none.
    pub name: String,
    /// The subresource, empty for the object itself.
    pub subresource: &'static str,
    /// The object, the patch or the `DeleteOptions`.
    pub body: Value,
}

/// The verb of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH with a JSON merge patch.
    MergePatch,
    /// DELETE of an object.
    Delete,
    /// DELETE of all objects of a namespace.
    DeleteCollection,
}

/// A write or a watch that the server refused.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RequestError {
    /// The HTTP status code.
    pub code: u16,
    /// The message of the Status.
    pub message: String,
    /// The reasons of the causes of the Status.
    pub causes: Vec<String>,
}

// === impl Watch ===

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("revision", &self.revision).finish_non_exhaustive()
    }
}

// === impl Request ===

impl Request {
    fn of(verb: Verb, resource: &GroupResource, object: &Value, body: Value) -> Self {
        Self {
            verb,
            resource: resource.clone(),
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            subresource: "",
            body,
        }
    }

    /// Creates an object.
    pub(super) fn create(resource: &GroupResource, object: Value) -> Self {
        let target = object.clone();
        Self::of(Verb::Create, resource, &target, object)
    }

    /// Replaces an object, which still has the resourceVersion of the body.
    pub(super) fn update(resource: &GroupResource, object: Value) -> Self {
        let target = object.clone();
        Self::of(Verb::Update, resource, &target, object)
    }

    /// Replaces the status of an object, which still has the resourceVersion of the body.
    pub(super) fn update_status(resource: &GroupResource, object: Value) -> Self {
        Self { subresource: "status", ..Self::update(resource, object) }
    }

    /// Changes metadata of an object, provided that it is the object that was read, unchanged.
    pub(super) fn patch_metadata(resource: &GroupResource, object: &Value, mut metadata: Value) -> Self {
        metadata["uid"] = object.uid().into();
        metadata["resourceVersion"] = object.text("/metadata/resourceVersion").into();
        Self::of(Verb::MergePatch, resource, object, json!({ "metadata": metadata }))
    }

    /// Deletes an object with these `DeleteOptions`, provided that it is the object that was read.
    pub(super) fn delete(resource: &GroupResource, object: &Value, mut options: Value) -> Self {
        options["kind"] = "DeleteOptions".into();
        options["apiVersion"] = "v1".into();
        options["preconditions"]["uid"] = object.uid().into();
        Self::of(Verb::Delete, resource, object, options)
    }

    /// Deletes all objects of a namespace, their dependents in the background.
    pub(super) fn delete_collection(resource: &GroupResource, namespace: &str) -> Self {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
        let target = json!({"metadata": {"namespace": namespace}});
        Self::of(Verb::DeleteCollection, resource, &target, body)
    }
}

// === impl RequestError ===

impl RequestError {
    /// Whether the object does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Whether an object cannot be created because its namespace is being deleted.
    pub(super) fn is_namespace_terminating(&self) -> bool {
        self.causes.iter().any(|cause| cause == "NamespaceTerminating")
    }
}
