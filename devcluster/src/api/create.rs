//! Creation of objects: by create requests, and by updates and applies of missing objects.

use std::sync::Arc;

use serde_json::{Value, json};

use super::admission::Operation;
use super::call::Call;
use super::object;
use super::options::WriteOptions;
use super::rbac::{Access, Action};
use super::request::Verb;
use super::response::{Content, Object};
use super::served::Served;
use super::{Api, Response, Status};
use crate::kinds::{Generation, Kind, metadata};
use crate::store::{Key, WriteError};

/// Number of names that are generated before a creation fails, as in kube-apiserver.
const NAME_ATTEMPTS: usize = 8;

/// Fields of metadata that the server sets itself.
const SYSTEM_FIELDS: [&str; 5] =
    ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

// === impl Api ===

impl Api {
    pub(super) async fn create(&self, call: &mut Call) -> Result<Response, Status> {
        call.options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let mut object = call.decode()?;
        wipe(&mut object);
        call.place(&mut object)?;
        call.warnings.extend(object::deduplicate_owners(&mut object));
        call.refuse_revision(&object)?;
        let object = call.served.own(None, object, &call.author(self.now()));
        object::meta(&object, "name").clone_into(&mut call.target.name);
        let created = self.insert(call, object).await?;
        Ok(Response::new(201, Content::Object(created)))
    }

    /// Admits, names, validates and stores a decoded object.
    pub(super) async fn insert(&self, call: &mut Call, mut object: Value) -> Result<Object, Status> {
        self.admit(call, Operation::Create, None, &mut object).await?;
        self.check_grant(call, None, &object)?;
        call.place(&mut object)?;
        if call.verb == Verb::Create {
            call.refuse_revision(&object)?;
        }
        call.warnings.extend(object::deduplicate_owners(&mut object));
        let served = Arc::clone(&call.served);
        let kind = &*served.kind;
        if served.custom.as_ref().is_some_and(|custom| custom.terminating) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::forbidden(kind, &call.target.name, why));
        }
        object::set_meta(&mut object, "creationTimestamp", object::time(self.now()));
        object::set_meta(&mut object, "uid", self.random(object::uid));
        if call.verb != Verb::Create {
            object::remove_meta(&mut object, "resourceVersion");
        }
        prepare(&served, &mut object);
        let base = object::meta(&object, "generateName").to_owned();
        let generates = object::meta(&object, "name").is_empty() && !base.is_empty();
        let mut attempts = if generates { NAME_ATTEMPTS } else { 1 };
        loop {
            attempts -= 1;
            if generates {
                let name = self.random(|random| object::generated_name(&base, random));
                object::set_meta(&mut object, "name", name);
            }
            object::meta(&object, "name").clone_into(&mut call.target.name);
            let _reservation = self.prepare_create(kind, &mut object)?;
            // Another attempt, with another name, is made only for generated names.
            let attempt = if attempts == 0 { std::mem::take(&mut object) } else { object.clone() };
            match self.try_insert(call, attempt).await {
                Err(status) if status.reason() == "AlreadyExists" && generates && attempts > 0 => {}
                Err(status) if status.reason() == "AlreadyExists" && generates => {
                    return Err(exhausted(kind, &status));
                }
                other => return other,
            }
        }
    }

    /// Validates and stores an object with its final name.
    async fn try_insert(&self, call: &mut Call, mut object: Value) -> Result<Object, Status> {
        let served = Arc::clone(&call.served);
        if served.custom.is_none() {
            served.settle(&mut object);
        }
        let kind = &*served.kind;
        let name = object::meta(&object, "name").to_owned();
        let errors = served.check_create(&object);
        if !errors.is_empty() && !call.unchecked {
            return Err(served.invalid(&object, &errors));
        }
        if let Some(metadata) = object.get("metadata") {
            call.warnings.extend(metadata::finalizer_warnings(metadata, None));
        }
        call.warnings.extend(super::builtin::warnings(kind, &object, None));
        if call.verb != Verb::Create {
            let create = Access::to("create", kind, &call.target.namespace, &name);
            self.authorize(&call.user, &Action::Resource(create))?;
        }
        self.validate(call, Operation::Create, None, &object).await?;
        let key = Key::new(&call.target.namespace, &name);
        let exists = |existing: &Value| {
            let status = Status::already_exists(kind, &name);
            if object::is_terminating(existing) {
                status.prefixed("object is being deleted: ")
            } else {
                status
            }
        };
        if call.options.dry_run {
            if let Some(existing) = self.shared.store.get(&served.resource, &key) {
                return Err(exists(existing.value()));
            }
            served.settle(&mut object);
            return Ok(Object::Made(Arc::new(object)));
        }
        let stored = self.stored(&served, object).await?;
        match self.shared.store.create(&served.resource, key, stored) {
            Ok(version) => {
                self.after_write(kind, &version);
                self.view(&served, &version).await
            }
            Err(WriteError::Exists(existing)) => Err(exists(existing.value())),
            Err(WriteError::Conflict(_)) => Err(Status::modified(kind, &name)),
        }
    }
}

// === impl Call ===

impl Call {
    /// Refuses a new object with a resourceVersion, from the client or from a webhook. The real server looks
    /// at it when it stores the object.
    fn refuse_revision(&self, object: &Value) -> Result<(), Status> {
        if self.options.dry_run || object::meta(object, "resourceVersion").is_empty() {
            return Ok(());
        }
        Err(Status::unclassified("resourceVersion should not be set on objects to be created"))
    }
}

/// Removes the metadata fields that only the server sets.
pub(super) fn wipe(object: &mut Value) {
    for field in SYSTEM_FIELDS {
        object::remove_meta(object, field);
    }
}

/// Sets the generation to 1, and resets the status if only the status subresource may set it.
fn prepare(served: &Served, object: &mut Value) {
    let kind = &served.kind;
    // A kind without generations keeps one that a client sends.
    if kind.generation != Generation::None {
        object::set_meta(object, "generation", 1);
    }
    // A kubelet creates its Node with a status.
    if kind.status && kind.kind != "Node" {
        object::copy_field(served.empty(), object, "status");
    }
}

/// Returns the error of a creation for which every generated name was in use.
fn exhausted(kind: &Kind, status: &Status) -> Status {
    let failure = status.failure();
    let message = format!(
        "{}, the server was not able to generate a unique name for the object",
        Status::already_exists(kind, failure.details.as_ref().map_or("", |details| &details.name)).message()
    );
    let mut details = failure.details.clone().unwrap_or_default();
    details.retry_after_seconds = 1;
    Status::new(409, "AlreadyExists", message).with_details(details)
}

/// Returns the `Status` object of a successful deletion.
pub(super) fn success(kind: &Kind, name: &str, uid: &str) -> Value {
    let details = super::status::Details { uid: uid.to_owned(), ..super::status::Details::of(kind, name) };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details.to_value(),
    })
}
