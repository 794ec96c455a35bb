//! Marks a child as controlled by its owner, so that garbage collection takes it along.
//!
//! Refused here is what the API server would accept and then act on badly: a namespaced owner of a child elsewhere is
//! taken for gone, and the child is deleted; of two controllers each undoes what the other does.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use crate::key::{KindId, Request};

/// Why a child cannot be controlled by an owner. None of these goes away by trying again.
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

/// Makes `owner` the controller of `child`: one owner reference with `controller` and `blockOwnerDeletion`, replacing
/// any reference to the same owner. Other owners that do not control it stay.
///
/// # Errors
/// Fails if the owner was not read from a server, lives in another namespace, or the child has another controller;
/// the child is then unchanged.
pub fn set_controller(child: &mut ObjectMeta, owner: &ObjectMeta, kind: &KindId) -> Result<(), OwnerError> {
    let reference = controller_reference(owner, kind)?;
    let child_name = name_of(child);
    if kind.is_namespaced() && owner.namespace != child.namespace {
        return Err(OwnerError::CrossNamespace {
            kind: kind.clone(),
            owner: name_of(owner),
            child: child_name,
        });
    }
    let owners = child.owner_references.get_or_insert_default();
    let other = owners.iter().find(|given| given.controller == Some(true) && given.uid != reference.uid);
    if let Some(other) = other {
        return Err(OwnerError::AlreadyControlled {
            child: child_name,
            other: format!("{} {}", other.kind, other.name),
            uid: other.uid.clone(),
        });
    }
    owners.retain(|given| given.uid != reference.uid);
    owners.push(reference);
    Ok(())
}

/// Returns the reference that marks `owner` as the controller of whatever carries it.
///
/// # Errors
/// Fails if the owner has no name or no uid.
pub fn controller_reference(owner: &ObjectMeta, kind: &KindId) -> Result<OwnerReference, OwnerError> {
    let incomplete = |missing| OwnerError::Incomplete { kind: kind.clone(), owner: name_of(owner), missing };
    let set = |field: &Option<String>| field.clone().filter(|value| !value.is_empty());
    Ok(OwnerReference {
        api_version: kind.api_version(),
        kind: kind.kind().to_owned(),
        name: set(&owner.name).ok_or_else(|| incomplete("metadata.name"))?,
        uid: set(&owner.uid).ok_or_else(|| incomplete("metadata.uid"))?,
        controller: Some(true),
        block_owner_deletion: Some(true),
    })
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

    #[test]
    fn the_owner_becomes_the_only_controller() {
        let mut child = meta(Some("shop"), "web", "c");
        let owner = meta(Some("shop"), "web", "o");
        child.owner_references =
            Some(vec![OwnerReference { uid: "friend".to_owned(), ..Default::default() }]);
        set_controller(&mut child, &owner, &owner_kind()).unwrap();
        set_controller(&mut child, &owner, &owner_kind()).unwrap();
        let owners = child.owner_references.unwrap();
        assert_eq!(owners.len(), 2, "the friend stays and the second call replaces the first: {owners:?}");
        assert_eq!(owners[1], controller_reference(&owner, &owner_kind()).unwrap());
        assert_eq!((owners[1].controller, owners[1].block_owner_deletion), (Some(true), Some(true)));
        assert_eq!(owners[1].api_version, "apps.mainstay.dev/v1alpha1");
    }

    #[test]
    fn a_second_controller_is_refused_by_name() {
        let mut child = meta(Some("shop"), "web", "c");
        set_controller(&mut child, &meta(Some("shop"), "first", "1"), &owner_kind()).unwrap();
        let before = child.clone();
        let error =
            set_controller(&mut child, &meta(Some("shop"), "second", "2"), &owner_kind()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "shop/web is already controlled by WaitDeployment first (uid 1); delete it or remove that owner \
             reference first"
        );
        assert_eq!(child, before);
    }

    #[test]
    fn an_owner_elsewhere_is_refused() {
        let mut elsewhere = meta(Some("bank"), "web", "c");
        let mut cluster_wide = meta(None, "web", "c");
        let owner = meta(Some("shop"), "web", "o");
        for child in [&mut elsewhere, &mut cluster_wide] {
            let error = set_controller(child, &owner, &owner_kind()).unwrap_err();
            assert!(matches!(error, OwnerError::CrossNamespace { .. }), "{error}");
        }
        let cluster_kind = KindId::new("", "v1", "Node", "nodes", false);
        set_controller(&mut elsewhere, &meta(None, "node", "n"), &cluster_kind).unwrap();
    }

    #[test]
    fn an_owner_without_uid_is_refused() {
        let owner = ObjectMeta { uid: None, ..meta(Some("shop"), "web", "") };
        let error = controller_reference(&owner, &owner_kind()).unwrap_err();
        assert!(error.to_string().contains("has no metadata.uid"), "{error}");
    }
}
