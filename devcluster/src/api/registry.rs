//! The resources that are served: built-in kinds, and custom resources as their definitions are established.

use std::collections::HashMap;
use std::sync::Arc;

use super::served::{Custom, Served};
use crate::kinds::custom::CustomKind;
use crate::kinds::{Kind, builtin};

/// The served resources. A change makes a new registry, so that a request sees one state of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Registry {
    /// By `group/version/plural`.
    served: HashMap<String, Arc<Served>>,
    /// All custom resources, by group and plural name.
    custom: HashMap<(String, String), Vec<Arc<Served>>>,
}

// === impl Registry ===

impl Registry {
    /// The built-in kinds.
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

    pub(super) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.served.get(&path(group, version, plural))
    }

    /// Returns all served resources, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.values()
    }

    /// Returns one version of a custom resource, served or not, for work on its objects in any version.
    pub(super) fn any_version(&self, group: &str, plural: &str) -> Option<&Arc<Served>> {
        self.custom.get(&(group.to_owned(), plural.to_owned()))?.first()
    }

    /// Serves the versions of a definition, in place of those that were served before.
    pub(super) fn serve(
        &mut self,
        versions: Vec<CustomKind>,
        generation: i64,
        revision: u64,
        terminating: bool,
    ) {
        let versions: Vec<_> = versions.into_iter().map(Arc::new).collect();
        let Some(storage) = versions.iter().find(|version| version.storage) else { return };
        let (group, plural) = &storage.kind.stored_as;
        let known = self.any_version(group, plural).and_then(|served| served.custom.as_ref());
        // Writes to the status of a definition do not make its objects older than their schema.
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

    /// Stops to serve a custom resource.
    pub(super) fn remove(&mut self, group: &str, plural: &str) {
        for served in self.custom.remove(&(group.to_owned(), plural.to_owned())).into_iter().flatten() {
            self.served.remove(&path(group, &served.kind.version, plural));
        }
    }
}

fn path(group: &str, version: &str, plural: &str) -> String {
    [group, version, plural].join("/")
}
