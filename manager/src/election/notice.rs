//! A text that the holder of a Lease publishes to the other replicas in an annotation of the Lease.
//!
//! Each renewal writes the notice and the release removes it, so it is at most one renewal old. No decision
//! of the election depends on it. Electors of other programs leave the annotation in place, so the text must
//! name its holder.

use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;

/// Name of the Lease annotation in which the leader publishes the address of its debug pages.
pub const NOTICE: &str = "mainstay.dev/inspect";

/// A function that returns the text to publish in the Lease now; `None` to publish no text.
type Own = dyn Fn() -> Option<String> + Send + Sync;

/// The text that this replica publishes in an annotation of the Lease while it holds it, and the text last
/// read from there. Clones share both. The default publishes no text.
#[derive(Clone, Default, derive_more::Debug)]
#[debug("Notice {{ seen: {:?}, .. }}", self.seen())]
pub struct Notice {
    /// Returns the text to publish in the Lease; `None` to publish no text.
    own: Option<Arc<Own>>,
    seen: Arc<Mutex<Option<String>>>,
}

// === impl Notice ===

impl Notice {
    /// Makes a notice that publishes in the Lease the text that `own` returns; `own` is called for each write
    /// of the Lease and must not block.
    pub fn new(own: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { own: Some(Arc::new(own)), seen: Arc::default() }
    }

    /// Returns the text, by any holder, in the Lease when it was last read; `None` if there was no text.
    pub fn seen(&self) -> Option<String> {
        self.seen.lock().clone()
    }

    /// Sets the text that [`seen`](Self::seen) returns, as if it had been read.
    #[cfg(test)]
    pub(crate) fn set_seen(&self, text: &str) {
        *self.seen.lock() = Some(text.to_owned());
    }

    pub(super) fn read(&self, lease: &Lease) {
        let found = lease.metadata.annotations.as_ref().and_then(|all| all.get(NOTICE));
        self.seen.lock().clone_from(&found.cloned());
    }

    /// Writes the text of this replica into a Lease to be `held`; removes any text from a Lease to be
    /// released.
    pub(super) fn write_into(&self, lease: &mut Lease, held: bool) {
        match self.own.as_ref().filter(|_| held).and_then(|own| own()) {
            Some(own) => {
                lease.metadata.annotations.get_or_insert_default().insert(NOTICE.to_owned(), own);
            }
            None => {
                if let Some(all) = &mut lease.metadata.annotations {
                    all.remove(NOTICE);
                }
            }
        }
    }
}
