//! Server-side apply, and the ownership of fields that every write records in `metadata.managedFields`.
//!
//! A manager owns the fields that it applied or changed. [`apply`] merges a configuration into an object,
//! refuses to change fields of other managers, and removes fields that its manager no longer applies.
//! [`update`] records the changes of a plain write, which never conflicts. The algorithm is that of
//! [structured-merge-diff](https://github.com/kubernetes-sigs/structured-merge-diff).
//!
//! Objects are in the version of the request. The order of these functions and defaulting matters: an object
//! that is created, replaced or patched has its defaults before [`update`], so its manager owns them; an
//! applied configuration has no defaults, and the result of [`apply`] gets them afterwards.
//!
//! A conflict names the field and its owner:
//!
//! ```
//! use jiff::Timestamp;
//! use mainstay_devcluster::kinds::apply::{ApplyError, FieldSet, Resource, Writer, apply};
//! use mainstay_devcluster::kinds::{Form, Schema};
//! use serde_json::json;
//!
//! let schema = Schema { form: Form::Any, nullable: false, default: None, checks: None };
//! let resource = Resource {
//!     kind: "Widget",
//!     api_version: "example.com/v1",
//!     schema: &schema,
//!     other_versions: &[],
//!     convert: None,
//!     converter: None,
//!     empty: &json!({}),
//!     reset: &FieldSet::default(),
//! };
//! let widget = |size| {
//!     json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "size": size})
//! };
//! let writer = |manager| Writer { manager, subresource: None, now: Timestamp::UNIX_EPOCH };
//!
//! let live = apply(&resource, None, &widget(1), &writer("alice"), false)?;
//! let error = apply(&resource, Some(&live), &widget(2), &writer("bob"), false).unwrap_err();
//! assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"alice\": .size");
//! # Ok::<(), ApplyError>(())
//! ```

mod collect;
mod comparison;
mod element;
mod field_set;
mod last_applied;
mod managers;
mod merge;
mod scale;
mod shape;
mod updater;

use std::borrow::Cow;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use self::managers::{Id, Managers};
use self::updater::{Applied, Conflict, Failure};
use crate::kinds::Schema;

pub use self::field_set::FieldSet;
pub use self::scale::Scale;

/// The manager that owns the existing fields of an object without entries after the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The endpoint that receives a write.
#[derive(Clone, Copy, Debug)]
pub struct Resource<'a> {
    /// The kind of the object, as in `Deployment`.
    pub kind: &'a str,
    /// The version of the request, as in `apps/v1`.
    pub api_version: &'a str,
    /// The schema of the whole object in that version, with `apiVersion`, `kind` and `metadata`.
    pub schema: &'a Schema,
    /// The other served versions of the kind, by name. Entries of versions that are not served are dropped.
    pub other_versions: &'a [(&'a str, &'a Schema)],
    /// Converts an object to another version; `None` if all versions have the same fields.
    pub convert: Option<fn(&mut Value, &str)>,
    /// An object without any values: `{}` for a custom resource; for a built-in kind the JSON that the server
    /// writes for the zero value of the Go type, as in
    /// `{"metadata":{},"spec":{"containers":null},"status":{}}`. A created object does not own the fields
    /// that are in it.
    pub empty: &'a Value,
    /// Fields that a write to this endpoint never changes, such as `status` of the main endpoint.
    pub reset: &'a FieldSet,
    /// Converts objects to other versions; `None` if versions differ in nothing but their names.
    pub converter: Option<&'a dyn Converter>,
}

/// The conversion of objects to other versions of their kind.
pub trait Converter: std::fmt::Debug {
    /// Returns an object in another version; `None` if it is not known yet.
    fn convert(&self, object: &Value, api_version: &str) -> Option<Value>;
}

/// The author of a write.
#[derive(Clone, Copy, Debug)]
pub struct Writer<'a> {
    /// The name of the field manager; an empty name counts as `unknown`.
    pub manager: &'a str,
    /// The subresource that receives the write; `None` for the main endpoint.
    pub subresource: Option<&'a str>,
    /// The time that new and changed entries record.
    pub now: Timestamp,
}

/// The reason why a configuration was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// Other managers own fields of the configuration with other values: status 409, reason `Conflict`.
    #[error("{message}")]
    Conflict {
        /// The message of the status, with all conflicts.
        message: String,
        /// The causes, each with reason `FieldManagerConflict`.
        causes: Vec<ConflictCause>,
    },
    /// The configuration is not allowed: status 400, reason `BadRequest`.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration or the object does not follow the schema: status 500.
    #[error("{0}")]
    Internal(String),
}

/// One field in conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictCause {
    /// The manager, as in `conflict with "kubectl" using apps/v1`.
    pub message: String,
    /// The path of the field, as in `.spec.replicas`.
    pub field: String,
}

/// Returns the object after a configuration was applied to it, with new `metadata.managedFields`.
///
/// `live` is `None` when the apply creates the object. When the object does not change, the result equals
/// `live` unless the manager's own entry changes.
///
/// # Errors
///
/// Returns the status that the request fails with.
pub fn apply(
    resource: &Resource<'_>,
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let live = live.unwrap_or(resource.empty);
    let mut managers = Managers::decode(managed_fields(live))
        .map_err(|error| ApplyError::Internal(format!("failed to decode managed fields: {error}")))?;
    let text = |name| applied.get(name).and_then(Value::as_str).unwrap_or_default();
    if text("apiVersion") != resource.api_version || text("kind") != resource.kind {
        let kind = kind_text(text("apiVersion"), text("kind"));
        return Err(ApplyError::BadRequest(format!("invalid object type: {kind}")));
    }
    if managed_fields(applied).is_array() {
        return Err(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned()));
    }
    let invalid = |what: &str, object: &Value, error: String| {
        ApplyError::Internal(format!(
            "failed to create typed {what} object ({}): {error}",
            resource.name(object)
        ))
    };
    collect::validate(resource.schema, applied, false).map_err(|error| invalid("patch", applied, error))?;
    collect::validate(resource.schema, live, true).map_err(|error| invalid("live", live, error))?;

    if managers.owners.is_empty() {
        let first = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        let id = first.update_id(resource);
        managers = updater::update(resource, resource.empty, live, managers, id, &first)
            .map_err(ApplyError::Internal)?;
    }
    let spare = (writer.manager == last_applied::KUBECTL).then(|| managers.clone());
    let outcome = match (updater::apply(resource, live, applied, managers, writer, force), spare) {
        (Err(Failure::Conflicts(conflicts)), Some(managers)) => {
            let rest = last_applied::without_allowed(resource, live, conflicts);
            match rest.as_slice() {
                [] => updater::apply(resource, live, applied, managers, writer, true),
                _ => Err(Failure::Conflicts(rest)),
            }
        }
        (outcome, _) => outcome,
    };
    let Applied { object, managers } = outcome.map_err(|failure| match failure {
        Failure::Conflicts(conflicts) => conflict(conflicts),
        Failure::Conversion(error) => ApplyError::Internal(error),
    })?;
    let mut object = object.unwrap_or_else(|| updater::without_managed_fields(live));
    if writer.manager == last_applied::KUBECTL {
        last_applied::refresh(&mut object, applied);
    }
    set_managed_fields(&mut object, managers);
    Ok(object)
}

/// Returns the object of a plain write (create, replace, or any patch but apply) with new
/// `metadata.managedFields`.
///
/// `new` is the object after defaulting; `live` is `None` when the write creates it. A valid `managedFields`
/// value in `new` replaces the recorded one, and `[]` or `[{}]` drops all entries (custom resources lose an
/// empty list when they are decoded, so only `[{}]` drops theirs). When the object does not change, the
/// entries stay as they are.
#[must_use]
pub fn update(resource: &Resource<'_>, live: Option<&Value>, mut new: Value, writer: &Writer<'_>) -> Value {
    let creating = live.is_none_or(|live| live.pointer("/metadata/uid").is_none());
    let live = live.unwrap_or(resource.empty);
    let sent = take_managed_fields(&mut new);
    let recorded = || Managers::decode(managed_fields(live)).unwrap_or_default();
    let managers = match sent {
        _ if writer.subresource.is_some() => recorded(),
        Some(sent) if managers::is_reset(&sent) => Managers::default(),
        Some(sent) => match Managers::decode(&sent) {
            Ok(managers) if !managers.owners.is_empty() => managers,
            _ => recorded(),
        },
        None => recorded(),
    };
    let valid = |object| collect::validate(resource.schema, object, true).is_ok();
    if (managers.owners.is_empty() && !creating) || !valid(&new) || !valid(live) {
        // Objects without entries stay untracked, and so do objects that do not follow the schema.
        return new;
    }
    let id = writer.update_id(resource);
    // Without the entries, the object becomes untracked.
    if let Ok(managers) = updater::update(resource, live, &new, managers, id, writer) {
        set_managed_fields(&mut new, managers);
    }
    new
}

/// Replaces the times in `metadata.managedFields` of `new` by those of `old` if the objects differ only in
/// them.
///
/// Must run last, because earlier steps of a write may have reverted its changes.
pub fn keep_times(old: &Value, new: &mut Value) {
    let same_entry = |one: &Value, other: &Value| match (one.as_object(), other.as_object()) {
        (Some(one), Some(other)) => {
            let stays = |(name, _): &(&String, &Value)| *name != "time";
            one.iter().filter(stays).eq(other.iter().filter(stays))
        }
        _ => one == other,
    };
    let same_entries = |one: &Value, other: &Value| match (one.as_array(), other.as_array()) {
        (Some(one), Some(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same_entry(one, other))
        }
        _ => one == other,
    };
    let same_metadata = |one: &Value, other: &Value| equal_but(one, other, "managedFields", same_entries);
    if equal_but(old, new, "metadata", same_metadata) {
        old.clone_into(new);
    }
}

/// Returns whether two objects are equal, where `same` compares the values of one field.
fn equal_but(one: &Value, other: &Value, field: &str, same: impl Fn(&Value, &Value) -> bool) -> bool {
    let (Some(one), Some(other)) = (one.as_object(), other.as_object()) else { return one == other };
    one.len() == other.len()
        && one.iter().all(|(name, value)| {
            other.get(name).is_some_and(|twin| if name == field { same(value, twin) } else { value == twin })
        })
}

impl<'a> Resource<'a> {
    fn schema_of(&self, api_version: &str) -> Option<&'a Schema> {
        if api_version == self.api_version {
            return Some(self.schema);
        }
        self.other_versions.iter().find(|(version, _)| *version == api_version).map(|(_, schema)| *schema)
    }

    /// Returns the schema of a version for an object in the version of the request; `None` if the version is
    /// not served.
    ///
    /// # Errors
    ///
    /// Returns the reason why the object does not follow the schema.
    fn schema_for(&self, api_version: &str, object: &Value) -> Result<Option<&'a Schema>, String> {
        let schema = self.schema_of(api_version);
        match schema.filter(|_| api_version != self.api_version && self.converter.is_none()) {
            Some(other) => collect::validate(other, &self.at(api_version, object), false).map(|()| schema),
            None => Ok(schema),
        }
    }

    /// Returns an object in another version.
    fn at<'v>(&self, api_version: &str, object: &'v Value) -> Cow<'v, Value> {
        let Some(convert) = self.convert.filter(|_| api_version != self.api_version) else {
            return Cow::Borrowed(object);
        };
        let mut converted = object.clone();
        convert(&mut converted, api_version);
        Cow::Owned(converted)
    }

    /// Returns the object in the form that messages use: `default/web; apps/v1, Kind=Deployment`.
    fn name(&self, object: &Value) -> String {
        let text = |path| object.pointer(path).and_then(Value::as_str).unwrap_or_default();
        let kind = kind_text(self.api_version, self.kind);
        format!("{}/{}; {kind}", text("/metadata/namespace"), text("/metadata/name"))
    }
}

impl Writer<'_> {
    fn apply_id(&self) -> Id {
        Id {
            manager: if self.manager.is_empty() { "unknown" } else { self.manager }.to_owned(),
            update: None,
            subresource: self.subresource.unwrap_or_default().to_owned(),
        }
    }

    fn update_id(&self, resource: &Resource<'_>) -> Id {
        Id { update: Some(resource.api_version.to_owned()), ..self.apply_id() }
    }
}

/// Returns the kind in the form that messages use: `apps/v1, Kind=Deployment`, and `/v1, Kind=Pod` in the
/// core group.
fn kind_text(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

fn conflict(mut conflicts: Vec<Conflict>) -> ApplyError {
    conflicts.sort_by_cached_key(|conflict| conflict.manager.order());
    let text = |conflict: &Conflict| (conflict.manager.display(), field_set::display(&conflict.path));
    let causes = conflicts
        .iter()
        .map(text)
        .map(|(manager, field)| ConflictCause { message: format!("conflict with {manager}"), field });
    let message = match conflicts.as_slice() {
        [one] => {
            let (manager, field) = text(one);
            format!("Apply failed with 1 conflict: conflict with {manager}: {field}")
        }
        many => {
            let mut managers: BTreeMap<String, Vec<String>> = BTreeMap::new();
            for conflict in many {
                let lines = managers
                    .entry(conflict.manager.order())
                    .or_insert_with(|| vec![format!("conflicts with {}:", conflict.manager.display())]);
                lines.push(format!("- {}", field_set::display(&conflict.path)));
            }
            let lines: Vec<_> = managers.into_values().flatten().collect();
            format!("Apply failed with {} conflicts: {}", many.len(), lines.join("\n"))
        }
    };
    ApplyError::Conflict { causes: causes.collect(), message }
}

fn managed_fields(object: &Value) -> &Value {
    object.pointer("/metadata/managedFields").unwrap_or(&Value::Null)
}

fn take_managed_fields(object: &mut Value) -> Option<Value> {
    object.get_mut("metadata")?.as_object_mut()?.remove("managedFields")
}

fn set_managed_fields(object: &mut Value, managers: Managers) {
    if let Some(entries) = managers.encode()
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("managedFields".to_owned(), entries);
    }
}

#[cfg(test)]
mod tests;
