//! How the JSON of one version is kept: as it came, or packed.
//!
//! A version keeps its body for life; how the body is kept changes under its readers, who see the same bytes
//! either way.

use bytes::Bytes;
use parking_lot::Mutex;

use super::pack::{Damage, Packed, Packing};

/// The JSON of one version, without managedFields.
pub(super) struct Body(Mutex<Form>);

/// Cheap to clone, so that the lock is held for the clone alone.
#[derive(Clone)]
pub(super) enum Form {
    /// As it is read.
    Plain(Bytes),
    Packed(Packed),
}

// === impl Body ===

impl Body {
    pub(super) fn plain(bytes: Bytes) -> Self {
        Self(Mutex::new(Form::Plain(bytes)))
    }

    /// Returns the JSON, for keeping. Costs a copy where it is packed.
    pub(super) fn bytes(&self) -> Result<Bytes, Damage> {
        match self.form() {
            Form::Plain(bytes) => Ok(bytes),
            Form::Packed(packed) => packed.read(Bytes::copy_from_slice),
        }
    }

    /// Looks at the JSON, for the call only.
    pub(super) fn read<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Result<T, Damage> {
        match self.form() {
            Form::Plain(bytes) => Ok(look(&bytes)),
            Form::Packed(packed) => packed.read(look),
        }
    }

    /// Returns how many bytes the kept form has.
    pub(super) fn len(&self) -> usize {
        match &*self.0.lock() {
            Form::Plain(bytes) => bytes.len(),
            Form::Packed(packed) => packed.len(),
        }
    }

    /// Returns how many bytes the JSON has.
    pub(super) fn plain_len(&self) -> usize {
        match &*self.0.lock() {
            Form::Plain(bytes) => bytes.len(),
            Form::Packed(packed) => packed.plain_len(),
        }
    }

    /// Returns the kept form.
    pub(super) fn form(&self) -> Form {
        self.0.lock().clone()
    }

    /// Keeps the same JSON in another form; returns the one it had.
    pub(super) fn replace(&self, form: Form) -> Form {
        std::mem::replace(&mut self.0.lock(), form)
    }
}

// === impl Packing ===

impl Packing {
    /// Counts a body that is stored, if it is packed.
    pub(super) fn add(&mut self, body: &Body) {
        if let Form::Packed(packed) = &*body.0.lock() {
            self.objects += 1;
            self.bytes += packed.len();
            self.plain_bytes += packed.plain_len();
        }
    }

    /// Takes out a body that is kept as it was when it was added.
    pub(super) fn take(&mut self, body: &Body) {
        if let Form::Packed(packed) = &*body.0.lock() {
            self.objects -= 1;
            self.bytes -= packed.len();
            self.plain_bytes -= packed.plain_len();
        }
    }
}
