//! Adding and removing indexes while the store is read and written.
//!
//! A new index is updated from the first moment and filled stride by stride, without blocking readers or
//! writers for long; it is read once it is complete.

use std::sync::Arc;

use super::ObjectStore;
use crate::cache::object::View;
use crate::cache::store::IndexFunction;

// === impl ObjectStore ===

impl ObjectStore {
    pub(crate) fn index_label(&self, key: &str) {
        let mut walk = {
            let mut table = self.table.write();
            if !table.indexes.add_label(key) {
                return;
            }
            table.walk()
        };
        loop {
            let mut table = self.table.write();
            let next = table.unindexed(&mut walk);
            let Some(index) = table.indexes.label_mut(key) else { return };
            if next.is_empty() {
                index.complete = true;
                return;
            }
            for (number, view) in next {
                index.insert(number, view.meta());
            }
        }
    }

    /// Adds an index by function and fills it with the stored objects. Returns when the index is complete,
    /// even if another call is filling it too.
    pub(crate) fn index(&self, function: &Arc<IndexFunction>) {
        let mut walk = {
            let mut table = self.table.write();
            if table.indexes.add_function(function) {
                // Every version stored from now on is evaluated by `arrive`.
                let mut functions = self.functions.write();
                *functions = functions.iter().chain([function]).cloned().collect();
            }
            table.walk()
        };
        loop {
            let next = self.table.read().unindexed(&mut walk);
            if next.is_empty() {
                break;
            }
            for (number, view) in next {
                let values = self.index_values(function, &view);
                let mut table = self.table.write();
                // A later version was evaluated on its way in.
                if table.holds(&view)
                    && let Some(index) = table.indexes.function_mut(function)
                {
                    index.fill(number, values);
                }
            }
        }
        if let Some(index) = self.table.write().indexes.function_mut(function) {
            index.complete = true;
        }
    }

    /// Removes an index by function from the store, and its failure count if no other index has the same
    /// name.
    pub(crate) fn unindex(&self, function: &Arc<IndexFunction>) {
        let mut table = self.table.write();
        let index = table.indexes.remove_function(function);
        let mut functions = self.functions.write();
        let rest = functions.iter().filter(|one| !Arc::ptr_eq(one, function)).cloned().collect();
        let before = std::mem::replace(&mut *functions, rest);
        let last = !functions.iter().any(|one| one.name == function.name);
        drop((functions, table));
        if last {
            self.counts.forget_index(&function.name);
        }
        // There may be many values, and functions are user code: neither is dropped under a lock.
        drop((index, before));
    }

    pub(crate) fn functions(&self) -> Arc<[Arc<IndexFunction>]> {
        self.functions.read().clone()
    }

    pub(crate) fn label_indexes(&self) -> Vec<String> {
        self.table.read().indexes.label_keys().map(ToOwned::to_owned).collect()
    }

    /// Calls an index function with an object and returns the index values; a failure is counted and logged,
    /// and gives no values. Never called under a lock.
    pub(super) fn index_values(&self, function: &IndexFunction, view: &View) -> Box<[Arc<str>]> {
        function.evaluate(view).unwrap_or_else(|failure| {
            if let Some(failures) = self.counts.count_unindexed(&function.name) {
                tracing::warn!(
                    kind = %self.kind, object = %view.request(), index = %function.name, failures,
                    error = %failure,
                    "object left out of an index"
                );
            }
            Box::default()
        })
    }
}
