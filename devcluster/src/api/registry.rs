//! The served resources: built-in kinds, and custom resources with an established definition.

use std::collections::HashMap;
use std::sync::Arc;

use super::served::{Custom, Served};
use crate::kinds::custom::{Conversion, CustomKind};
use crate::kinds::{Kind, builtin};

/// The served resources. Each change builds a new registry, so that a request sees one consistent state.
#[derive(Clone, Debug, Default)]
pub(super) struct Registry {
    /// Served versions by `group/version/plural`.
    served: HashMap<String, Arc<Served>>,
    /// Versions of custom resources, served or used for storage, by group and plural name.
    custom: HashMap<(String, String), Vec<Arc<Served>>>,
}

// === impl Registry ===

impl Registry {
    /// Returns a registry of the built-in kinds.
    pub(super) fn builtin() -> Self {
        let mut served = HashMap::new();
        for kind in builtin::kinds() {
            let same = |other: &&Arc<Kind>| {
                other.stored_as == kind.stored_as
                    && other.group == kind.group
                    && other.version != kind.version
            };
            let siblings = builtin::kinds().iter().filter(same).map(Arc::clone).collect();
            let resource = Served::new(Arc::clone(kind), None, siblings);
            served.insert(path(&kind.group, &kind.version, &kind.plural), Arc::new(resource));
        }
        Self { served, custom: HashMap::new() }
    }

    /// Returns the resource served under a group, version and plural name.
    pub(super) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.served.get(&path(group, version, plural))
    }

    /// Returns all served resources, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.values()
    }

    /// Returns the storage version of a custom resource, served or not; `None` if it has no established
    /// definition.
    pub(super) fn any_version(&self, group: &str, plural: &str) -> Option<&Arc<Served>> {
        let mut versions = self.custom.get(&(group.to_owned(), plural.to_owned()))?.iter();
        versions.find(|served| served.custom.as_ref().is_some_and(|custom| custom.version.storage))
    }

    /// Serves the versions of a definition, in place of its previous versions. `generation` and `revision`
    /// are those of the definition.
    pub(super) fn serve(
        &mut self,
        versions: Vec<CustomKind>,
        generation: i64,
        revision: u64,
        terminating: bool,
        conversion: Option<Conversion>,
    ) {
        let conversion = conversion.map(Arc::new);
        let versions: Vec<_> = versions.into_iter().map(Arc::new).collect();
        let Some(storage) = versions.iter().find(|version| version.storage) else { return };
        let (group, plural) = &storage.kind.stored_as;
        let known = self.any_version(group, plural).and_then(|served| served.custom.as_ref());
        // A status write leaves the schema unchanged, so objects stored before it need no new defaults.
        let same = known.filter(|known| known.generation == generation);
        let defined_at = same.map_or(revision, |known| known.defined_at);
        self.remove(group, plural);
        let mut all = Vec::new();
        for version in versions.iter().filter(|version| version.served || version.storage) {
            let custom = Custom {
                version: Arc::clone(version),
                storage: Arc::clone(storage),
                generation,
                defined_at,
                terminating,
                conversion: conversion.clone(),
            };
            let others =
                versions.iter().filter(|other| other.served && other.api_version != version.api_version);
            let siblings = others.map(|other| Arc::clone(&other.kind)).collect();
            let resource = Arc::new(Served::new(Arc::clone(&version.kind), Some(custom), siblings));
            if version.served {
                self.served.insert(path(group, &version.kind.version, plural), Arc::clone(&resource));
            }
            all.push(resource);
        }
        self.custom.insert((group.clone(), plural.clone()), all);
    }

    /// Stops serving a custom resource.
    pub(super) fn remove(&mut self, group: &str, plural: &str) {
        for served in self.custom.remove(&(group.to_owned(), plural.to_owned())).into_iter().flatten() {
            self.served.remove(&path(group, &served.kind.version, plural));
        }
    }
}

fn path(group: &str, version: &str, plural: &str) -> String {
    [group, version, plural].join("/")
}
