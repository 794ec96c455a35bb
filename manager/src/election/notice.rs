//! A text that the holder of a Lease publishes in an annotation of it, and that the other replicas read there.
//!
//! Written with each record, so it is never older than a renewal, and removed with the release. The election does not look
//! at it. Electors that know nothing of it leave it in place, so it has to name its holder.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;

/// Name of the Lease annotation in which the leader publishes the address of its debug pages.
pub const NOTICE: &str = "mainstay.dev/inspect";

/// Says what to write at this moment.
type Own = dyn Fn() -> Option<String> + Send + Sync;

/// What this replica publishes while it holds the Lease, and what was in the Lease when it was read last. Cheap to clone; all
/// clones are one.
#[derive(Clone)]
pub struct Notice {
    own: Arc<Own>,
    seen: Arc<Mutex<Option<String>>>,
}

// === impl Notice ===

impl Notice {
    /// Publishes what `own` returns, each time that the Lease is written. It must not wait.
    pub fn new(own: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { own: Arc::new(own), seen: Arc::default() }
    }

    /// Returns what was in the Lease when it was read last, whoever wrote it.
    pub fn seen(&self) -> Option<String> {
        self.seen.lock().clone()
    }

    /// Sets what `seen` returns, as if it had been read.
    #[cfg(test)]
    pub(crate) fn set_seen(&self, text: &str) {
        *self.seen.lock() = Some(text.to_owned());
    }

    pub(super) fn read(&self, lease: &Lease) {
        let found = lease.metadata.annotations.as_ref().and_then(|all| all.get(NOTICE));
        self.seen.lock().clone_from(&found.cloned());
    }

    /// Puts our own into a Lease that is `held` by us, and takes any away from one that is released.
    pub(super) fn write_into(&self, lease: &mut Lease, held: bool) {
        match (self.own)().filter(|_| held) {
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

/// Publishes nothing.
impl Default for Notice {
    fn default() -> Self {
        Self::new(|| None)
    }
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notice").field("seen", &self.seen()).finish_non_exhaustive()
    }
}
