//! How the JSON of one version is kept: as it came, or packed.
//!
//! A version keeps its body for life; how the body is kept changes under its readers, who see the same bytes
//! either way.

use bytes::Bytes;
use parking_lot::Mutex;

use super::dictionary::{Damage, Packed};

/// The JSON of one version, without managedFields.
pub(in crate::cache) struct Body(Mutex<Form>);

/// Cheap to clone, so that the lock is held for the clone alone.
#[derive(Clone)]
pub(in crate::cache) enum Form {
    /// As it is read.
    Plain(Bytes),
    Packed(Packed),
}

// === impl Body ===

impl Body {
    pub(in crate::cache) fn plain(bytes: Bytes) -> Self {
        Self(Mutex::new(Form::Plain(bytes)))
    }

    /// Returns the JSON, for keeping. Costs a copy where it is packed.
    pub(in crate::cache) fn bytes(&self) -> Result<Bytes, Damage> {
        match self.form() {
            Form::Plain(bytes) => Ok(bytes),
            Form::Packed(packed) => packed.read(Bytes::copy_from_slice),
        }
    }

    /// Looks at the JSON, for the call only.
    pub(in crate::cache) fn read<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Result<T, Damage> {
        match self.form() {
            Form::Plain(bytes) => Ok(look(&bytes)),
            Form::Packed(packed) => packed.read(look),
        }
    }

    /// Returns how many bytes the kept form has.
    pub(in crate::cache) fn len(&self) -> usize {
        match &*self.0.lock() {
            Form::Plain(bytes) => bytes.len(),
            Form::Packed(packed) => packed.len(),
        }
    }

    /// Returns how many bytes the JSON has.
    pub(in crate::cache) fn plain_len(&self) -> usize {
        match &*self.0.lock() {
            Form::Plain(bytes) => bytes.len(),
            Form::Packed(packed) => packed.plain_len(),
        }
    }

    /// Returns the kept form.
    pub(in crate::cache) fn form(&self) -> Form {
        self.0.lock().clone()
    }

    /// Keeps the same JSON in another form; returns the one it had.
    pub(in crate::cache) fn replace(&self, form: Form) -> Form {
        std::mem::replace(&mut self.0.lock(), form)
    }
}
