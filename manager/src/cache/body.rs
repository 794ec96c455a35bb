//! How the JSON of one version is kept.
//!
//! A version keeps its body for life; how the body is kept may change under its readers, who see the same bytes
//! either way.

use bytes::Bytes;
use parking_lot::Mutex;

/// The JSON of one version, without managedFields.
#[derive(Debug)]
pub(super) struct Body(Mutex<Form>);

/// Cheap to clone, so that the lock is held for the clone alone.
#[derive(Clone, Debug)]
enum Form {
    /// As it is read.
    Plain(Bytes),
}

/// The kept form cannot be turned into JSON again: memory was overwritten, or there is a defect here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the packed form is damaged: {0}")]
pub struct Damage(String);

// === impl Body ===

impl Body {
    pub(super) fn plain(bytes: Bytes) -> Self {
        Self(Mutex::new(Form::Plain(bytes)))
    }

    /// Returns the JSON, for keeping.
    #[expect(clippy::unnecessary_wraps, reason = "only a packed form can be damaged")]
    pub(super) fn bytes(&self) -> Result<Bytes, Damage> {
        match self.form() {
            Form::Plain(bytes) => Ok(bytes),
        }
    }

    /// Looks at the JSON, for the call only.
    #[expect(clippy::unnecessary_wraps, reason = "only a packed form can be damaged")]
    pub(super) fn read<T>(&self, look: impl FnOnce(&[u8]) -> T) -> Result<T, Damage> {
        match self.form() {
            Form::Plain(bytes) => Ok(look(&bytes)),
        }
    }

    /// Returns how many bytes the kept form has.
    pub(super) fn len(&self) -> usize {
        match &*self.0.lock() {
            Form::Plain(bytes) => bytes.len(),
        }
    }

    fn form(&self) -> Form {
        self.0.lock().clone()
    }
}
