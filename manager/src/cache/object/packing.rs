//! Statistics about packed bodies, for metrics and `/debug`.

use super::body::{Body, Form};

/// Statistics about the packed bodies of one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packing {
    /// Objects with a packed body.
    pub objects: usize,
    /// Bytes of these bodies, packed.
    pub bytes: usize,
    /// Bytes of these bodies, unpacked.
    pub plain_bytes: usize,
    /// Dictionaries in use, including the newest.
    pub dictionaries: usize,
    /// Bytes of these dictionaries, in both prepared forms.
    pub dictionary_bytes: usize,
}

// === impl Packing ===

impl Packing {
    /// Returns the ratio of plain bytes to packed bytes; `None` while no body is packed.
    #[expect(clippy::cast_precision_loss, reason = "a ratio has a few digits")]
    pub fn ratio(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.plain_bytes as f64 / self.bytes as f64)
    }

    /// Adds a stored body, if it is packed.
    pub(in crate::cache) fn add(&mut self, body: &Body) {
        if let Form::Packed(packed) = &body.form() {
            self.objects += 1;
            self.bytes += packed.len();
            self.plain_bytes += packed.plain_len();
        }
    }

    /// Subtracts a body, which must have the form in which it was added.
    pub(in crate::cache) fn take(&mut self, body: &Body) {
        if let Form::Packed(packed) = &body.form() {
            self.objects -= 1;
            self.bytes -= packed.len();
            self.plain_bytes -= packed.plain_len();
        }
    }
}
