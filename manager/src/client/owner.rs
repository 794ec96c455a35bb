//! Owner references: garbage collection deletes an object together with its owner.
//!
//! These functions refuse references that the API server accepts but that do harm: the owner of a child in
//! another namespace counts as deleted, so the child is deleted; two controllers of one child undo each
//! other's writes.
//!
//! Differs from controllerutil in comparing references: two are the same if the owner's uid is, in any
//! version of its group and under any name. A controller of the same name with another uid is an earlier
//! object, or the cache is stale; overwriting its reference with a stale uid would get the child deleted.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::key::{Key as _, KindId, NamespacedName};

/// The end of the error text about a child without a namespace, which a namespaced owner cannot own.
const NO_NAMESPACE: &str =
    ", which has no namespace: set metadata.namespace first, or let a cluster-scoped object own it";

/// The reason why an object cannot own another one. A retry helps only after one of the two objects has
/// changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The owner has no name or no uid: it was not read from the API server.
    #[error(
        "{kind} {owner} cannot own anything: it has no {missing}; use the object as the API server returned \
         it"
    )]
    Incomplete {
        /// Kind of the object that cannot own the child.
        kind: KindId,
        /// Namespace and name of the object that cannot own the child.
        owner: NamespacedName,
        /// The field of the owner that is not set, such as `metadata.uid`.
        missing: &'static str,
    },
    /// A namespaced object can own only objects in its own namespace. The child is in another namespace, or
    /// has none: it is cluster-scoped, or its namespace is not set yet.
    #[error("{kind} {owner} cannot own {child}{why}")]
    Elsewhere {
        /// Kind of the object that cannot own the child.
        kind: KindId,
        /// Namespace and name of the object that cannot own the child.
        owner: NamespacedName,
        /// Namespace and name of the child, the object to be owned.
        child: NamespacedName,
        /// The end of the error text: whether the child is in another namespace or has none.
        why: &'static str,
    },
    /// The child already has another controller among its owners.
    #[error(
        "{child} is already controlled by {other} (uid {uid}); delete it or remove that owner reference first"
    )]
    AlreadyControlled {
        /// Namespace and name of the child, the object to be owned.
        child: NamespacedName,
        /// Kind and name of the child's present controller.
        other: String,
        /// The uid of the child's present controller.
        uid: String,
    },
}

/// Makes `owner` the controller of `child`: one owner reference with `controller` and `blockOwnerDeletion`.
/// An existing reference to the same owner is updated in place; owners that do not control the child stay.
/// Returns whether the references changed.
///
/// ```
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use kube::Resource;
/// use mainstay::client::set_controller_reference;
/// use mainstay::key::KindId;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mut owner = ConfigMap::default();
/// owner.meta_mut().name = Some("settings".to_owned());
/// owner.meta_mut().namespace = Some("shop".to_owned());
/// let mut child = Secret::default();
/// child.meta_mut().namespace = Some("shop".to_owned());
///
/// let kind = KindId::of::<ConfigMap>();
/// let refused = set_controller_reference(child.meta_mut(), owner.meta(), &kind).unwrap_err();
/// assert_eq!(
///     refused.to_string(),
///     "ConfigMap shop/settings cannot own anything: it has no metadata.uid; \
///      use the object as the API server returned it"
/// );
///
/// owner.meta_mut().uid = Some("7d0f".to_owned());
/// assert!(set_controller_reference(child.meta_mut(), owner.meta(), &kind)?);
/// assert!(!set_controller_reference(child.meta_mut(), owner.meta(), &kind)?, "already set");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails if the owner was not read from the API server or is in another namespace, or if the child has
/// another controller; the child is then unchanged.
pub fn set_controller_reference(
    child: &mut ObjectMeta,
    owner: &ObjectMeta,
    kind: &KindId,
) -> Result<bool, OwnerError> {
    let reference = controller_reference(owner, kind, &name_of(child))?;
    if let Some(other) = controller_of(child).filter(|other| other.uid != reference.uid) {
        return Err(OwnerError::AlreadyControlled {
            child: name_of(child),
            other: format!("{} {}", other.kind, other.name),
            uid: other.uid.clone(),
        });
    }
    Ok(put(child, reference))
}

/// Makes `owner` one of the owners of `child`, without `controller` and `blockOwnerDeletion`; if it was the
/// controller, it no longer is. A child is deleted after its last owner. Returns whether the references
/// changed.
///
/// # Errors
/// As [`set_controller_reference`], but a child may have any number of such owners.
pub fn set_owner_reference(
    child: &mut ObjectMeta,
    owner: &ObjectMeta,
    kind: &KindId,
) -> Result<bool, OwnerError> {
    let reference = owner_reference(owner, kind)?;
    may_own(&name_of(child), owner, kind)?;
    Ok(put(child, reference))
}

/// Removes from `child` every owner reference with this uid. Returns whether there was one.
pub fn remove_owner_reference(child: &mut ObjectMeta, owner_uid: &str) -> bool {
    let Some(owners) = &mut child.owner_references else { return false };
    let before = owners.len();
    owners.retain(|given| given.uid != owner_uid);
    before != owners.len()
}

/// Returns whether `child` has an owner reference with this uid.
pub fn has_owner_reference(child: &ObjectMeta, owner_uid: &str) -> bool {
    child.owner_references.iter().flatten().any(|given| given.uid == owner_uid)
}

/// Returns the owner reference of the child's controller; `None` if it has no controller.
pub fn controller_of(child: &ObjectMeta) -> Option<&OwnerReference> {
    child.owner_references.iter().flatten().find(|given| given.controller == Some(true))
}

/// Returns the reference that marks `owner` as the controller of `child`, to be put into an applied object.
/// The API server refuses the apply (422) if the child has another controller.
///
/// # Errors
/// Fails if the owner has no name or no uid, or is in another namespace than the child.
pub fn controller_reference(
    owner: &ObjectMeta,
    kind: &KindId,
    child: &NamespacedName,
) -> Result<OwnerReference, OwnerError> {
    let plain = owner_reference(owner, kind)?;
    may_own(child, owner, kind)?;
    Ok(OwnerReference { controller: Some(true), block_owner_deletion: Some(true), ..plain })
}

/// Returns an owner reference to `owner` that does not make it the controller. Fails if its name or uid is
/// not set.
fn owner_reference(owner: &ObjectMeta, kind: &KindId) -> Result<OwnerReference, OwnerError> {
    let incomplete = |missing| OwnerError::Incomplete { kind: kind.clone(), owner: name_of(owner), missing };
    let set = |field: &Option<String>| field.clone().filter(|value| !value.is_empty());
    Ok(OwnerReference {
        api_version: kind.api_version(),
        kind: kind.kind().to_owned(),
        name: set(&owner.name).ok_or_else(|| incomplete("metadata.name"))?,
        uid: set(&owner.uid).ok_or_else(|| incomplete("metadata.uid"))?,
        controller: None,
        block_owner_deletion: None,
    })
}

/// Fails unless the owner is cluster-scoped, or in the namespace of the child.
fn may_own(child: &NamespacedName, owner: &ObjectMeta, kind: &KindId) -> Result<(), OwnerError> {
    let why = match child.namespace() {
        _ if !kind.is_namespaced() => return Ok(()),
        None => NO_NAMESPACE,
        namespace if namespace == owner.namespace.as_deref() => return Ok(()),
        Some(_) => ": an owner in a namespace can own only within that namespace",
    };
    Err(OwnerError::Elsewhere { kind: kind.clone(), owner: name_of(owner), child: child.clone(), why })
}

/// Puts an owner reference into the child's metadata: replaces the first reference to the same owner and
/// removes further ones, or appends the reference. Returns whether the references changed.
fn put(child: &mut ObjectMeta, reference: OwnerReference) -> bool {
    let owners = child.owner_references.get_or_insert_default();
    let before = owners.clone();
    let first = owners.iter().position(|given| given.uid == reference.uid);
    owners.retain(|given| given.uid != reference.uid);
    owners.insert(first.unwrap_or(owners.len()), reference);
    *owners != before
}

/// Returns the namespace and name in an object's metadata.
pub(crate) fn name_of(meta: &ObjectMeta) -> NamespacedName {
    NamespacedName::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests;
