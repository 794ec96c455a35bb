//! How a store's indexes come and go while it is read and written.
//!
//! An index is kept up from its first moment and filled a stride at a time, so that nobody waits for it; it is read once
//! it is complete.

use std::sync::Arc;

use super::ObjectStore;
use crate::cache::object::view::View;
use crate::cache::store::function::Function;

// === impl ObjectStore ===

impl ObjectStore {
    pub(in crate::cache) fn index_label(&self, key: &str) {
        let mut walk = {
            let mut table = self.table.write();
            if !table.indexes_mut().add_label(key) {
                return;
            }
            table.walk()
        };
        while self.table.write().fill_label(&mut walk, key) {}
        self.table.write().indexes_mut().complete_label(key);
    }

    /// Returns once the index is complete, also if somebody else is about to fill it.
    pub(in crate::cache) fn index(&self, function: &Arc<Function>) {
        let mut walk = {
            let mut table = self.table.write();
            if table.indexes_mut().add_function(function) {
                // Every version that comes from now on is asked about on its way in.
                let mut functions = self.functions.write();
                *functions = functions.iter().chain([function]).cloned().collect();
            }
            table.walk()
        };
        loop {
            let next = self.table.read().unanswered(&mut walk);
            if next.is_empty() {
                break;
            }
            for (number, view) in next {
                let values = self.ask(function, &view);
                self.table.write().fill_function(function, number, &view, values);
            }
        }
        self.table.write().indexes_mut().complete_function(function);
    }

    /// Takes an index away, and with it what was counted of it.
    pub(in crate::cache) fn unindex(&self, function: &Arc<Function>) {
        let mut table = self.table.write();
        let index = table.indexes_mut().remove_function(function);
        let mut functions = self.functions.write();
        let rest = functions.iter().filter(|one| !Arc::ptr_eq(one, function)).cloned().collect();
        let before = std::mem::replace(&mut *functions, rest);
        let last = !functions.iter().any(|one| one.name() == function.name());
        drop((functions, table));
        if last {
            self.counts.forget_index(function.name());
        }
        // Answers may be many and functions are of users: neither is dropped under a lock.
        drop((index, before));
    }

    pub(in crate::cache) fn functions(&self) -> Arc<[Arc<Function>]> {
        self.functions.read().clone()
    }

    pub(in crate::cache) fn label_indexes(&self) -> Vec<String> {
        self.table.read().indexes().label_keys().map(ToOwned::to_owned).collect()
    }

    /// Asks an index function about a version. Never called under a lock.
    pub(super) fn ask(&self, function: &Function, view: &View) -> Box<[Arc<str>]> {
        function.ask(view).unwrap_or_else(|failure| {
            if let Some(failures) = self.counts.unindexed(function.name()) {
                tracing::warn!(
                    kind = %self.kind, object = %view.request(), index = function.name(), failures, error = %failure,
                    "object left out of an index"
                );
            }
            Box::default()
        })
    }
}
