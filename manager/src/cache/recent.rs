//! The objects of one store that were decoded last, kept for who reads them next.
//!
//! A version remembers its decoded form for as long as somebody holds it. Here a few are held for everybody: a
//! controller often reads what another one has just read, or reads the same object again a moment later. Bounded twice,
//! because decoded objects are many times as large as their JSON.

use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;

/// Most objects held. With more of them, memory that has left the processor's cache is written at each decode: for
/// sixteen Pods a read of something new took half as long again.
const OBJECTS: usize = 4;
/// Most JSON they were decoded from, in bytes; decoded they take some eight times as much.
const BYTES: usize = 32 * 1024;

/// Holds decoded objects, first in, first out.
#[derive(Default)]
pub(super) struct Recent(Mutex<Held>);

#[derive(Default)]
struct Held {
    /// Oldest first, with the length of the JSON.
    objects: VecDeque<(Arc<dyn Any + Send + Sync>, usize)>,
    /// The sum of the lengths.
    bytes: usize,
}

// === impl Recent ===

impl Recent {
    /// Holds an object that was decoded from so many bytes of JSON. One that is larger than all that may be held is not.
    pub(super) fn hold(&self, object: Arc<dyn Any + Send + Sync>, bytes: usize) {
        if bytes > BYTES {
            return;
        }
        let mut surplus = Vec::new();
        let mut held = self.0.lock();
        held.bytes += bytes;
        held.objects.push_back((object, bytes));
        while (held.objects.len() > OBJECTS || held.bytes > BYTES)
            && let Some((oldest, bytes)) = held.objects.pop_front()
        {
            held.bytes -= bytes;
            surplus.push(oldest);
        }
        drop(held);
        // A large object takes a while to drop, and what it runs on the way is the user's.
        drop(surplus);
    }
}

impl fmt::Debug for Recent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.0.lock();
        f.debug_struct("Recent").field("objects", &held.objects.len()).field("bytes", &held.bytes).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(recent: &Recent) -> (usize, usize) {
        let held = recent.0.lock();
        (held.objects.len(), held.bytes)
    }

    #[test]
    fn the_oldest_goes_when_there_are_too_many() {
        let recent = Recent::default();
        let first: Arc<dyn Any + Send + Sync> = Arc::new(0);
        recent.hold(first.clone(), 1);
        for number in 1..OBJECTS {
            recent.hold(Arc::new(number), 1);
        }
        assert_eq!((held(&recent), Arc::strong_count(&first)), ((OBJECTS, OBJECTS), 2));
        recent.hold(Arc::new("next"), 1);
        assert_eq!((held(&recent), Arc::strong_count(&first)), ((OBJECTS, OBJECTS), 1));
    }

    #[test]
    fn a_large_object_takes_the_place_of_many_and_a_huge_one_of_none() {
        let recent = Recent::default();
        for number in 0..4 {
            recent.hold(Arc::new(number), BYTES / 4);
        }
        recent.hold(Arc::new("huge"), BYTES + 1);
        assert_eq!(held(&recent), (4, BYTES));
        recent.hold(Arc::new("large"), BYTES / 2);
        assert_eq!(held(&recent), (3, BYTES));
    }
}
