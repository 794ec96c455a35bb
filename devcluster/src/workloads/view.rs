//! The objects of the cluster as the controllers last saw them, with the graph of their owners.
//!
//! # Invariants
//! 1. `places` has exactly one entry for each object of `tables`.
//! 2. `dependents` has an entry for each owner reference of each object, whether or not the owner exists.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::object::Object as _;
use crate::kinds::Kind;
use crate::store::GroupResource;

/// The namespace, empty if there is none, and the name of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Name {
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The objects as last seen.
#[derive(Debug, Default)]
pub(super) struct View {
    kinds: Vec<Arc<Kind>>,
    tables: HashMap<GroupResource, BTreeMap<Name, Arc<Value>>>,
    /// Where the object of a uid is.
    places: HashMap<String, (GroupResource, Name)>,
    /// The uids of the objects with a reference to this uid.
    dependents: HashMap<String, BTreeSet<String>>,
    /// The keys of `dependents` whose objects have existed and are gone, so that it does not matter whether
    /// their kinds are still served.
    gone: HashSet<String>,
}

/// What an owner reference leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner<'a> {
    /// The owner exists.
    Present(&'a Value),
    /// There is no such object, at least not in the namespace of the dependent.
    Absent,
    /// The reference cannot be followed: its kind is not served, or it names an object of a namespace and the
    /// dependent is in none.
    Unknown,
}

// === impl Name ===

impl Name {
    pub(super) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    pub(super) fn of(object: &Value) -> Self {
        Self::new(object.namespace(), object.name())
    }
}

// === impl View ===

impl View {
    /// Sets the kinds and returns the resources to watch: those that can be listed, watched and deleted.
    pub(super) fn set_kinds(&mut self, kinds: Vec<Arc<Kind>>) -> Vec<GroupResource> {
        self.kinds = kinds;
        let mut resources: Vec<_> = self
            .kinds
            .iter()
            .filter(|kind| ["list", "watch", "delete"].iter().all(|verb| kind.has_verb(verb)))
            .map(|kind| stored_as(kind))
            .collect();
        resources.sort();
        resources.dedup();
        resources
    }

    /// Notes the present state of an object and returns its former one.
    pub(super) fn put(&mut self, resource: &GroupResource, object: Arc<Value>) -> Option<Arc<Value>> {
        let name = Name::of(&object);
        let uid = object.uid().to_owned();
        let former = self.take(resource, &name);
        for owner in object.owners() {
            self.dependents.entry(owner.text("/uid").to_owned()).or_default().insert(uid.clone());
        }
        self.places.insert(uid, (resource.clone(), name.clone()));
        self.tables.entry(resource.clone()).or_default().insert(name, object);
        former
    }

    /// Forgets an object that is gone and returns its last state.
    pub(super) fn remove(&mut self, resource: &GroupResource, name: &Name) -> Option<Arc<Value>> {
        let last = self.take(resource, name)?;
        if self.dependents.contains_key(last.uid()) {
            self.gone.insert(last.uid().to_owned());
        }
        Some(last)
    }

    fn take(&mut self, resource: &GroupResource, name: &Name) -> Option<Arc<Value>> {
        let former = self.tables.get_mut(resource)?.remove(name)?;
        self.places.remove(former.uid());
        for owner in former.owners() {
            let Some(dependents) = self.dependents.get_mut(owner.text("/uid")) else { continue };
            dependents.remove(former.uid());
            if dependents.is_empty() {
                self.dependents.remove(owner.text("/uid"));
                self.gone.remove(owner.text("/uid"));
            }
        }
        Some(former)
    }

    pub(super) fn get(&self, resource: &GroupResource, name: &Name) -> Option<&Arc<Value>> {
        self.tables.get(resource)?.get(name)
    }

    /// Returns the objects of a resource, by namespace and name.
    pub(super) fn all(&self, resource: &GroupResource) -> impl Iterator<Item = &Arc<Value>> {
        self.tables.get(resource).into_iter().flat_map(BTreeMap::values)
    }

    /// Returns the objects of a resource in a namespace, by name.
    pub(super) fn in_namespace(&self, resource: &GroupResource, namespace: &str) -> Vec<&Arc<Value>> {
        let Some(table) = self.tables.get(resource) else { return Vec::new() };
        let from_first = table.range(Name::new(namespace, "")..);
        from_first.take_while(|(name, _)| name.namespace == namespace).map(|(_, object)| object).collect()
    }

    /// Returns each resource with objects in a namespace, and these objects.
    pub(super) fn content(&self, namespace: &str) -> BTreeMap<&GroupResource, Vec<&Arc<Value>>> {
        self.tables
            .keys()
            .map(|resource| (resource, self.in_namespace(resource, namespace)))
            .filter(|(_, objects)| !objects.is_empty())
            .collect()
    }

    /// Returns the object of a uid and its resource.
    pub(super) fn by_uid(&self, uid: &str) -> Option<(&GroupResource, &Arc<Value>)> {
        let (resource, name) = self.places.get(uid)?;
        Some((resource, self.get(resource, name)?))
    }

    /// Returns the objects with an owner reference to a uid, and their resources.
    pub(super) fn dependents(&self, uid: &str) -> impl Iterator<Item = (&GroupResource, &Arc<Value>)> {
        self.dependents.get(uid).into_iter().flatten().filter_map(|uid| self.by_uid(uid))
    }

    /// Follows an owner reference of an object. The owner is looked for in the namespace of the object, so a
    /// reference across namespaces leads to nothing.
    pub(super) fn owner(&self, dependent: &Value, reference: &Value) -> Owner<'_> {
        if self.gone.contains(reference.text("/uid")) {
            return Owner::Absent;
        }
        let Some((resource, namespace)) = self.place_of(dependent, reference) else { return Owner::Unknown };
        match self.get(&resource, &Name::new(&namespace, reference.text("/name"))) {
            Some(owner) if owner.uid() == reference.text("/uid") => Owner::Present(owner),
            _ => Owner::Absent,
        }
    }

    /// Returns where the owner of a reference would be: its resource and namespace.
    pub(super) fn place_of(&self, dependent: &Value, reference: &Value) -> Option<(GroupResource, String)> {
        let api_version = reference.text("/apiVersion");
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let kind = self.kinds.iter().find(|kind| {
            kind.group == group && kind.version == version && kind.kind == reference.text("/kind")
        })?;
        let namespace = if kind.namespaced { dependent.namespace() } else { "" };
        let reachable = !kind.namespaced || !namespace.is_empty();
        reachable.then(|| (stored_as(kind), namespace.to_owned()))
    }

    /// Whether a resource is served.
    pub(super) fn is_served(&self, resource: &GroupResource) -> bool {
        self.kinds.iter().any(|kind| stored_as(kind) == *resource)
    }

    /// Returns the uids of all objects with owners.
    pub(super) fn owned(&self) -> BTreeSet<String> {
        self.dependents.values().flatten().cloned().collect()
    }
}

fn stored_as(kind: &Kind) -> GroupResource {
    GroupResource::new(&kind.stored_as.0, &kind.stored_as.1)
}
