//! The objects of one store that were decoded last, for whoever reads them next.
//!
//! A controller often reads what another one has just read, or reads the same object again a moment later. The newest few
//! are held for that; of some more it is known who else may hold them. Bounded thrice, because a decoded object is many
//! times as large as its JSON, and one that all have let go still takes its room for as long as it is known here: kept
//! with each version, that would be kilobytes for every object ever read.

use std::any::{Any, TypeId};
use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::view::Version;

/// Most objects held. With more of them, memory that has left the processor's cache is written at each decode: for
/// sixteen Pods a read of something new took half as long again.
const HELD: usize = 4;
/// Most JSON they were decoded from, in bytes; decoded they take some eight times as much.
const BYTES: usize = 32 * 1024;
/// Most objects known: what so many reconciles at once have in hand.
const KNOWN: usize = 32;

type Decoded = dyn Any + Send + Sync;

/// Holds and knows decoded objects, first in, first out.
#[derive(Default)]
pub(in crate::cache) struct Recent(Mutex<Lists>);

#[derive(Default)]
struct Lists {
    /// Oldest first, with the length of the JSON.
    held: VecDeque<(Arc<Decoded>, usize)>,
    /// The sum of the lengths.
    bytes: usize,
    /// Oldest first.
    known: VecDeque<Known>,
}

struct Known {
    /// Being named here, it cannot lend its address to another one.
    version: Weak<Version>,
    /// What the object is. Only the one that is asked for is upgraded, lest it be dropped under the lock.
    form: TypeId,
    object: Weak<Decoded>,
}

// === impl Recent ===

impl Recent {
    /// Returns the object that was decoded from this version as this type, if it is known and somebody holds it.
    pub(in crate::cache) fn find<T: Send + Sync + 'static>(&self, version: &Arc<Version>) -> Option<Arc<T>> {
        self.0.lock().find(version)
    }

    /// Takes an object that was decoded from so many bytes of JSON, and returns what all should share: itself, or what
    /// somebody else was faster with.
    pub(in crate::cache) fn share<T: Send + Sync + 'static>(
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
        let forgotten = lists.know::<T>(version, &erased);
        let surplus = lists.hold(erased, bytes);
        drop(lists);
        // A large object takes a while to drop, and what it runs on the way is the user's.
        drop((forgotten, surplus));
        object
    }
}

// === impl Lists ===

impl Lists {
    fn find<T: Send + Sync + 'static>(&self, version: &Arc<Version>) -> Option<Arc<T>> {
        let wanted = |known: &&Known| {
            known.version.as_ptr() == Arc::as_ptr(version) && known.form == TypeId::of::<T>()
        };
        // The newest first: an older one that nobody holds may be there still.
        self.known.iter().rev().find(wanted)?.object.upgrade()?.downcast().ok()
    }

    /// Returns what is not known any more.
    fn know<T: 'static>(&mut self, version: &Arc<Version>, object: &Arc<Decoded>) -> Option<Known> {
        let forgotten = if self.known.len() == KNOWN { self.known.pop_front() } else { None };
        let (version, object) = (Arc::downgrade(version), Arc::downgrade(object));
        self.known.push_back(Known { version, form: TypeId::of::<T>(), object });
        forgotten
    }

    /// Returns what is not held any more. An object that is larger than all that may be held is not held at all.
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
