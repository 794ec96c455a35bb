//! Anything with a lifetime that is not a controller.

use std::fmt;

use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::reconcile::{BoxError, Context, Surroundings};

/// Something that runs beside the controllers: a server, a poller, a one-off job.
///
/// The first one that ends with an error ends the manager; one that ends well is simply over.
pub trait Runnable: Send + 'static {
    /// Returns what logs and errors call it.
    fn name(&self) -> &'static str;

    /// Returns whether it runs on the leader only, which is the default: work that two replicas must not do at the same
    /// time is the rule, and forgetting to say so would be found out late.
    fn needs_lease(&self) -> bool {
        true
    }

    /// Runs until `cx.stop` is cancelled or the work is over.
    fn run(self: Box<Self>, cx: RunContext) -> BoxFuture<'static, Result<(), BoxError>>;
}

/// What a runnable runs in.
#[derive(Clone)]
pub struct RunContext {
    /// Cancelled when the runnable is to end. Its future is dropped if it has not by the end of the grace period, or at
    /// once if the Lease is lost.
    pub stop: CancellationToken,
    /// Whether this replica leads, and every change of it: for a runnable that needs no Lease and yet does less without.
    pub leading: watch::Receiver<bool>,
    surroundings: Surroundings,
    /// Of the Lease if the runnable needs it, else 1.
    term: u64,
}

// === impl RunContext ===

impl RunContext {
    pub(super) fn new(
        stop: CancellationToken,
        leading: watch::Receiver<bool>,
        surroundings: Surroundings,
        term: u64,
    ) -> Self {
        Self { stop, leading, surroundings, term }
    }

    /// Returns what writes are made with: fenced by the Lease and of its term if the runnable needs it.
    pub fn context(&self) -> Context {
        self.surroundings.context().with_term(self.term)
    }
}

impl fmt::Debug for RunContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunContext").field("stop", &self.stop).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;

    use super::*;
    use crate::client::Recorder;
    use crate::metrics::Registry;

    #[tokio::test]
    async fn a_runnable_writes_in_the_term_it_was_started_in() {
        let silent = tower::service_fn(|_: http::Request<Body>| {
            std::future::pending::<Result<http::Response<Body>, Infallible>>()
        });
        let client = kube::Client::new(silent, "default");
        let (events, _writer) = Recorder::new("test", "me", client.clone(), &Registry::new());
        let surroundings = Surroundings::new(client, events, CancellationToken::new());
        let leading = watch::Sender::new(true).subscribe();
        let cx = RunContext::new(CancellationToken::new(), leading, surroundings, 7);
        assert_eq!(cx.context().term(), 7, "what an earlier term applied is applied again");
    }
}
