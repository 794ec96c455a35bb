//! What packing comes to in one store, for those who count.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::{Dictionary, Press};
use crate::cache::body::Tally;

/// What packing comes to in one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packing {
    /// Objects whose bodies are packed.
    pub objects: usize,
    /// Bytes of their bodies as they are kept.
    pub bytes: usize,
    /// Bytes of their bodies as they are read.
    pub plain_bytes: usize,
    /// Dictionaries that some body needs, the newest included.
    pub dictionaries: usize,
    /// Bytes of everything prepared from them.
    pub dictionary_bytes: usize,
}

/// What a store says about its dictionaries.
#[derive(Debug, Default)]
pub(in crate::cache) struct Shelf(Mutex<Shelved>);

/// Nothing here keeps anything alive.
#[derive(Debug, Default)]
struct Shelved {
    dictionaries: Vec<Weak<Dictionary>>,
    press: Weak<Press>,
}

// === impl Packing ===

impl Packing {
    /// Returns how many bytes one stands for; `None` where nothing is packed.
    #[expect(clippy::cast_precision_loss, reason = "a ratio has a few digits")]
    pub fn ratio(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.plain_bytes as f64 / self.bytes as f64)
    }
}

// === impl Shelf ===

impl Shelf {
    pub(super) fn put(&self, press: &Arc<Press>) {
        let mut shelved = self.0.lock();
        shelved.dictionaries.retain(|dictionary| dictionary.strong_count() > 0);
        shelved.dictionaries.push(Arc::downgrade(press.dictionary()));
        shelved.press = Arc::downgrade(press);
    }

    pub(in crate::cache) fn packing(&self, tally: Tally) -> Packing {
        let shelved = self.0.lock();
        let press = shelved.press.upgrade().map_or(0, |press| press.bytes());
        let alive = shelved.dictionaries.iter().filter_map(Weak::upgrade);
        let (dictionaries, dictionary_bytes) =
            alive.fold((0, press), |(count, bytes), one| (count + 1, bytes + one.bytes()));
        let Tally { objects, kept, plain } = tally;
        Packing { objects, bytes: kept, plain_bytes: plain, dictionaries, dictionary_bytes }
    }
}
