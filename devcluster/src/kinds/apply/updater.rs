//! Moves the ownership of fields between managers when an object is written.

use std::sync::LazyLock;

use serde_json::Value;

use super::collect::{field_set, settle, with_named_parents};
use super::comparison::Comparison;
use super::element::Element;
use super::field_set::FieldSet;
use super::managers::{Id, Managers, Owner};
use super::merge::{merge, remove};
use super::{Resource, Writer};
use crate::kinds::Schema;

/// A field that another manager owns with a different value.
#[derive(Debug)]
pub(super) struct Conflict {
    pub(super) manager: Id,
    pub(super) path: Vec<Element>,
}

/// The reason why an apply does not change the entries.
#[derive(Debug)]
pub(super) enum Failure {
    /// Other managers own fields with other values.
    Conflicts(Vec<Conflict>),
    /// The object has fields that a version of one of its entries does not declare.
    Conversion(String),
}

/// Prepares the entries for a write: drops entries of versions that are not served, and adapts field sets
/// that were recorded under an earlier schema.
fn reconcile(resource: &Resource<'_>, live: &Value, managers: &mut Managers) -> Result<(), String> {
    let mut kept = Vec::with_capacity(managers.owners.len());
    for mut owner in std::mem::take(&mut managers.owners) {
        if let Some(schema) = resource.schema_for(&owner.api_version, live)? {
            settle(&mut owner.fields, schema);
            kept.push(owner);
        }
    }
    managers.owners = kept;
    Ok(())
}

/// Takes the changed fields away from all managers except `writer`.
///
/// Returns the conflicts: changed fields that another manager owns. With conflicts, ownership moves only if
/// `force` is set.
///
/// # Errors
///
/// Returns an error if an object has fields that the version of an entry does not declare.
fn transfer(
    resource: &Resource<'_>,
    old: &Value,
    new: &Value,
    own: &Comparison,
    managers: &mut Managers,
    writer: Option<&Id>,
    force: bool,
) -> Result<Vec<Conflict>, String> {
    let mut versions: Vec<(&str, Comparison)> = Vec::new();
    let mut conflicts = Vec::new();
    let mut taken = Vec::new();
    for (index, owner) in managers.owners.iter().enumerate() {
        if writer == Some(&owner.id) {
            continue;
        }
        let comparison = if owner.api_version == resource.api_version {
            own
        } else {
            let position = versions.iter().position(|(version, _)| *version == owner.api_version);
            let position = if let Some(position) = position {
                position
            } else {
                let comparison = compare(resource, &owner.api_version, old, new)?;
                versions.push((&owner.api_version, comparison.without(resource.reset)));
                versions.len() - 1
            };
            &versions[position].1
        };
        let set = comparison.set();
        if set.is_empty() && comparison.removed.is_empty() {
            continue;
        }
        let conflicting = owner.fields.intersection(&set);
        conflicting.each(&mut Vec::new(), &mut |path| {
            conflicts.push(Conflict { manager: owner.id.clone(), path: path.to_vec() });
        });
        taken.push((index, set.union(&comparison.removed)));
    }
    if force || conflicts.is_empty() {
        for (index, changed) in taken {
            let owned = std::mem::take(&mut managers.owners[index].fields);
            managers.owners[index].fields = owned.difference(&changed);
        }
        managers.owners.retain(|owner| !owner.fields.is_empty());
    }
    Ok(conflicts)
}

/// Compares two objects in another version.
fn compare(
    resource: &Resource<'_>,
    api_version: &str,
    old: &Value,
    new: &Value,
) -> Result<Comparison, String> {
    let failed = |error: String| format!("failed to convert new object: {error}");
    let schema = resource.schema_for(api_version, new).map_err(failed)?.unwrap_or(resource.schema);
    let Some(converter) = resource.converter else {
        let (old, new) = (resource.at(api_version, old), resource.at(api_version, new));
        return Ok(Comparison::of(schema, &old, &new));
    };
    let convert = |object| {
        let unknown = || failed("no conversion is known".to_owned());
        converter.convert(object, api_version).ok_or_else(unknown)
    };
    // Both are asked for before the first missing one is an error.
    let (old, new) = (convert(old), convert(new));
    Ok(Comparison::of(schema, &old?, &new?))
}

/// Returns the entries after a plain write: changed fields belong only to the writer.
///
/// # Errors
///
/// Returns an error if an object has fields that the version of an entry does not declare.
pub(super) fn update(
    resource: &Resource<'_>,
    live: &Value,
    new: &Value,
    mut managers: Managers,
    id: Id,
    writer: &Writer<'_>,
) -> Result<Managers, String> {
    reconcile(resource, live, &mut managers)?;
    let comparison = Comparison::of(resource.schema, live, new).without(resource.reset);
    transfer(resource, live, new, &comparison, &mut managers, None, true)?;
    let fields = comparison.set().difference(&NEVER_TRACKED);
    if !fields.is_empty() {
        let fields = match managers.take(&id) {
            Some(earlier) => earlier.fields.union(&fields),
            None => fields,
        };
        let api_version = resource.api_version.to_owned();
        managers.set(Owner { id, api_version, fields, time: Some(writer.now) });
    }
    managers.cap();
    Ok(managers)
}

/// The object and its entries after an apply.
pub(super) struct Applied {
    /// The new object; `None` if it does not change.
    pub(super) object: Option<Value>,
    pub(super) managers: Managers,
}

/// Merges an applied configuration, and removes the fields that its manager no longer applies.
///
/// # Errors
///
/// Returns the conflicts, unless `force` is set, and fields that a version does not declare.
pub(super) fn apply(
    resource: &Resource<'_>,
    live: &Value,
    applied: &Value,
    mut managers: Managers,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Applied, Failure> {
    reconcile(resource, live, &mut managers).map_err(Failure::Conversion)?;
    let id = writer.apply_id();
    let last = managers.take(&id);
    let fields = field_set(resource.schema, applied).without(resource.reset);
    let owner = Owner {
        id: id.clone(),
        api_version: resource.api_version.to_owned(),
        fields,
        time: last.as_ref().and_then(|last| last.time),
    };
    let mut object = without_managed_fields(live);
    merge(resource.schema, &mut object, applied);
    let sent_all = last
        .as_ref()
        .is_none_or(|last| last.api_version == owner.api_version && last.fields.is_subset(&owner.fields));
    managers.set(owner);
    if !sent_all && let Some(last) = last {
        prune(resource, &mut object, &managers, &last)
            .map_err(|error| Failure::Conversion(format!("failed to prune fields: {error}")))?;
    }
    let comparison = Comparison::of(resource.schema, live, &object).without(resource.reset);
    let conflicts = transfer(resource, live, &object, &comparison, &mut managers, Some(&id), force)
        .map_err(Failure::Conversion)?;
    if !force && !conflicts.is_empty() {
        return Err(Failure::Conflicts(conflicts));
    }
    let changed = !same_object(live, &object);
    if let Some(mut owner) = managers.take(&id) {
        owner.fields = owner.fields.difference(&NEVER_TRACKED);
        owner.time = if changed { Some(writer.now) } else { owner.time };
        if !owner.fields.is_empty() {
            managers.set(owner);
        }
    }
    Ok(Applied { object: changed.then_some(object), managers })
}

/// Removes the fields of `last` that the manager no longer applies and that no other manager owns.
fn prune(
    resource: &Resource<'_>,
    object: &mut Value,
    managers: &Managers,
    last: &Owner,
) -> Result<(), String> {
    let same = |version: &str| version == resource.api_version;
    // Only a webhook could convert the fields that another version applied before, so none is removed.
    if last.fields.is_empty() || resource.converter.is_some() && !same(&last.api_version) {
        return Ok(());
    }
    let merged = resource.schema_for(&last.api_version, object);
    let merged = merged
        .map_err(|error| format!("failed to convert merged object to last applied version: {error}"))?;
    let Some(schema) = merged else { return Ok(()) };
    let mut pruned = object.clone();
    remove(schema, &mut pruned, &with_named_parents(&last.fields, Some(schema)));

    // Owned fields are restored, first those of the pruned version.
    let mut versions: Vec<&str> = managers.owners.iter().map(|owner| owner.api_version.as_str()).collect();
    versions.sort_by_key(|version| (*version != last.api_version, *version));
    versions.dedup();
    versions.retain(|version| resource.converter.is_none() || same(version));
    for version in versions {
        let merged = resource.schema_for(version, object).map_err(|error| {
            format!(
                "failed add back owned items: failed to convert merged object at version {version}: {error}"
            )
        })?;
        let Some(schema) = merged else { continue };
        let owned = managers.owners.iter().filter(|owner| owner.api_version == version);
        let owned = owned.fold(FieldSet::default(), |all, owner| all.union(&owner.fields));
        let kept = all_fields(schema, &pruned).union(&with_named_parents(&owned, Some(schema)));
        pruned = object.clone();
        remove(schema, &mut pruned, &all_fields(schema, object).difference(&kept));
    }

    // Only fields of this manager may be removed.
    let gone = all_fields(schema, object).difference(&all_fields(schema, &pruned));
    let last = with_named_parents(&last.fields, Some(schema));
    remove(schema, object, &gone.intersection(&last));
    Ok(())
}

fn all_fields(schema: &Schema, object: &Value) -> FieldSet {
    with_named_parents(&field_set(schema, object), Some(schema))
}

/// The fields that no entry lists.
static NEVER_TRACKED: LazyLock<FieldSet> = LazyLock::new(|| {
    FieldSet::of(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "clusterName"],
        &["metadata", "creationTimestamp"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "resourceVersion"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
    ])
});

/// Returns a copy of the object without `metadata.managedFields`.
pub(super) fn without_managed_fields(object: &Value) -> Value {
    let Some(fields) = object.as_object() else { return object.clone() };
    let copy = fields.iter().map(|(name, value)| match value.as_object() {
        Some(metadata) if name == "metadata" => {
            let kept = metadata.iter().filter(|(name, _)| *name != "managedFields");
            (name.clone(), kept.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        _ => (name.clone(), value.clone()),
    });
    Value::Object(copy.collect())
}

/// Returns whether the object equals `live`, ignoring `metadata.managedFields`, which only `live` has.
fn same_object(live: &Value, object: &Value) -> bool {
    let (Some(live), Some(object)) = (live.as_object(), object.as_object()) else { return false };
    live.len() == object.len()
        && live.iter().all(|(name, live)| match (object.get(name), live.as_object()) {
            (Some(Value::Object(object)), Some(live)) if name == "metadata" => {
                let tracked = usize::from(live.contains_key("managedFields"));
                live.len() == object.len() + tracked
                    && object.iter().all(|(name, value)| {
                        live.get(name).is_some_and(|live| super::shape::same(live, value))
                    })
            }
            (Some(object), _) => super::shape::same(live, object),
            (None, _) => false,
        })
}
