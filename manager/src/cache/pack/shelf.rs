//! Statistics of packing in one store, for metrics and `/debug`.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::Dictionary;

/// Statistics of packing in one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packing {
    /// Objects whose bodies are packed.
    pub objects: usize,
    /// Bytes of their bodies as they are kept.
    pub bytes: usize,
    /// Bytes of their bodies as they are read.
    pub plain_bytes: usize,
    /// Dictionaries in use, the newest included.
    pub dictionaries: usize,
    /// Bytes of these dictionaries in both prepared forms.
    pub dictionary_bytes: usize,
}

/// The dictionaries of a store; they are alive as long as a body or the packer uses them.
#[derive(Default)]
pub(in crate::cache) struct Shelf(Mutex<Vec<Weak<Dictionary>>>);

// === impl Packing ===

impl Packing {
    /// Returns plain bytes per packed byte; `None` while no body is packed.
    #[expect(clippy::cast_precision_loss, reason = "a ratio has a few digits")]
    pub fn ratio(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.plain_bytes as f64 / self.bytes as f64)
    }
}

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
