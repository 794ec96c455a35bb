//! Changes of objects: the read-modify-write loop of updates, patches and subresources.

use std::sync::Arc;

use serde_json::Value;

use super::admission::Operation;
use super::call::Call;
use super::object;
use super::options::{WriteOptions, revision};
use super::response::{Content, Object};
use super::{Api, Response, Status};
use crate::kinds::{FieldError, Generation, Kind, apply, metadata};
use crate::store::{Version, WriteError};

/// The conditions of a change.
#[derive(Clone, Debug, Default)]
pub(super) struct Terms {
    /// Whether the change creates a missing object.
    pub(super) creates: bool,
    /// The uid that the object must have; `None` for any.
    pub(super) uid: Option<String>,
    /// Whether the change may omit the resourceVersion even if the kind requires it.
    pub(super) unconditional: bool,
}

/// Returns the new object for the current one; `None` stands for a missing object that is created.
pub(super) type Make<'a> = dyn FnMut(&mut Call, Option<&Value>) -> Result<Value, Status> + Send + 'a;

// === impl Api ===

impl Api {
    /// Replaces an object, or creates it if the kind allows a creation by update.
    pub(super) async fn update(&self, call: &mut Call) -> Result<Response, Status> {
        call.options = WriteOptions::parse(&call.query, "UpdateOptions", false)?;
        let mut sent = call.decode()?;
        call.place(&mut sent)?;
        call.check_name(&sent)?;
        call.warnings.extend(object::deduplicate_owners(&mut sent));
        let terms = Terms {
            creates: call.served.kind.create_on_update && call.target.subresource.is_empty(),
            uid: Some(object::meta(&sent, "uid").to_owned()).filter(|uid| !uid.is_empty()),
            unconditional: false,
        };
        let now = self.now();
        let mut make = |call: &mut Call, old: Option<&Value>| {
            let mut object = sent.clone();
            if old.is_none() {
                super::create::wipe(&mut object);
            }
            Ok(call.served.own(old, object, &call.author(now)))
        };
        self.modify(call, &terms, &mut make).await
    }

    /// Changes the object of a call; retries when another write comes in between.
    pub(super) async fn modify(
        &self,
        call: &mut Call,
        terms: &Terms,
        make: &mut Make<'_>,
    ) -> Result<Response, Status> {
        let served = Arc::clone(&call.served);
        loop {
            let Some(version) = self.shared.store.get(&served.resource, &call.key()) else {
                if !terms.creates {
                    return Err(Status::not_found(&served.kind, &call.target.name));
                }
                if let Some(uid) = &terms.uid {
                    return Err(other_uid(call, uid, ""));
                }
                let object = make(call, None)?;
                let created = self.insert(call, object).await?;
                return Ok(Response::new(201, Content::Object(created)));
            };
            if let Some(changed) = self.try_modify(call, terms, make, &version).await? {
                return Ok(Response::new(200, Content::Object(changed)));
            }
            tokio::task::yield_now().await;
        }
    }

    /// Returns the new object. The owners of its fields may need objects in other versions, which are
    /// converted before it is made again.
    async fn make(&self, call: &mut Call, make: &mut Make<'_>, old: &Value) -> Result<Value, Status> {
        loop {
            let object = make(call, Some(old));
            if !self.convert_missing(call).await? {
                return object;
            }
        }
    }

    /// Makes one attempt to change the version `version`; `None` if another write came in between.
    async fn try_modify(
        &self,
        call: &mut Call,
        terms: &Terms,
        make: &mut Make<'_>,
        version: &Arc<Version>,
    ) -> Result<Option<Object>, Status> {
        let served = Arc::clone(&call.served);
        let (kind, name) = (&*served.kind, call.target.name.clone());
        let view = self.view(&served, version).await?;
        let old = view.value();
        if let Some(uid) = &terms.uid
            && uid != object::meta(old, "uid")
        {
            return Err(other_uid(call, uid, object::meta(old, "uid")));
        }
        let mut object = self.make(call, make, old).await?;
        self.admit(call, Operation::Update, Some(old), &mut object).await?;
        if call.target.subresource.is_empty() {
            self.check_grant(call, Some(old), &object)?;
        }
        call.warnings.extend(object::deduplicate_owners(&mut object));
        match sent_revision(&object)? {
            0 if terms.unconditional || kind.unconditional_update => {
                object::copy_meta(old, &mut object, "resourceVersion");
            }
            0 => {
                let error = FieldError::invalid(
                    "metadata.resourceVersion",
                    &0.into(),
                    "must be specified for an update",
                );
                return Err(Status::invalid_kind(&kind.group, &kind.plural, &name, &[error]));
            }
            sent if sent == version.revision() => {}
            _ => return Err(Status::modified(kind, &name)),
        }
        call.place(&mut object)?;
        let _reservation = self.prepare_change(kind, &mut object, old, &call.target.subresource)?;
        prepare(kind, served.custom.is_some(), &mut object, old, &call.target.subresource);
        let errors = served.check_update(&object, old, &call.target.subresource);
        if !errors.is_empty() && !call.unchecked {
            return Err(served.invalid(&object, &errors));
        }
        if let Some(metadata) = object.get("metadata") {
            call.warnings.extend(metadata::finalizer_warnings(metadata, old.get("metadata")));
        }
        call.warnings.extend(super::builtin::warnings(kind, &object, Some(old)));
        let last = completes_deletion(kind, &object, old).then(|| object.clone());
        if served.custom.is_none() {
            served.settle(&mut object);
        }
        apply::keep_times(old, &mut object);
        self.validate(call, Operation::Update, Some(old), &object).await?;
        if let Some(last) = last {
            return Ok(self.finish_deletion(call, last, version));
        }
        if call.options.dry_run {
            served.settle(&mut object);
            return Ok(Some(Object::Made(Arc::new(object))));
        }
        let stored = self.stored(&served, object).await?;
        // The real server compares with the object as it is read, so empty lists always count as a change.
        if stored == *version.value() && !served.stores_empties(&stored) {
            return Ok(Some(view));
        }
        match self.shared.store.update(&served.resource, version.key(), stored, version.revision()) {
            Ok(version) => {
                self.after_write(kind, &version);
                Ok(Some(self.view(&served, &version).await?))
            }
            Err(WriteError::Conflict(_) | WriteError::Exists(_)) => Ok(None),
        }
    }

    /// Deletes an object after its last finalizer was removed, and returns it as sent; `None` if another
    /// write came in between.
    fn finish_deletion(&self, call: &Call, object: Value, version: &Arc<Version>) -> Option<Object> {
        if !call.options.dry_run {
            let resource = &call.served.resource;
            match self.shared.store.delete(resource, version.key(), version.revision()) {
                Ok(version) => self.after_delete(&call.served.kind, &version),
                Err(_) => return None,
            }
        }
        Some(Object::Made(Arc::new(object)))
    }
}

/// The answer to a write that expects another uid than that of the object, which is empty without an object.
fn other_uid(call: &Call, expected: &str, found: &str) -> Status {
    let path = call.served.storage_path(call.key().as_str());
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: {path}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {expected}, UID in object meta: {found}"
    );
    Status::conflict(&call.served.kind, &call.target.name, why)
}

/// Returns whether a write leaves a terminating object without finalizers and grace period.
fn completes_deletion(kind: &Kind, object: &Value, old: &Value) -> bool {
    let grace = object::meta_value(old, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
    let waits = super::builtin::waits_for_content(kind, object);
    object::is_terminating(old) && object::finalizers(object).next().is_none() && grace == 0 && !waits
}

/// Restores the fields that the endpoint must not change, and increases the generation if
/// the content changes.
fn prepare(kind: &Kind, custom: bool, object: &mut Value, old: &Value, subresource: &str) {
    object::copy_meta(old, object, "generation");
    if subresource == "status" {
        keep_all_but_status(kind, custom, object, old);
    } else if kind.status {
        object::copy_field(old, object, "status");
    }
    super::builtin::prepare_update(kind, object, old, subresource);
    if object::meta(object, "uid").is_empty() {
        object::copy_meta(old, object, "uid");
    }
    object::copy_meta(old, object, "creationTimestamp");
    if object::is_terminating(old) {
        object::copy_meta(old, object, "deletionTimestamp");
        object::copy_meta(old, object, "deletionGracePeriodSeconds");
    }
    if subresource != "status" && bumps(kind, object, old) {
        object::set_meta(object, "generation", object::generation(old) + 1);
    }
}

/// Keeps only the changes that the status endpoint allows: the status and some metadata.
fn keep_all_but_status(kind: &Kind, custom: bool, object: &mut Value, old: &Value) {
    let mut kept = old.clone();
    object::copy_field(object, &mut kept, "status");
    if custom || kind.kind == "CustomResourceDefinition" {
        object::copy_meta(object, &mut kept, "managedFields");
    } else {
        object::copy_field(object, &mut kept, "metadata");
        match (kind.group.as_str(), kind.kind.as_str()) {
            ("apps", "Deployment") => object::copy_meta(old, &mut kept, "labels"),
            ("", "Pod") => object::copy_meta(old, &mut kept, "ownerReferences"),
            _ => {}
        }
    }
    // Validation must compare these fields as the client sent them.
    for field in ["uid", "name", "resourceVersion", "generation"] {
        object::copy_meta(object, &mut kept, field);
    }
    for field in ["apiVersion", "kind"] {
        object::copy_field(object, &mut kept, field);
    }
    *object = kept;
}

/// Returns whether a change increases the generation.
fn bumps(kind: &Kind, object: &Value, old: &Value) -> bool {
    let differs = |field| object::meta_value(object, field) != object::meta_value(old, field);
    match kind.generation {
        Generation::None | Generation::Fixed => false,
        Generation::Content => content_differs(object, old),
        Generation::ContentAndAnnotations => content_differs(object, old) || differs("annotations"),
        Generation::ContentAndLabels => content_differs(object, old) || differs("labels"),
    }
}

/// Returns whether fields other than the metadata and the type differ.
fn content_differs(object: &Value, old: &Value) -> bool {
    let (Some(object), Some(old)) = (object.as_object(), old.as_object()) else { return false };
    let content =
        |(name, _): &(&String, &Value)| !matches!(name.as_str(), "metadata" | "apiVersion" | "kind");
    // No need to exclude the status: `prepare` has restored it if it is a subresource.
    object.iter().filter(content).ne(old.iter().filter(content))
}

/// Returns the resourceVersion of an object that was sent; 0 for none.
fn sent_revision(object: &Value) -> Result<u64, Status> {
    revision(object::meta(object, "resourceVersion")).map_err(|error| {
        // Elsewhere the text starts with the field.
        let start = error.find("strconv").unwrap_or(0);
        Status::unclassified(error.get(start..).unwrap_or_default())
    })
}
