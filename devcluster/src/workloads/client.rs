//! The interface between controllers and an API server: requests, watches and errors.

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use futures_util::stream::BoxStream;
use serde_json::{Value, json};

use super::object::Object as _;
use crate::kinds::Kind;
use crate::store::GroupResource;

/// An API server, as the controllers use it.
pub trait Client: Send + Sync + 'static {
    /// Returns the kinds that are served now, custom ones included; of each kind the preferred version first.
    fn kinds(&self) -> Vec<Arc<Kind>>;

    /// Lists all objects of a resource in all namespaces, and watches it from the revision of the list.
    fn watch(&self, resource: &GroupResource) -> impl Future<Output = Result<Watch, RequestError>> + Send;

    /// Reads an object; `namespace` is empty for objects without one.
    fn get(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> impl Future<Output = Result<Value, RequestError>> + Send;

    /// Sends a write and returns the object or the `Status` of the response.
    fn send(&self, request: Request) -> impl Future<Output = Result<Value, RequestError>> + Send;
}

/// The objects of a resource, and a stream of their later changes.
pub struct Watch {
    /// The revision of the list.
    pub revision: u64,
    /// The objects at that revision.
    pub objects: Vec<Arc<Value>>,
    /// The changes after that revision. The stream ends when the watch ends.
    pub events: BoxStream<'static, Event>,
}

/// A change of an object; the object has the resourceVersion of the change.
#[derive(Clone, Debug)]
pub enum Event {
    /// The object was created or changed.
    Put(Arc<Value>),
    /// The object was deleted; this is its last state.
    Gone(Arc<Value>),
}

/// A write request.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The verb.
    pub verb: Verb,
    /// The resource.
    pub resource: GroupResource,
    /// The namespace, empty for objects without one.
    pub namespace: String,
    /// The name of the object, empty for a deletecollection and for a generated name.
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
    /// PATCH with an apply configuration that takes over fields of other managers.
    Apply,
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
    /// The message of the `Status`.
    pub message: String,
    /// The reasons of the causes in the details of the `Status`; may be empty.
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

    /// Returns the request to create an object.
    pub(super) fn create(resource: &GroupResource, object: Value) -> Self {
        let target = object.clone();
        Self::of(Verb::Create, resource, &target, object)
    }

    /// Returns the request to replace an object, if its resourceVersion is still that of `object`.
    pub(super) fn update(resource: &GroupResource, object: Value) -> Self {
        let target = object.clone();
        Self::of(Verb::Update, resource, &target, object)
    }

    /// Returns the request to replace the status of an object, if its resourceVersion is still that of
    /// `object`.
    pub(super) fn update_status(resource: &GroupResource, object: Value) -> Self {
        Self { subresource: "status", ..Self::update(resource, object) }
    }

    /// Returns the request to patch the metadata of an object, if its uid and resourceVersion are unchanged.
    pub(super) fn patch_metadata(resource: &GroupResource, object: &Value, mut metadata: Value) -> Self {
        metadata["uid"] = object.uid().into();
        metadata["resourceVersion"] = object.text("/metadata/resourceVersion").into();
        Self::of(Verb::MergePatch, resource, object, json!({ "metadata": metadata }))
    }

    /// Returns the request to apply fields of an object.
    pub(super) fn apply(resource: &GroupResource, object: &Value, mut fields: Value) -> Self {
        fields["apiVersion"] = object["apiVersion"].clone();
        fields["kind"] = object["kind"].clone();
        fields["metadata"] = json!({"name": object.name()});
        Self::of(Verb::Apply, resource, object, fields)
    }

    /// Returns the request to delete an object with these `DeleteOptions`, if its uid is unchanged.
    pub(super) fn delete(resource: &GroupResource, object: &Value, mut options: Value) -> Self {
        options["kind"] = "DeleteOptions".into();
        options["apiVersion"] = "v1".into();
        options["preconditions"]["uid"] = object.uid().into();
        Self::of(Verb::Delete, resource, object, options)
    }

    /// Returns the request to delete all objects of a resource in a namespace, with background propagation.
    pub(super) fn delete_collection(resource: &GroupResource, namespace: &str) -> Self {
        let body = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
        let target = json!({"metadata": {"namespace": namespace}});
        Self::of(Verb::DeleteCollection, resource, &target, body)
    }
}

// === impl RequestError ===

impl RequestError {
    /// Whether the object or the resource does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        self.code == 404
    }

    /// Whether a create was refused because the namespace is being deleted.
    pub(super) fn is_namespace_terminating(&self) -> bool {
        self.causes.iter().any(|cause| cause == "NamespaceTerminating")
    }
}
