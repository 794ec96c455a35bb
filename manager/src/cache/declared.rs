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

use crate::cache::object::transform::HookFailure;
use crate::cache::object::view::View;
use crate::cache::store::function::{IndexError, IndexFunction};
use crate::cache::store::select::Select;
use crate::cache::store::untyped_store::UntypedStore;

/// The indexes of one handle.
#[derive(Debug, Default)]
pub(super) struct DeclaredIndexes(Mutex<Vec<Arc<Index>>>);

/// A complete index of a store; removed from it on drop.
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
    /// Adds an index, as described at [`super::Store::index_view`].
    pub(super) fn declare<F>(
        &self,
        store: &Arc<UntypedStore>,
        name: &str,
        function: F,
    ) -> Result<(), IndexError>
    where
        F: Fn(&View) -> Result<Vec<String>, HookFailure> + Send + Sync + 'static,
    {
        let code = TypeId::of::<F>();
        let taken = || IndexError { kind: store.kind().clone(), name: name.to_owned() };
        match self.code_of(name) {
            Some(other) if other != code => return Err(taken()),
            // The closure captures no values, so the index would be the same.
            Some(_) if size_of::<F>() == 0 => return Ok(()),
            _ => {}
        }
        let index = Arc::new(Index::new(Arc::clone(store), IndexFunction::new(name, function), code));
        // The replaced or refused index is dropped here, outside of the lock.
        self.put(index).map(drop).map_err(|_refused| taken())
    }

    fn code_of(&self, name: &str) -> Option<TypeId> {
        self.0.lock().iter().find(|index| index.function.name() == name).map(|index| index.code)
    }

    /// Adds or replaces an index and returns the replaced one. Fails with `index` itself if another thread
    /// has declared an index of this name by other code meanwhile.
    fn put(&self, index: Arc<Index>) -> Result<Option<Arc<Index>>, Arc<Index>> {
        let mut all = self.0.lock();
        match all.iter_mut().find(|known| known.function.name() == index.function.name()) {
            None => {
                all.push(index);
                Ok(None)
            }
            Some(known) if known.code == index.code => Ok(Some(std::mem::replace(known, index))),
            Some(_) => Err(index),
        }
    }

    /// Returns the selection with its index names resolved to functions, and the indexes to hold while it is
    /// read.
    pub(super) fn resolve(&self, select: &Select) -> (Select, Vec<Arc<Index>>) {
        let (mut select, mut held) = (select.clone(), Vec::new());
        let all = self.0.lock();
        for wanted in &mut select.functions {
            let index = all.iter().find(|index| index.function.name() == &*wanted.name);
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
