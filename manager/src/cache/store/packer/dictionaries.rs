//! The dictionaries of one store, for its statistics.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::cache::object::dictionary::Dictionary;
use crate::cache::object::packing::Packing;

/// Weak references to the dictionaries of a store: bodies and the packer keep them alive.
#[derive(Default)]
pub(crate) struct Dictionaries(Mutex<Vec<Weak<Dictionary>>>);

// === impl Dictionaries ===

impl Dictionaries {
    pub(super) fn put(&self, dictionary: &Arc<Dictionary>) {
        let mut shelved = self.0.lock();
        shelved.retain(|dictionary| dictionary.strong_count() > 0);
        shelved.push(Arc::downgrade(dictionary));
    }

    /// Adds the numbers of the dictionaries to the statistics of the packed bodies.
    pub(crate) fn packing(&self, bodies: Packing) -> Packing {
        let alive: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let dictionary_bytes = alive.iter().map(|dictionary| dictionary.bytes()).sum();
        Packing { dictionaries: alive.len(), dictionary_bytes, ..bodies }
    }
}
