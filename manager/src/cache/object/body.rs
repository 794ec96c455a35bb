//! Stores the JSON of one version, plain or compressed, and counts the compressed ones.
//!
//! A version keeps its [`Body`] for life. The packer may replace the form of the body at any time; readers
//! get the same bytes from both forms.

use bytes::Bytes;
use parking_lot::Mutex;

use super::dictionary::{Damage, Packed};

/// The JSON of one version of an object, without `managedFields`, plain or compressed.
pub(crate) struct Body(Mutex<Form>);

/// The JSON of an object, plain or packed (compressed). Cheap to clone: a reader holds the lock only for the
/// clone.
#[derive(Clone)]
pub(crate) enum Form {
    /// The uncompressed JSON of the object.
    Plain(Bytes),
    Packed(Packed),
}

/// Statistics about the packed (compressed) bodies of one store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Packing {
    /// Number of objects with a packed (compressed) body.
    pub objects: usize,
    /// Bytes of the packed bodies of the store, as they are kept.
    pub bytes: usize,
    /// Bytes that the packed bodies of the store have when unpacked.
    pub plain_bytes: usize,
    /// Number of compression dictionaries in use, including the newest.
    pub dictionaries: usize,
    /// Bytes of the compression dictionaries in use, in both prepared forms.
    pub dictionary_bytes: usize,
}

// === impl Body ===

impl Body {
    pub(crate) fn plain(bytes: Bytes) -> Self {
        Self(Mutex::new(Form::Plain(bytes)))
    }

    /// Returns the JSON of the object as an owned buffer. Decompresses a packed body into a new allocation.
    pub(crate) fn bytes(&self) -> Result<Bytes, Damage> {
        match self.form() {
            Form::Plain(bytes) => Ok(bytes),
            Form::Packed(packed) => packed.read(Bytes::copy_from_slice),
        }
    }

    /// Calls `parse` with the JSON of the object, which is borrowed for this call only, and returns its
    /// result.
    pub(crate) fn read<T>(&self, parse: impl FnOnce(&[u8]) -> T) -> Result<T, Damage> {
        match self.form() {
            Form::Plain(bytes) => Ok(parse(&bytes)),
            Form::Packed(packed) => packed.read(parse),
        }
    }

    /// Returns the length of the object's body in bytes, as it is kept in memory: compressed if it is packed.
    pub(crate) fn len(&self) -> usize {
        match &*self.0.lock() {
            Form::Plain(bytes) => bytes.len(),
            Form::Packed(packed) => packed.len(),
        }
    }

    /// Returns the length of the object's JSON in bytes, uncompressed.
    pub(crate) fn plain_len(&self) -> usize {
        match &*self.0.lock() {
            Form::Plain(bytes) => bytes.len(),
            Form::Packed(packed) => packed.plain_len(),
        }
    }

    /// Returns the body in its current form, plain or packed.
    pub(crate) fn form(&self) -> Form {
        self.0.lock().clone()
    }

    /// Replaces the form of the body by another one of the same JSON; returns the previous form.
    pub(crate) fn replace(&self, form: Form) -> Form {
        std::mem::replace(&mut self.0.lock(), form)
    }
}

// === impl Packing ===

impl Packing {
    /// Returns the compression ratio of the packed bodies, plain bytes to packed bytes; `None` while no body
    /// is packed.
    #[expect(clippy::cast_precision_loss, reason = "a ratio has a few digits")]
    pub fn ratio(&self) -> Option<f64> {
        (self.bytes > 0).then(|| self.plain_bytes as f64 / self.bytes as f64)
    }

    /// Adds a stored body to these statistics, if the body is packed.
    pub(in crate::cache) fn add(&mut self, body: &Body) {
        if let Form::Packed(packed) = &body.form() {
            self.objects += 1;
            self.bytes += packed.len();
            self.plain_bytes += packed.plain_len();
        }
    }

    /// Subtracts a body from these statistics; it must have the form in which it was added.
    pub(in crate::cache) fn take(&mut self, body: &Body) {
        if let Form::Packed(packed) = &body.form() {
            self.objects -= 1;
            self.bytes -= packed.len();
            self.plain_bytes -= packed.plain_len();
        }
    }
}
