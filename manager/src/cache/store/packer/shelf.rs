//! The dictionaries of one store.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use crate::cache::object::dictionary::Dictionary;
use crate::cache::object::packing::Packing;

/// The dictionaries of a store; they are alive as long as a body or the packer uses them.
#[derive(Default)]
pub(in crate::cache) struct Shelf(Mutex<Vec<Weak<Dictionary>>>);

// === impl Shelf ===

impl Shelf {
    pub(super) fn put(&self, dictionary: &Arc<Dictionary>) {
        let mut shelved = self.0.lock();
        shelved.retain(|dictionary| dictionary.strong_count() > 0);
        shelved.push(Arc::downgrade(dictionary));
    }

    /// Adds its dictionaries to what the packed bodies of the store come to.
    pub(in crate::cache) fn packing(&self, bodies: Packing) -> Packing {
        let alive: Vec<_> = self.0.lock().iter().filter_map(Weak::upgrade).collect();
        let dictionary_bytes = alive.iter().map(|dictionary| dictionary.bytes()).sum();
        Packing { dictionaries: alive.len(), dictionary_bytes, ..bodies }
    }
}
