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

/// Largest number of decoded objects that are held strongly. More of them are written to memory that has left
/// the processor's cache: with sixteen Pods, reading a new object took half as long again.
const HELD: usize = 4;
/// Largest number of bytes of JSON of the decoded objects that are held strongly; decoded, they take about
/// eight times as much.
const BYTES: usize = 32 * 1024;
/// Largest number of weak references to decoded objects: about as many as reconciles run at once.
const KNOWN: usize = 32;

type Decoded = dyn Any + Send + Sync;

/// The recently decoded objects of a store, oldest first.
#[derive(Default)]
pub(crate) struct Recent(Mutex<VecDeque<Known>>);

struct Known {
    /// The version of the object that was decoded. The weak reference keeps its address from being reused.
    version: Weak<Version>,
    /// The Rust type of the decoded object. Only a matching object is upgraded, because the last strong
    /// reference must not be dropped under the lock.
    type_id: TypeId,
    object: Weak<Decoded>,
    /// A strong reference to the decoded object, as long as it is among the newest few; never set for a large
    /// object.
    held: Option<Arc<Decoded>>,
    /// The length of the object's JSON in bytes.
    bytes: usize,
}

// === impl Recent ===

impl Recent {
    /// Returns the object decoded from this version as a `T`; `None` if it is not held anywhere any more.
    pub(crate) fn find<T: Send + Sync + 'static>(&self, version: &Arc<Version>) -> Option<Arc<T>> {
        find(&self.0.lock(), version)
    }

    /// Adds a decoded object; `bytes` is the length of its JSON. Returns the object for all readers to share:
    /// this one, or one that another thread has added meanwhile.
    pub(crate) fn share<T: Send + Sync + 'static>(
        &self,
        version: &Arc<Version>,
        object: Arc<T>,
        bytes: usize,
    ) -> Arc<T> {
        let mut all = self.0.lock();
        if let Some(known) = find(&all, version) {
            return known;
        }
        let surplus = add(&mut all, Arc::downgrade(version), TypeId::of::<T>(), object.clone(), bytes);
        drop(all);
        // Dropping a large object takes time and may run user code, so it happens outside the lock.
        drop(surplus);
        object
    }
}

fn find<T: Send + Sync + 'static>(all: &VecDeque<Known>, version: &Arc<Version>) -> Option<Arc<T>> {
    let wanted =
        |known: &&Known| known.version.as_ptr() == Arc::as_ptr(version) && known.type_id == TypeId::of::<T>();
    // Newest first: an older entry of the same version may have lost its object.
    all.iter().rev().find(wanted)?.object.upgrade()?.downcast().ok()
}

/// Adds a decoded object to the recent ones. Returns the references that had to make room: the oldest entry,
/// and the strong references of all but the newest few objects.
fn add(
    all: &mut VecDeque<Known>,
    version: Weak<Version>,
    type_id: TypeId,
    object: Arc<Decoded>,
    bytes: usize,
) -> (Option<Known>, Vec<Arc<Decoded>>) {
    let forgotten = if all.len() == KNOWN { all.pop_front() } else { None };
    let (weak, held) = (Arc::downgrade(&object), Some(object).filter(|_| bytes <= BYTES));
    all.push_back(Known { version, type_id, object: weak, held, bytes });
    let (mut objects, mut total) = (0, 0);
    let surplus = all.iter_mut().rev().filter(|known| known.held.is_some()).filter_map(|known| {
        (objects, total) = (objects + 1, total + known.bytes);
        if objects > HELD || total > BYTES { known.held.take() } else { None }
    });
    (forgotten, surplus.collect())
}

#[cfg(test)]
mod tests;
