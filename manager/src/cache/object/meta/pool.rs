//! One copy of what many objects of a store say alike.
//!
//! Replicas have their labels and owners word for word in common, so a list of them is kept once for all versions that
//! have it, and in different lists each string is kept once.
//!
//! # Invariants
//! 1. What no version holds any more goes when the pool is swept: after each list, and before it holds twice as much
//!    as was in use at the last sweep.
//! 2. Only the pool hands out what it holds, under its lock: what it alone holds there, nobody else can take up.

use std::borrow::Cow;
use std::hash::Hash;
use std::sync::Arc;

use hashbrown::HashTable;
use parking_lot::Mutex;
use serde::Deserialize;

use super::{Label, Labels, Owner, Uid};
use crate::cache::object::scan::hash_of;

/// Entries that are not worth a sweep.
const FEW: usize = 64;

/// What the versions of one store share.
#[derive(Default)]
pub(in crate::cache) struct Pool(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    texts: Entries<str>,
    labels: Entries<[Label]>,
    owners: Entries<[Owner]>,
    finalizers: Entries<[Arc<str>]>,
}

struct Entries<T: ?Sized> {
    /// With their hashes, which are costly to find again.
    table: HashTable<(u64, Arc<T>)>,
    /// In use at the last sweep.
    used: usize,
}

/// A label as it is written.
pub(in crate::cache::object) type LabelText<'a> = (Cow<'a, str>, Cow<'a, str>);

/// An owner reference as it is written.
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

    /// Takes labels that are sorted by key.
    pub(in crate::cache::object) fn labels(&self, labels: &[LabelText<'_>]) -> Labels {
        let Kept { texts, labels: kept, .. } = &mut *self.0.lock();
        let same = |label: &Label, text: &LabelText<'_>| label.0[..] == text.0 && label.1[..] == text.1;
        Labels(kept.list(labels, same, |(key, value)| (texts.text(key), texts.text(value))))
    }

    pub(in crate::cache::object) fn owners(&self, owners: &[OwnerText<'_>]) -> Arc<[Owner]> {
        let Kept { texts, owners: kept, .. } = &mut *self.0.lock();
        kept.list(owners, |owner, text| text.is(owner), |text| text.owner(texts))
    }

    pub(in crate::cache::object) fn finalizers(&self, finalizers: &[Cow<'_, str>]) -> Arc<[Arc<str>]> {
        let Kept { texts, finalizers: kept, .. } = &mut *self.0.lock();
        kept.list(finalizers, |one, text| one[..] == **text, |text| texts.text(text))
    }

    /// Drops what nobody uses.
    pub(in crate::cache) fn sweep(&self) {
        let Kept { texts, labels, owners, finalizers } = &mut *self.0.lock();
        labels.sweep();
        owners.sweep();
        finalizers.sweep();
        // Last, as the lists hold texts.
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
            // Without an allocation: all empty lists are one.
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
