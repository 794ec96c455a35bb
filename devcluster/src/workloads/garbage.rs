//! Garbage collection: deletes objects without owners, and carries out foreground deletion and orphaning.
//!
//! The API server only sets the finalizers of a deletion policy; the requests here do the rest.

use serde_json::{Value, json};

use super::client::Request;
use super::object::Object as _;
use super::view::{Owner, View};
use crate::store::GroupResource;

/// The finalizer of an object that goes after its dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";

/// The finalizer of an object whose dependents stay.
const ORPHAN: &str = "orphan";

/// Whether an object is being deleted and waits for its dependents to go.
pub(super) fn waits_for_dependents(object: &Value) -> bool {
    object.is_deleting() && object.has_finalizer(FOREGROUND)
}

/// Returns the requests about one object: a deletion, or changes of owner references and finalizers.
pub(super) fn decide(view: &View, resource: &GroupResource, object: &Value) -> Vec<Request> {
    if object.is_deleting() {
        if object.has_finalizer(ORPHAN) {
            return orphan(view, resource, object);
        }
        let blocked = || view.dependents(object.uid()).any(|(_, dependent)| blocks(dependent, object.uid()));
        return if object.has_finalizer(FOREGROUND) && !blocked() {
            vec![without_finalizer(resource, object, FOREGROUND)]
        } else {
            Vec::new()
        };
    }
    let owners = object.owners();
    let (mut present, mut waiting) = (0, 0);
    for owner in owners {
        match view.owner(object, owner) {
            Owner::Present(owner) if waits_for_dependents(owner) => waiting += 1,
            Owner::Present(_) => present += 1,
            Owner::Absent => {}
            Owner::Unknown => return Vec::new(),
        }
    }
    if owners.is_empty() || present == owners.len() {
        return Vec::new();
    }
    if present > 0 {
        let stays = |owner: &&Value| matches!(view.owner(object, owner), Owner::Present(o) if !waits_for_dependents(o));
        let kept: Vec<_> = owners.iter().filter(stays).collect();
        return vec![Request::patch_metadata(resource, object, json!({ "ownerReferences": kept }))];
    }
    let mut dependents = view.dependents(object.uid()).map(|(_, dependent)| dependent).peekable();
    if waiting > 0 && dependents.peek().is_some() {
        // A circle of owners that wait for each other would never end.
        let circle = dependents.any(|dependent| waits_for_dependents(dependent));
        let blocking = owners.iter().any(|owner| owner["blockOwnerDeletion"] == true);
        if circle && blocking {
            let mut owners = owners.to_vec();
            for owner in &mut owners {
                owner["blockOwnerDeletion"] = false.into();
            }
            return vec![Request::patch_metadata(resource, object, json!({ "ownerReferences": owners }))];
        }
        return vec![deletion(resource, object, "Foreground")];
    }
    let policy = if object.has_finalizer(ORPHAN) {
        "Orphan"
    } else if object.has_finalizer(FOREGROUND) {
        "Foreground"
    } else {
        "Background"
    };
    vec![deletion(resource, object, policy)]
}

/// Returns the owner references of an object that lead to nothing.
pub(super) fn absent_owners<'a>(view: &View, object: &'a Value) -> impl Iterator<Item = &'a Value> {
    object.owners().iter().filter(|owner| matches!(view.owner(object, owner), Owner::Absent))
}

/// Removes the references to an object from its dependents, then its finalizer.
fn orphan(view: &View, resource: &GroupResource, owner: &Value) -> Vec<Request> {
    let released = view.dependents(owner.uid()).map(|(resource, dependent)| {
        let kept: Vec<_> =
            dependent.owners().iter().filter(|other| other.text("/uid") != owner.uid()).collect();
        Request::patch_metadata(resource, dependent, json!({ "ownerReferences": kept }))
    });
    released.chain([without_finalizer(resource, owner, ORPHAN)]).collect()
}

fn without_finalizer(resource: &GroupResource, object: &Value, finalizer: &str) -> Request {
    let kept: Vec<_> = object.list("/metadata/finalizers").iter().filter(|has| *has != finalizer).collect();
    Request::patch_metadata(resource, object, json!({ "finalizers": kept }))
}

fn deletion(resource: &GroupResource, object: &Value, policy: &str) -> Request {
    let revision = object.at("/metadata/resourceVersion");
    let options = json!({"propagationPolicy": policy, "preconditions": {"resourceVersion": revision}});
    Request::delete(resource, object, options)
}

fn blocks(dependent: &Value, owner: &str) -> bool {
    let reference = dependent.owners().iter().find(|reference| reference.text("/uid") == owner);
    reference.is_some_and(|reference| reference["blockOwnerDeletion"] == true)
}

#[cfg(test)]
mod tests;
