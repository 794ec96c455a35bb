//! Maps a change of an object to the items that have to be reconciled.

use std::sync::Arc;

use serde_json::Value;

use super::endpoints::SERVICE_NAME;
use super::garbage::{FOREGROUND, waits_for_dependents};
use super::namespace::ROOT_CA;
use super::object::{Object as _, has_ended, is_subset, selects};
use super::resources;
use super::view::{Name, View};
use super::work::Item;
use crate::store::GroupResource;

/// A change of an object: `old` is `None` for a creation, `new` is `None` for a deletion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) resource: &'a GroupResource,
    pub(super) old: Option<&'a Arc<Value>>,
    pub(super) new: Option<&'a Arc<Value>>,
}

/// Passes the items to reconcile after a change to `add`. `view` contains the new state.
pub(super) fn of(view: &View, change: Change<'_>, add: &mut impl FnMut(Item)) {
    garbage(view, change, add);
    let states = || change.old.into_iter().chain(change.new);
    let Some(object) = states().last() else { return };
    let (name, namespace) = (Name::of(object), object.namespace());
    let is_leaving = |name: &str| {
        let namespace = view.get(&resources::namespaces(), &Name::new("", name));
        namespace.is_some_and(|namespace| namespace.is_deleting())
    };
    if !namespace.is_empty() && is_leaving(namespace) {
        add(Item::Namespace(namespace.to_owned()));
    }
    match (&*change.resource.group, &*change.resource.resource) {
        ("", "namespaces") => {
            add(Item::Namespace(name.name.clone()));
            add(Item::NamespaceDefaults(name.name));
        }
        ("", "serviceaccounts") if name.name == "default" => add(Item::NamespaceDefaults(name.namespace)),
        ("", "configmaps") if name.name == ROOT_CA => add(Item::NamespaceDefaults(name.namespace)),
        ("", "nodes") if name.name == super::pod::NODE => {
            let appeared = change.old.is_none();
            if change.new.is_some() {
                add(Item::Node);
            }
            for pod in view.all(&resources::pods()).filter(|_| appeared) {
                add(Item::Pod(Name::of(pod)));
            }
        }
        ("", "pods") => pod(view, change, add),
        ("", "services") => {
            add(Item::EndpointSlices(name.clone()));
            add(Item::Endpoints(name));
        }
        ("", "endpoints") => add(Item::Endpoints(name)),
        ("", "events") if change.new.is_some() => add(Item::Event(name)),
        ("discovery.k8s.io", "endpointslices") => {
            for service in states().filter_map(|state| state.label(SERVICE_NAME)) {
                add(Item::EndpointSlices(Name::new(namespace, service)));
            }
        }
        ("apps", "replicasets") => {
            add(Item::ReplicaSet(name));
            for state in states() {
                owners_or_selectors(view, state, "Deployment", &resources::deployments(), &mut |name| {
                    add(Item::Deployment(name));
                });
            }
        }
        ("rbac.authorization.k8s.io", "clusterroles") => add(Item::ClusterRoles),
        ("apps", "deployments") => add(Item::Deployment(name)),
        ("batch", "jobs") => {
            add(Item::Job(name));
            for owner in states().filter_map(|state| state.controller()).filter(|it| it["kind"] == "CronJob")
            {
                add(Item::CronJob(Name::new(namespace, owner.text("/name"))));
            }
        }
        ("batch", "cronjobs") => add(Item::CronJob(name)),
        _ => {}
    }
}

/// Adds the items of a Pod: the Pod, its Job, the `ReplicaSet` that owns it or may adopt it, and its
/// Services.
fn pod(view: &View, change: Change<'_>, add: &mut impl FnMut(Item)) {
    if let Some(pod) = change.new {
        add(Item::Pod(Name::of(pod)));
    }
    for state in change.old.into_iter().chain(change.new) {
        let job = match state.controller() {
            Some(owner) => (owner["kind"] == "Job").then(|| owner.text("/name")),
            None => state.label("batch.kubernetes.io/job-name"),
        };
        if let Some(job) = job {
            add(Item::Job(Name::new(state.namespace(), job)));
        }
        owners_or_selectors(view, state, "ReplicaSet", &resources::replica_sets(), &mut |name| {
            add(Item::ReplicaSet(name));
        });
        for service in view.in_namespace(&resources::services(), state.namespace()) {
            if is_subset(service.at("/spec/selector"), state.at("/metadata/labels")) {
                add(Item::EndpointSlices(Name::of(service)));
                add(Item::Endpoints(Name::of(service)));
            }
        }
    }
    // A Deployment with the strategy `Recreate` waits until the last old Pod has ended.
    if change.new.is_none_or(|pod| has_ended(pod)) {
        let owner = change.old.and_then(|pod| pod.controller());
        let set = owner.and_then(|owner| view.by_uid(owner.text("/uid")));
        let deployment =
            set.and_then(|(_, set)| Some(Name::new(set.namespace(), set.controller()?.text("/name"))));
        if let Some(name) = deployment {
            add(Item::Deployment(name));
        }
    }
}

/// Passes the name of an object's controller to `add` if it is of this kind. For an object without a
/// controller it passes the names of all objects of `resource` with a matching selector.
fn owners_or_selectors(
    view: &View,
    object: &Value,
    kind: &str,
    resource: &GroupResource,
    add: &mut dyn FnMut(Name),
) {
    match object.controller() {
        Some(owner) if owner["kind"] == kind => add(Name::new(object.namespace(), owner.text("/name"))),
        Some(_) => {}
        None => {
            let labels = object.at("/metadata/labels");
            for owner in view.in_namespace(resource, object.namespace()) {
                if selects(owner.at("/spec/selector"), labels) {
                    add(Name::of(owner));
                }
            }
        }
    }
}

/// Adds the items of the garbage collector: objects that may have to be deleted or released.
fn garbage(view: &View, change: Change<'_>, add: &mut impl FnMut(Item)) {
    let (old, new) = (change.old, change.new);
    if let Some(new) = new {
        let same =
            old.is_some_and(|old| old.owners() == new.owners() && old.is_deleting() == new.is_deleting());
        let (owned, finalized) = (!new.owners().is_empty(), !new.list("/metadata/finalizers").is_empty());
        if (owned && !same) || (new.is_deleting() && finalized) {
            add(Item::Garbage(new.uid().to_owned()));
        }
    }
    let began_to_wait =
        new.is_some_and(|new| waits_for_dependents(new)) && !old.is_some_and(|old| waits_for_dependents(old));
    let replaced = old.zip(new).is_some_and(|(old, new)| old.uid() != new.uid());
    for gone in old.into_iter().filter(|_| new.is_none() || began_to_wait || replaced) {
        add_dependents(view, gone.uid(), add);
    }
    if let Some(new) = new.filter(|_| began_to_wait && old.is_none()) {
        add_dependents(view, new.uid(), add);
    }
    // An owner in foreground deletion may have waited for this dependent.
    for owner in old.into_iter().flat_map(|old| old.owners()) {
        let waits = view.by_uid(owner.text("/uid")).is_some_and(|(_, owner)| owner.has_finalizer(FOREGROUND));
        if waits {
            add(Item::Garbage(owner.text("/uid").to_owned()));
        }
    }
}

fn add_dependents(view: &View, uid: &str, add: &mut impl FnMut(Item)) {
    for (_, dependent) in view.dependents(uid) {
        add(Item::Garbage(dependent.uid().to_owned()));
    }
}
