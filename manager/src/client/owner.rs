//! Says whose child an object is, so that garbage collection takes it along.
//!
//! Refused here is what the API server would accept and then act on badly: a namespaced owner of a child elsewhere is
//! taken for gone, and the child is deleted; of two controllers each undoes what the other does.
//!
//! Differs from controllerutil in what makes two references the same: the owner's uid, whatever version of its group
//! names it, and not its name. A controller of the same name with another uid is an earlier object, or the cache
//! still shows one; overwriting its reference with a stale uid would have the child collected.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::key::{Key as _, KindId, Request};

/// Why an object cannot own another. Trying again helps only after somebody has changed one of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnerError {
    /// The owner has no name or no uid: it was not read from a server.
    #[error(
        "{kind} {owner} cannot own anything: it has no {missing}; use the object as the API server returned it"
    )]
    Incomplete {
        /// Kind of the owner.
        kind: KindId,
        /// The owner.
        owner: Request,
        /// The field that is not set.
        missing: &'static str,
    },
    /// A namespaced owner can own only in its own namespace.
    #[error("{kind} {owner} cannot own {child}: an owner in a namespace can own only within that namespace")]
    CrossNamespace {
        /// Kind of the owner.
        kind: KindId,
        /// The owner.
        owner: Request,
        /// The child.
        child: Request,
    },
    /// The child has no namespace: it is cluster-scoped, or its namespace is not set yet.
    #[error(
        "{kind} {owner} cannot own {child}, which has no namespace: set metadata.namespace first, or let a \
         cluster-scoped object own it"
    )]
    ClusterScoped {
        /// Kind of the owner.
        kind: KindId,
        /// The owner.
        owner: Request,
        /// The child.
        child: Request,
    },
    /// The child has another controller.
    #[error(
        "{child} is already controlled by {other} (uid {uid}); delete it or remove that owner reference first"
    )]
    AlreadyControlled {
        /// The child.
        child: Request,
        /// Kind and name of its controller.
        other: String,
        /// The uid of its controller.
        uid: String,
    },
}

/// Makes `owner` the controller of `child`: one owner reference with `controller` and `blockOwnerDeletion`. A reference
/// to the same owner is brought up to date where it stands; owners that do not control the child stay. Returns whether
/// anything changed.
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
///     "ConfigMap shop/settings cannot own anything: it has no metadata.uid; use the object as the API server returned it"
/// );
///
/// owner.meta_mut().uid = Some("7d0f".to_owned());
/// assert!(set_controller_reference(child.meta_mut(), owner.meta(), &kind)?);
/// assert!(!set_controller_reference(child.meta_mut(), owner.meta(), &kind)?, "nothing left to change");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails if the owner was not read from a server, lives in another namespace, or the child has another controller;
/// the child is then unchanged.
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

/// Makes `owner` one of the owners of `child`, without control and without holding up its own deletion. A child goes
/// when its last owner has gone. Returns whether anything changed; of a controller, that it controls is taken away.
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

/// Takes away every reference to the owner of this uid. Returns whether there was one.
pub fn remove_owner_reference(child: &mut ObjectMeta, owner_uid: &str) -> bool {
    let Some(owners) = &mut child.owner_references else { return false };
    let before = owners.len();
    owners.retain(|given| given.uid != owner_uid);
    before != owners.len()
}

/// Returns whether the owner of this uid is among the owners.
pub fn has_owner_reference(child: &ObjectMeta, owner_uid: &str) -> bool {
    child.owner_references.iter().flatten().any(|given| given.uid == owner_uid)
}

/// Returns the owner that controls the child.
pub fn controller_of(child: &ObjectMeta) -> Option<&OwnerReference> {
    child.owner_references.iter().flatten().find(|given| given.controller == Some(true))
}

/// Returns the reference that marks `owner` as the controller of `child`: for what is applied, which names only its own
/// fields. A child that has another controller is refused by the server then (422).
///
/// # Errors
/// Fails if the owner has no name or no uid, or lives in another namespace than the child.
pub fn controller_reference(
    owner: &ObjectMeta,
    kind: &KindId,
    child: &Request,
) -> Result<OwnerReference, OwnerError> {
    let plain = owner_reference(owner, kind)?;
    may_own(child, owner, kind)?;
    Ok(OwnerReference { controller: Some(true), block_owner_deletion: Some(true), ..plain })
}

/// Returns the reference to an owner that does not control.
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

/// A cluster-scoped owner may own anything, any other within its namespace.
fn may_own(child: &Request, owner: &ObjectMeta, kind: &KindId) -> Result<(), OwnerError> {
    let (kind_of_owner, owner_name, child_name) = (kind.clone(), name_of(owner), child.clone());
    match child.namespace().filter(|namespace| !namespace.is_empty()) {
        _ if !kind.is_namespaced() => Ok(()),
        None => Err(OwnerError::ClusterScoped { kind: kind_of_owner, owner: owner_name, child: child_name }),
        namespace if namespace != owner.namespace.as_deref() => {
            Err(OwnerError::CrossNamespace { kind: kind_of_owner, owner: owner_name, child: child_name })
        }
        Some(_) => Ok(()),
    }
}

/// Puts the reference where one to the same owner stands, or last; a second one to it goes.
fn put(child: &mut ObjectMeta, reference: OwnerReference) -> bool {
    let owners = child.owner_references.get_or_insert_default();
    let before = owners.clone();
    match owners.iter().position(|given| given.uid == reference.uid) {
        None => owners.push(reference),
        Some(first) => {
            let uid = reference.uid.clone();
            owners[first] = reference;
            let mut at = 0..;
            owners.retain(|given| at.next() == Some(first) || given.uid != uid);
        }
    }
    *owners != before
}

fn name_of(meta: &ObjectMeta) -> Request {
    Request::new(meta.namespace.as_deref(), meta.name.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(namespace: Option<&str>, name: &str, uid: &str) -> ObjectMeta {
        ObjectMeta {
            namespace: namespace.map(str::to_owned),
            name: Some(name.to_owned()),
            uid: Some(uid.to_owned()),
            ..ObjectMeta::default()
        }
    }

    fn owner_kind() -> KindId {
        KindId::new("apps.mainstay.dev", "v1alpha1", "WaitDeployment", "waitdeployments", true)
    }

    fn child_name() -> Request {
        Request::namespaced("shop", "web")
    }

    #[test]
    fn a_reference_for_an_apply_is_refused_as_one_in_an_edit_is() {
        let owner = meta(Some("shop"), "web", "o");
        let refused = |child: &Request| controller_reference(&owner, &owner_kind(), child).unwrap_err();
        let error = refused(&Request::namespaced("bank", "web"));
        assert!(matches!(error, OwnerError::CrossNamespace { .. }), "{error}");
        let error = refused(&Request::new(None, "web"));
        assert!(matches!(error, OwnerError::ClusterScoped { .. }), "{error}");
    }

    #[test]
    fn the_owner_becomes_the_only_controller() {
        let mut child = meta(Some("shop"), "web", "c");
        let owner = meta(Some("shop"), "web", "o");
        child.owner_references =
            Some(vec![OwnerReference { uid: "friend".to_owned(), ..Default::default() }]);
        set_controller_reference(&mut child, &owner, &owner_kind()).unwrap();
        set_controller_reference(&mut child, &owner, &owner_kind()).unwrap();
        let owners = child.owner_references.unwrap();
        assert_eq!(owners.len(), 2, "the friend stays and the second call replaces the first: {owners:?}");
        assert_eq!(owners[1], controller_reference(&owner, &owner_kind(), &child_name()).unwrap());
        assert_eq!((owners[1].controller, owners[1].block_owner_deletion), (Some(true), Some(true)));
        assert_eq!(owners[1].api_version, "apps.mainstay.dev/v1alpha1");
    }

    #[test]
    fn a_second_controller_is_refused_by_name() {
        let mut child = meta(Some("shop"), "web", "c");
        set_controller_reference(&mut child, &meta(Some("shop"), "first", "1"), &owner_kind()).unwrap();
        let before = child.clone();
        let error = set_controller_reference(&mut child, &meta(Some("shop"), "second", "2"), &owner_kind())
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "shop/web is already controlled by WaitDeployment first (uid 1); delete it or remove that owner \
             reference first"
        );
        assert_eq!(child, before);
    }

    #[test]
    fn an_owner_elsewhere_is_refused() {
        let owner = meta(Some("shop"), "web", "o");
        for set in [set_controller_reference, set_owner_reference] {
            let mut elsewhere = meta(Some("bank"), "web", "c");
            let error = set(&mut elsewhere, &owner, &owner_kind()).unwrap_err();
            assert!(matches!(error, OwnerError::CrossNamespace { .. }), "{error}");
            let mut cluster_wide = meta(None, "web", "c");
            let error = set(&mut cluster_wide, &owner, &owner_kind()).unwrap_err();
            assert!(matches!(error, OwnerError::ClusterScoped { .. }), "{error}");
            assert_eq!((elsewhere.owner_references, cluster_wide.owner_references), (None, None));
        }
    }

    #[test]
    fn a_cluster_scoped_owner_may_own_anything() {
        let node = KindId::new("", "v1", "Node", "nodes", false);
        for mut child in [meta(Some("shop"), "web", "c"), meta(None, "web", "c")] {
            assert!(set_controller_reference(&mut child, &meta(None, "node", "n"), &node).unwrap());
        }
    }

    #[test]
    fn another_version_of_the_group_updates_the_same_owner_in_place() {
        let mut child = meta(Some("shop"), "web", "c");
        let owner = meta(Some("shop"), "web", "o");
        let newer = KindId::new("apps.mainstay.dev", "v1", "WaitDeployment", "waitdeployments", true);
        set_controller_reference(&mut child, &owner, &owner_kind()).unwrap();
        set_owner_reference(&mut child, &meta(Some("shop"), "friend", "f"), &owner_kind()).unwrap();
        assert!(set_controller_reference(&mut child, &owner, &newer).unwrap());
        assert!(!set_controller_reference(&mut child, &owner, &newer).unwrap(), "nothing left to change");
        let owners = child.owner_references.unwrap();
        let told: Vec<_> = owners.iter().map(|given| (&*given.uid, &*given.api_version)).collect();
        assert_eq!(told, [("o", "apps.mainstay.dev/v1"), ("f", "apps.mainstay.dev/v1alpha1")]);
    }

    #[test]
    fn many_owners_may_share_a_child_without_control() {
        let mut child = meta(Some("shop"), "web", "c");
        for uid in ["1", "2"] {
            assert!(set_owner_reference(&mut child, &meta(Some("shop"), uid, uid), &owner_kind()).unwrap());
        }
        assert_eq!(controller_of(&child), None);
        set_controller_reference(&mut child, &meta(Some("shop"), "2", "2"), &owner_kind()).unwrap();
        assert_eq!(controller_of(&child).map(|owner| &*owner.name), Some("2"));
        set_owner_reference(&mut child, &meta(Some("shop"), "2", "2"), &owner_kind()).unwrap();
        assert_eq!(controller_of(&child), None, "it controls no more");
    }

    #[test]
    fn removing_an_owner_reports_whether_it_was_one() {
        let mut child = meta(Some("shop"), "web", "c");
        assert!(!remove_owner_reference(&mut child, "1"));
        set_owner_reference(&mut child, &meta(Some("shop"), "first", "1"), &owner_kind()).unwrap();
        assert!(has_owner_reference(&child, "1") && !has_owner_reference(&child, "2"));
        assert!(!remove_owner_reference(&mut child, "2"));
        assert!(remove_owner_reference(&mut child, "1"));
        assert!(!has_owner_reference(&child, "1"));
    }

    #[test]
    fn an_owner_of_the_same_name_with_another_uid_is_another_owner() {
        let mut child = meta(Some("shop"), "web", "c");
        set_controller_reference(&mut child, &meta(Some("shop"), "web", "old"), &owner_kind()).unwrap();
        let error = set_controller_reference(&mut child, &meta(Some("shop"), "web", "new"), &owner_kind());
        assert!(matches!(error, Err(OwnerError::AlreadyControlled { .. })), "{error:?}");
    }

    #[test]
    fn an_owner_without_uid_is_refused() {
        let owner = ObjectMeta { uid: None, ..meta(Some("shop"), "web", "") };
        let error = controller_reference(&owner, &owner_kind(), &child_name()).unwrap_err();
        assert!(error.to_string().contains("has no metadata.uid"), "{error}");
    }
}
