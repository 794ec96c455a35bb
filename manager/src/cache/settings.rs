//! What the configuration says about the cache.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::pack::Pack;
use super::select::Scope;
use super::store::Core;
use crate::key::KindId;

/// What the configuration says about the cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheSettings {
    /// The only namespaces of the manager's own cluster to look at; empty means all of them.
    pub namespaces: Vec<String>,
    /// Between two looks at everything, up to a tenth less; zero means never. Purely local.
    pub resync: Duration,
    /// Longest object taken, as the server sends it; 0 means no limit. Of one that has grown longer the last version taken
    /// is served on: see [`KindStatus::left_out`](super::KindStatus::left_out).
    pub max_object_bytes: usize,
    /// Whether bodies are kept packed.
    pub pack: Pack,
    /// The same for single kinds, by `Kind` or `Kind.group`.
    pub pack_kinds: BTreeMap<String, Pack>,
}

// === impl CacheSettings ===

impl Default for CacheSettings {
    fn default() -> Self {
        Self {
            namespaces: Vec::new(),
            resync: Duration::from_hours(10),
            max_object_bytes: 8 * 1024 * 1024,
            pack: Pack::default(),
            pack_kinds: BTreeMap::new(),
        }
    }
}

impl CacheSettings {
    /// Whether the bodies of a kind are kept packed.
    pub(super) fn pack_of(&self, kind: &KindId) -> Pack {
        self.pack_kinds.get(&kind.to_string()).copied().unwrap_or(self.pack)
    }

    /// The namespaces to list and watch, one reflector each; a single `None` is all, none at all is a scope that
    /// the configuration does not allow.
    pub(super) fn parts(&self, kind: &KindId, scope: &Scope) -> Vec<Option<Arc<str>>> {
        if !kind.is_namespaced() {
            return vec![None];
        }
        match &scope.namespace {
            Some(namespace) => {
                let allowed =
                    self.namespaces.is_empty() || self.namespaces.iter().any(|one| **one == **namespace);
                allowed.then(|| Some(namespace.clone())).into_iter().collect()
            }
            None if self.namespaces.is_empty() => vec![None],
            None => self.namespaces.iter().map(|namespace| Some(namespace.as_str().into())).collect(),
        }
    }

    /// Says which entries of `cache.kinds` concern no store so far: a forgotten group, a slip of the pen, or a kind of which
    /// somebody declares a store only later.
    pub(super) fn warn_of_strays(&self, stores: &[Arc<Core>]) {
        let names: Vec<String> = stores.iter().map(|store| store.kind().to_string()).collect();
        for (entry, closest) in strays(&self.pack_kinds, &names) {
            tracing::warn!(
                entry,
                closest,
                "cache.kinds names a kind that nobody reads so far; write kinds as Pod or Deployment.apps"
            );
        }
    }
}

/// The entries that are none of the names, each with the name that was probably meant.
fn strays<'a>(entries: &'a BTreeMap<String, Pack>, names: &'a [String]) -> Vec<(&'a str, Option<&'a str>)> {
    let unknown = entries.keys().filter(|entry| !names.contains(entry));
    unknown.map(|entry| (entry.as_str(), closest(entry, names))).collect()
}

/// The name of the same kind in another group, or with few other letters.
fn closest<'a>(entry: &str, names: &'a [String]) -> Option<&'a str> {
    let kind = |name: &str| name.split('.').next().unwrap_or_default().to_lowercase();
    let distance = |name: &&String| strsim::osa_distance(&kind(entry), &kind(name));
    let found = names.iter().min_by_key(distance)?;
    (distance(&found) <= 2).then_some(found.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_names_no_cached_kind_is_told_with_what_was_meant() {
        let entries =
            ["Deployment", "pod", "Secret", "StatefulSet.apps"].map(|kind| (kind.to_owned(), Pack::Always));
        let names = ["ConfigMap", "Deployment.apps", "Pod", "StatefulSet.apps"].map(str::to_owned);
        let entries = entries.into();
        let strays = strays(&entries, &names);
        assert_eq!(strays, [("Deployment", Some("Deployment.apps")), ("Secret", None), ("pod", Some("Pod"))]);
    }
}
