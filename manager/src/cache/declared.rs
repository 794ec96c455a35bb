//! The indexes by function that one handle has declared, with its clones and views.
//!
//! Names are the handle's own, and an index goes with the last clone or view of it: a controller that is removed leaves
//! none behind, and finds no name taken when it comes back, whoever kept the store meanwhile.
//!
//! # Invariants
//! 1. A list keeps the indexes it reads by: none goes while it is under way.
//! 2. Functions are asked, and dropped, outside the lock: they are users' code.

use std::any::TypeId;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::cache::object::transform::HookFailure;
use crate::cache::object::view::View;
use crate::cache::store::function::{Function, IndexError};
use crate::cache::store::kind_store::KindStore;
use crate::cache::store::select::Select;

/// What one handle has declared.
#[derive(Debug, Default)]
pub(super) struct Declared(Mutex<Vec<Named>>);

#[derive(Debug)]
struct Named {
    name: Box<str>,
    /// The type of the function: each closure has its own, so it tells where in the code it was declared; function
    /// pointers of one signature share one.
    code: TypeId,
    index: Arc<Index>,
}

/// A complete index. Dropping it takes it out of its store.
#[derive(Debug)]
pub(super) struct Index {
    store: Arc<KindStore>,
    function: Arc<Function>,
}

// === impl Declared ===

impl Declared {
    /// As [`super::Store::index_view`] says.
    pub(super) fn declare<F>(&self, store: &Arc<KindStore>, name: &str, ask: F) -> Result<(), IndexError>
    where
        F: Fn(&View) -> Result<Vec<String>, HookFailure> + Send + Sync + 'static,
    {
        let code = TypeId::of::<F>();
        let taken = || IndexError { kind: store.kind().clone(), name: name.to_owned() };
        match self.code_of(name) {
            Some(other) if other != code => return Err(taken()),
            // It captures nothing, so it would answer the same.
            Some(_) if size_of::<F>() == 0 => return Ok(()),
            _ => {}
        }
        let index = Arc::new(Index::new(Arc::clone(store), Function::new(name, ask)));
        // Asked again under the lock: somebody else may have been as fast.
        let (accepted, rest) = self.put(name, code, index);
        // What was replaced, or refused, goes without the lock.
        drop(rest);
        if accepted { Ok(()) } else { Err(taken()) }
    }

    fn code_of(&self, name: &str) -> Option<TypeId> {
        self.0.lock().iter().find(|named| *named.name == *name).map(|named| named.code)
    }

    /// Returns whether the index is in its place now, and the one that is not.
    fn put(&self, name: &str, code: TypeId, index: Arc<Index>) -> (bool, Option<Arc<Index>>) {
        let mut all = self.0.lock();
        match all.iter_mut().find(|named| *named.name == *name) {
            None => {
                all.push(Named { name: name.into(), code, index });
                (true, None)
            }
            Some(named) if named.code == code => (true, Some(std::mem::replace(&mut named.index, index))),
            Some(_) => (false, Some(index)),
        }
    }

    /// Returns a selection with what its names mean here, and what keeps that in place.
    pub(super) fn resolve(&self, select: &Select) -> (Select, Vec<Arc<Index>>) {
        let (mut select, mut kept) = (select.clone(), Vec::new());
        let all = self.0.lock();
        for wanted in &mut select.functions {
            let index = all.iter().find(|named| *named.name == *wanted.name).map(|named| &named.index);
            wanted.function = index.map(|index| Arc::clone(&index.function));
            kept.extend(index.cloned());
        }
        drop(all);
        (select, kept)
    }
}

// === impl Index ===

impl Index {
    fn new(store: Arc<KindStore>, function: Function) -> Self {
        let index = Self { store, function: Arc::new(function) };
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
