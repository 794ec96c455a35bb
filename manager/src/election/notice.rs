//! What the holder of a Lease tells the other replicas besides, in an annotation of it.
//!
//! Written with each record, so it is never older than a renewal, and goes with the release. What it says is not the
//! election's business; electors of others leave it in place, so it has to say of which holder it is.

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;

/// The annotation.
pub const NOTICE: &str = "mainstay.dev/inspect";

/// Says what to write at this moment.
type Own = dyn Fn() -> Option<String> + Send + Sync;

/// What this replica tells while it holds the Lease, and what the Lease said when it was seen last. Cheap to clone; all
/// clones are one.
#[derive(Clone)]
pub struct Notice {
    own: Arc<Own>,
    seen: Arc<Mutex<Option<String>>>,
}

// === impl Notice ===

impl Notice {
    /// Tells what `own` returns, each time that the Lease is written. It must not wait.
    pub fn new(own: impl Fn() -> Option<String> + Send + Sync + 'static) -> Self {
        Self { own: Arc::new(own), seen: Arc::default() }
    }

    /// Returns what the Lease said when it was seen last, whoever wrote it.
    pub fn seen(&self) -> Option<String> {
        self.seen.lock().clone()
    }

    /// Has it see this, as if a Lease had said so.
    #[cfg(test)]
    pub(crate) fn is_seen(&self, text: &str) {
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
                lease.metadata.annotations.as_mut().map(|all| all.remove(NOTICE));
            }
        }
    }
}

/// Tells nothing.
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
