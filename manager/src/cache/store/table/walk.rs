//! Long looks at a table that let writers in: lists of many objects, and the filling of an index.
//!
//! A walk goes by the numbers of slots and remembers the next one, so whoever makes it gives up the lock between two
//! strides. A slot that is born meanwhile is news and is left out; whatever else happens to a slot, its object is looked
//! at once, as it is by then.

use std::sync::Arc;

use super::Table;
use crate::cache::object::view::View;
use crate::cache::store::function::Function;
use crate::cache::store::index::{Plan, merged};
use crate::cache::store::select::{Indexed, Select};
use crate::cache::store::slots::{Number, Slot};

/// Slots a walk looks at before it lets a writer in: it waits for a microsecond or two and is hardly ever put to sleep.
/// With half as many a list of ten thousand takes a tenth longer.
pub(super) const STRIDE: usize = 16;

/// How far a list has come. The lock is given up between two strides.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Walk {
    next: Number,
    /// Slots born later are news.
    births: u64,
}

// === impl Table ===

/// Lists.
impl Table {
    /// Begins a list of what is there from now on.
    pub(in crate::cache) fn walk(&self) -> Walk {
        Walk { next: 0, births: self.objects.births() }
    }

    /// Goes on with a list: by the narrowest index that the selection names, for one stride. Returns whether there is
    /// more. Cheap clones only; nothing is decoded.
    pub(in crate::cache) fn stride(&self, walk: &mut Walk, select: &Select, out: &mut Vec<View>) -> bool {
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
        let has = |wanted: &Indexed| {
            wanted.function.as_ref().is_some_and(|by| self.indexes.has(by, &wanted.value, number))
        };
        select.functions.iter().all(has) && select.admits(slot.view.meta())
    }

    /// Returns about how many objects a list will look at.
    pub(in crate::cache) fn estimate(&self, select: &Select) -> usize {
        self.indexes.plan(select).len().min(self.objects.len())
    }

    pub(in crate::cache) fn all(&self) -> Vec<View> {
        self.objects.iter().map(|(_, slot)| slot.view.clone()).collect()
    }
}

/// Indexes that come when objects are there already.
impl Table {
    /// Puts the next objects of a walk into a label index. Returns whether there are more.
    pub(in crate::cache) fn fill_label(&mut self, walk: &mut Walk, key: &str) -> bool {
        let Self { objects, indexes, .. } = self;
        let mut looked = 0;
        for (number, slot) in objects.from(walk.next).take(STRIDE) {
            indexes.fill_label(key, number, slot.view.meta());
            walk.next = number.saturating_add(1);
            looked += 1;
        }
        looked == STRIDE
    }

    /// Returns the next objects of a walk, for a function to be asked about them; none at the end.
    pub(in crate::cache) fn unanswered(&self, walk: &mut Walk) -> Vec<(Number, View)> {
        let next = self.objects.from(walk.next).take(STRIDE);
        let next: Vec<_> = next.map(|(number, slot)| (number, slot.view.clone())).collect();
        walk.next = next.last().map_or(walk.next, |(number, _)| number.saturating_add(1));
        next
    }

    /// Takes what the function answered, where the version is still the one it was asked about: a later one came with
    /// its own answer.
    pub(in crate::cache) fn fill_function(
        &mut self,
        function: &Arc<Function>,
        number: Number,
        asked: &View,
        values: Box<[Arc<str>]>,
    ) {
        if self.objects.get(number).is_some_and(|slot| slot.view.is(asked)) {
            self.indexes.fill_function(function, number, values);
        }
    }
}

#[cfg(test)]
mod tests;
