//! Walks over a table that let writers in between: for lists of many objects, and to fill a new index.
//!
//! A walk visits slots by number and remembers the next number, so that the caller releases the lock between
//! two strides. It skips slots that were inserted after it began. Every other object is visited once, in its
//! state at that moment.

use super::Table;
use crate::cache::object::View;
use crate::cache::store::{IndexValue, Number, Plan, Select, Slot, merged};

/// Number of slots that one stride of a list visits under the lock. A waiting writer then waits for one or
/// two microseconds and is hardly ever put to sleep. With half as many, a list of ten thousand objects takes
/// a tenth longer.
pub(super) const STRIDE: usize = 16;

/// The progress of a list of a store's objects. The lock is released between two strides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    next: Number,
    /// Number of insertions when the list began: slots inserted later are skipped.
    births: u64,
}

// === impl Table ===

/// Lists of the objects in a store's table.
impl Table {
    /// Begins a list of the objects that are stored now.
    pub(crate) fn walk(&self) -> Walk {
        Walk { next: 0, births: self.objects.births }
    }

    /// Visits the slots of one stride of a list, through the narrowest index that the selection allows, and
    /// appends clones of the selected objects, undecoded. Returns whether there may be more.
    pub(crate) fn stride(&self, walk: &mut Walk, select: &Select, out: &mut Vec<View>) -> bool {
        let first = walk.next;
        let mut looked = 0;
        let mut look = |(number, slot): (Number, &Slot)| {
            looked += 1;
            walk.next = number.saturating_add(1);
            if slot.born <= walk.births && self.picks(select, number, slot) {
                out.push(slot.view.clone());
            }
        };
        let with_slot = |number: Number| Some((number, self.objects.get(number)?));
        match self.indexes.plan(select) {
            Plan::Everything => self.objects.from(first).take(STRIDE).for_each(look),
            Plan::Bucket(bucket) => bucket.from(first).take(STRIDE).filter_map(with_slot).for_each(look),
            Plan::Buckets(buckets) => {
                let numbers = merged(&buckets, first, STRIDE);
                numbers.into_iter().filter_map(with_slot).for_each(&mut look);
            }
        }
        looked == STRIDE
    }

    fn picks(&self, select: &Select, number: Number, slot: &Slot) -> bool {
        let has = |wanted: &IndexValue| {
            wanted.function.as_ref().is_some_and(|by| self.indexes.has(by, &wanted.value, number))
        };
        select.functions.iter().all(has) && select.admits(slot.view.meta())
    }

    /// Returns an estimate of the number of objects that a list with this selection visits.
    pub(crate) fn estimate(&self, select: &Select) -> usize {
        self.indexes.plan(select).len().min(self.objects.len())
    }

    pub(crate) fn all(&self) -> Vec<View> {
        self.objects.from(0).map(|(_, slot)| slot.view.clone()).collect()
    }
}

/// Filling of indexes that are declared after objects were stored.
impl Table {
    /// Returns the objects of the next stride of a walk, to be added to an index; empty at the end.
    pub(crate) fn unindexed(&self, walk: &mut Walk) -> Vec<(Number, View)> {
        let next = self.objects.from(walk.next).take(STRIDE);
        let next: Vec<_> = next.map(|(number, slot)| (number, slot.view.clone())).collect();
        walk.next = next.last().map_or(walk.next, |(number, _)| number.saturating_add(1));
        next
    }
}
