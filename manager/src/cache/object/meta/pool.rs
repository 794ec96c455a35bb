//! Shares equal strings and lists between the objects of a store.
//!
//! Replicas of one workload have the same labels and owners, so equal lists are stored once for all versions,
//! and within different lists each string is stored once.
//!
//! # Invariants
//! 1. An entry that no version holds is removed when the pool is swept: after each list, and before the pool
//!    grows to twice the entries that were in use at the last sweep.
//! 2. Only the pool hands out references to its entries, under its lock: an entry with a single reference
//!    there cannot be in use elsewhere.

use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashTable;
use parking_lot::Mutex;
use serde::Deserialize;

use super::{Label, Labels, Owner, Uid};
use crate::cache::object::scan::hash_of;

/// Number of entries up to which a table of shared strings or lists is not swept for unused ones.
const FEW: usize = 64;

/// Strings and lists of metadata that the objects of one store share, so that equal ones are stored once.
#[derive(Default)]
pub(crate) struct Pool(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    texts: Entries<str>,
    labels: Entries<[Label]>,
    owners: Entries<[Owner]>,
    finalizers: Entries<[Arc<str>]>,
}

struct Entries<T: ?Sized> {
    /// Each shared string or list with its hash, which would take time to compute again.
    table: HashTable<(u64, Arc<T>)>,
    /// Number of entries of the table that were in use at the last sweep.
    used: usize,
}

/// Key and value of a label, borrowed from the JSON.
pub(in crate::cache::object) type LabelText<'a> = (Cow<'a, str>, Cow<'a, str>);

/// An owner reference, borrowed from the JSON.
#[derive(Deserialize, Hash)]
#[serde(rename_all = "camelCase")]
pub(in crate::cache::object) struct OwnerText<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    api_version: Cow<'a, str>,
    #[serde(borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(default)]
    controller: bool,
}

// === impl Pool ===

impl Pool {
    pub(in crate::cache::object) fn text(&self, text: &str) -> Arc<str> {
        self.0.lock().texts.text(text)
    }

    /// Returns the shared list that equals these labels; `labels` must be sorted by key.
    pub(in crate::cache::object) fn labels(&self, labels: &[LabelText<'_>]) -> Labels {
        let Tables { texts, labels: kept, .. } = &mut *self.0.lock();
        let same = |label: &Label, text: &LabelText<'_>| label.0[..] == text.0 && label.1[..] == text.1;
        Labels(kept.list(labels, same, |(key, value)| (texts.text(key), texts.text(value))))
    }

    pub(in crate::cache::object) fn owners(&self, owners: &[OwnerText<'_>]) -> Arc<[Owner]> {
        let Tables { texts, owners: kept, .. } = &mut *self.0.lock();
        kept.list(owners, |owner, text| text.is(owner), |text| text.owner(texts))
    }

    pub(in crate::cache::object) fn finalizers(&self, finalizers: &[Cow<'_, str>]) -> Arc<[Arc<str>]> {
        let Tables { texts, finalizers: kept, .. } = &mut *self.0.lock();
        kept.list(finalizers, |one, text| one[..] == **text, |text| texts.text(text))
    }

    /// Drops the shared strings and lists that no object uses any more.
    pub(crate) fn sweep(&self) {
        let Tables { texts, labels, owners, finalizers } = &mut *self.0.lock();
        labels.sweep();
        owners.sweep();
        finalizers.sweep();
        // Last, because the lists hold strings.
        texts.sweep();
    }
}

// === impl Entries ===

impl<T: ?Sized> Entries<T> {
    fn get(&mut self, hash: u64, same: impl Fn(&T) -> bool, make: impl FnOnce() -> Arc<T>) -> Arc<T> {
        if let Some((_, known)) = self.table.find(hash, |(_, known)| same(known)) {
            return known.clone();
        }
        if self.table.len() >= FEW.max(2 * self.used) {
            self.sweep();
        }
        let fresh = make();
        self.table.insert_unique(hash, (hash, fresh.clone()), |(hash, _)| *hash);
        fresh
    }

    fn sweep(&mut self) {
        self.table.retain(|(_, entry)| Arc::strong_count(entry) > 1);
        self.used = self.table.len();
        self.table.shrink_to(2 * self.used, |(hash, _)| *hash);
    }
}

impl Entries<str> {
    fn text(&mut self, text: &str) -> Arc<str> {
        self.get(hash_of(text), |known| known == text, || text.into())
    }
}

impl<T> Entries<[T]> {
    fn list<R: Hash>(
        &mut self,
        items: &[R],
        same: impl Fn(&T, &R) -> bool,
        make: impl FnMut(&R) -> T,
    ) -> Arc<[T]> {
        if items.is_empty() {
            // All empty lists share one, without an allocation.
            return Arc::default();
        }
        let equal = |known: &[T]| {
            known.len() == items.len() && known.iter().zip(items).all(|(known, item)| same(known, item))
        };
        self.get(hash_of(items), equal, || items.iter().map(make).collect())
    }
}

impl<T: ?Sized> Default for Entries<T> {
    fn default() -> Self {
        Self { table: HashTable::new(), used: 0 }
    }
}

// === impl OwnerText ===

impl OwnerText<'_> {
    fn is(&self, owner: &Owner) -> bool {
        owner.uid == *self.uid
            && owner.api_version[..] == self.api_version
            && owner.kind[..] == self.kind
            && owner.name[..] == self.name
            && owner.controller == self.controller
    }

    fn owner(&self, texts: &mut Entries<str>) -> Owner {
        Owner {
            uid: Uid::new(&self.uid),
            api_version: texts.text(&self.api_version),
            kind: texts.text(&self.kind),
            name: texts.text(&self.name),
            controller: self.controller,
        }
    }
}

#[cfg(test)]
mod tests;
