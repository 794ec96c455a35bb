//! The indexes by function that were declared on one handle of a store, with its clones and views.
//!
//! Each handle has its own names. An index is removed with the last clone or view of its handle, so a
//! controller that is removed leaves no index behind and can declare the same names when it is added again.
//!
//! # Invariants
//! 1. A list holds the indexes it reads by, so none of them is removed during the list.
//! 2. Index functions are users' code: they are called and dropped outside of the lock.

use std::any::TypeId;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cache::object::{HookFailure, View};
use crate::cache::store::{IndexError, IndexFunction, Select, UntypedStore};

/// The indexes by function that were declared on one handle of a store.
#[derive(Debug, Default)]
pub(super) struct DeclaredIndexes(Mutex<Vec<Arc<Index>>>);

/// A complete index by function of a store; removed from the store on drop.
#[derive(Debug)]
pub(super) struct Index {
    store: Arc<UntypedStore>,
    function: Arc<IndexFunction>,
    /// The type of the index function. Each closure has its own type, so equal types mean the same place in
    /// the code, except for function pointers of one signature.
    code: TypeId,
}

// === impl DeclaredIndexes ===

impl DeclaredIndexes {
    /// Adds an index by function to the handle, as described at [`super::Store::index_view`].
    pub(super) fn declare<F>(
        &self,
        store: &Arc<UntypedStore>,
        name: &str,
        function: F,
    ) -> Result<(), IndexError>
    where
        F: Fn(&View) -> Result<Vec<String>, HookFailure> + Send + Sync + 'static,
    {
        let (kind, code) = (store.kind().clone(), TypeId::of::<F>());
        let known = self.0.lock().iter().find(|index| *index.function.name == *name).map(|index| index.code);
        // A closure without captured values always makes the same index.
        if known == Some(code) && size_of::<F>() == 0 {
            return Ok(());
        }
        let taken = IndexError { kind, name: name.to_owned() };
        if known.is_some_and(|known| known != code) {
            return Err(taken);
        }
        // Before the lock, so that a replaced or refused index is dropped after the lock is released.
        let mut index = Arc::new(Index::new(Arc::clone(store), IndexFunction::new(name, function), code));
        let mut all = self.0.lock();
        match all.iter_mut().find(|known| *known.function.name == *name) {
            None => all.push(index),
            Some(known) if known.code == code => std::mem::swap(known, &mut index),
            // Another thread has declared the name meanwhile.
            Some(_) => return Err(taken),
        }
        Ok(())
    }

    /// Returns the selection with the names of its indexes resolved to functions, and the indexes to hold
    /// while the selection is read.
    pub(super) fn resolve(&self, select: &Select) -> (Select, Vec<Arc<Index>>) {
        let (mut select, mut held) = (select.clone(), Vec::new());
        let all = self.0.lock();
        for wanted in &mut select.functions {
            let index = all.iter().find(|index| *index.function.name == *wanted.name);
            wanted.function = index.map(|index| Arc::clone(&index.function));
            held.extend(index.cloned());
        }
        drop(all);
        (select, held)
    }
}

// === impl Index ===

impl Index {
    fn new(store: Arc<UntypedStore>, function: IndexFunction, code: TypeId) -> Self {
        let index = Self { store, function: Arc::new(function), code };
        index.store.index(&index.function);
        index
    }
}

impl Drop for Index {
    fn drop(&mut self) {
        self.store.unindex(&self.function);
    }
}

#[cfg(test)]
mod tests;
