//! Packing of one batch, and training of a dictionary: the work on a thread of the blocking pool.

use std::sync::Arc;

use crate::cache::object::{Compressor, Dictionary, Form, Packed, Samples, View};

/// A new compression dictionary, measured on samples that were not used to train it.
pub(super) struct Trained {
    pub(super) dictionary: Arc<Dictionary>,
    /// The sizes of the measured samples, packed with the new dictionary.
    pub(super) new: Sizes,
    /// The sizes of the measured samples, packed with the previous dictionary; zero without one.
    pub(super) old: Sizes,
}

/// The total size of some bodies in bytes: uncompressed (plain), and as they are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    pub(super) plain: usize,
    pub(super) kept: usize,
}

/// The result of packing one batch of bodies.
#[derive(Default)]
pub(super) struct Batch {
    /// The versions of objects that were packed, with their packed bodies.
    pub(super) packed: Vec<(View, Packed)>,
    /// The total size of the bodies of the batch that were tried, plain and packed.
    pub(super) sizes: Sizes,
}

/// Largest packed size, in percent of the plain bytes, at which packing pays: under `Pack::Auto` for a kind
/// as a whole, and always for each single body.
pub(super) const MAX_PACKED_PERCENT: usize = 66;
/// Largest size of bodies packed with a new dictionary, in percent of their size with the old one, at which
/// the new dictionary is used: all bodies are packed again for it.
const MAX_RETRAINED_PERCENT: usize = 95;

// === impl Batch ===

impl Batch {
    /// Packs the body of `view` in this batch, unless it is packed with this dictionary already, is not
    /// stored any more, or hardly shrinks.
    pub(super) fn pack(&mut self, dictionary: &Arc<Dictionary>, compressor: &mut Compressor, view: View) {
        if !view.is_held_elsewhere() {
            return;
        }
        let (plain, packed) = match view.body().form() {
            Form::Plain(plain) => (plain.len(), dictionary.pack(compressor, &plain)),
            Form::Packed(packed) if packed.is_of(dictionary) => return,
            // A damaged body stays as it is: its reader gets the error.
            Form::Packed(packed) => {
                (packed.plain_len(), packed.read(|plain| dictionary.pack(compressor, plain)).ok().flatten())
            }
        };
        let packed = packed.filter(|packed| packed.len() <= percent(plain, MAX_PACKED_PERCENT));
        self.sizes.add(plain, packed.as_ref().map_or(plain, Packed::len));
        self.packed.extend(packed.map(|packed| (view, packed)));
    }
}

// === impl Trained ===

impl Trained {
    /// Trains a dictionary on the bodies of `views` and measures it, also against `old`; `None` if memory
    /// runs out.
    pub(super) fn measure(
        number: u32,
        views: &[View],
        old: Option<&Arc<Dictionary>>,
        compressor: &mut Compressor,
    ) -> Option<Self> {
        let mut samples = Samples::default();
        for view in views {
            // A damaged body is skipped.
            view.body().read(|plain| samples.add(plain)).unwrap_or_default();
        }
        let dictionary = Arc::new(Dictionary::train(number, &samples)?);
        let (mut new, mut before) = (Sizes::default(), Sizes::default());
        for plain in samples.held_out() {
            new.add(plain.len(), dictionary.pack(compressor, plain)?.len());
            if let Some(old) = old {
                before.add(plain.len(), old.pack(compressor, plain)?.len());
            }
        }
        Some(Self { dictionary, new, old: before })
    }

    /// Returns whether the new dictionary saves enough to pack all bodies of the store again.
    pub(super) fn is_better(&self) -> bool {
        self.new.kept <= percent(self.old.kept, MAX_RETRAINED_PERCENT)
    }
}

// === impl Sizes ===

impl Sizes {
    pub(super) fn add(&mut self, plain: usize, kept: usize) {
        self.plain += plain;
        self.kept += kept;
    }

    pub(super) fn has_half_the_ratio_of(self, other: Self) -> bool {
        // plain / kept <= other.plain / other.kept / 2, without dividing.
        let left = self.plain.saturating_mul(other.kept).saturating_mul(2);
        left <= other.plain.saturating_mul(self.kept)
    }
}

pub(super) fn percent(of: usize, percent: usize) -> usize {
    (of / 100).saturating_mul(percent)
}
