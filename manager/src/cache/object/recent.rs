//! A small cache of recently decoded objects, per store.
//!
//! Several controllers often read the same object within a short time. The newest few decoded objects are
//! held strongly for that; some more are known by weak references, as long as others hold them. All three
//! bounds are needed: a decoded object is many times as large as its JSON, and a weak reference keeps the
//! allocation of a dropped object. A cache in each version would therefore cost kilobytes for every object
//! ever read.

use std::any::{Any, TypeId};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::view::Version;

/// Most objects held strongly. More of them are written to memory that has left the processor's cache: with
/// sixteen Pods, reading a new object took half as long again.
const HELD: usize = 4;
/// Most bytes of JSON of the objects held; decoded, they take about eight times as much.
const BYTES: usize = 32 * 1024;
/// Most weak references: about as many as reconciles run at once.
const KNOWN: usize = 32;

type Decoded = dyn Any + Send + Sync;

/// The decoded objects, first in, first out.
#[derive(Default)]
pub(crate) struct Recent(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    /// Oldest first, with the length of the JSON in bytes.
    held: VecDeque<(Arc<Decoded>, usize)>,
    /// The sum of these lengths.
    bytes: usize,
    /// Oldest first.
    known: VecDeque<Known>,
}

struct Known {
    /// The version that was decoded. The weak reference keeps its address from being reused.
    version: Weak<Version>,
    /// The type of the object. Only a matching object is upgraded, because the last strong reference must not
    /// be dropped under the lock.
    type_id: TypeId,
    object: Weak<Decoded>,
}

// === impl Recent ===

impl Recent {
    /// Returns the object decoded from this version as this type, if it is still held anywhere.
    pub(crate) fn find<T: Send + Sync + 'static>(&self, version: &Arc<Version>) -> Option<Arc<T>> {
        self.0.lock().find(version)
    }

    /// Adds an object that was decoded from `bytes` bytes of JSON. Returns the object for all readers to
    /// share: this one, or one that another thread has added meanwhile.
    pub(crate) fn share<T: Send + Sync + 'static>(
        &self,
        version: &Arc<Version>,
        object: Arc<T>,
        bytes: usize,
    ) -> Arc<T> {
        let mut lists = self.0.lock();
        if let Some(known) = lists.find(version) {
            return known;
        }
        let erased: Arc<Decoded> = object.clone();
        let forgotten = lists.add_weak::<T>(version, &erased);
        let surplus = lists.hold(erased, bytes);
        drop(lists);
        // Dropping a large object takes time and may run user code, so it happens outside the lock.
        drop((forgotten, surplus));
        object
    }
}

// === impl Lists ===

impl Lists {
    fn find<T: Send + Sync + 'static>(&self, version: &Arc<Version>) -> Option<Arc<T>> {
        let wanted = |known: &&Known| {
            known.version.as_ptr() == Arc::as_ptr(version) && known.type_id == TypeId::of::<T>()
        };
        // Newest first: an older entry of the same version may have lost its object.
        self.known.iter().rev().find(wanted)?.object.upgrade()?.downcast().ok()
    }

    /// Adds a weak reference; returns the oldest one, if it had to make room.
    fn add_weak<T: 'static>(&mut self, version: &Arc<Version>, object: &Arc<Decoded>) -> Option<Known> {
        let forgotten = if self.known.len() == KNOWN { self.known.pop_front() } else { None };
        let (version, object) = (Arc::downgrade(version), Arc::downgrade(object));
        self.known.push_back(Known { version, type_id: TypeId::of::<T>(), object });
        forgotten
    }

    /// Holds an object; returns the objects that had to make room. An object above the byte limit is not
    /// held.
    fn hold(&mut self, object: Arc<Decoded>, bytes: usize) -> Vec<Arc<Decoded>> {
        let mut surplus = Vec::new();
        if bytes > BYTES {
            return surplus;
        }
        self.bytes += bytes;
        self.held.push_back((object, bytes));
        while (self.held.len() > HELD || self.bytes > BYTES)
            && let Some((oldest, bytes)) = self.held.pop_front()
        {
            self.bytes -= bytes;
            surplus.push(oldest);
        }
        surplus
    }
}

#[cfg(test)]
mod tests;
