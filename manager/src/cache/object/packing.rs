//! Statistics of packing in one store, for metrics and `/debug`.

use super::body::{Body, Form};

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

// === impl Packing ===

impl Packing {
    /// Returns plain bytes per packed byte; `None` while no body is packed.
    #[expect(clippy::cast_precision_loss, reason = "a ratio has a few digits")]
    pub fn ratio(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.plain_bytes as f64 / self.bytes as f64)
    }

    /// Counts a body that is stored, if it is packed.
    pub(in crate::cache) fn add(&mut self, body: &Body) {
        if let Form::Packed(packed) = &body.form() {
            self.objects += 1;
            self.bytes += packed.len();
            self.plain_bytes += packed.plain_len();
        }
    }

    /// Takes out a body that is kept as it was when it was added.
    pub(in crate::cache) fn take(&mut self, body: &Body) {
        if let Form::Packed(packed) = &body.form() {
            self.objects -= 1;
            self.bytes -= packed.len();
            self.plain_bytes -= packed.plain_len();
        }
    }
}
