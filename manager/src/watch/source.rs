//! The trait of sources, and a source that is fed from anywhere in the process.

use std::any::type_name;

use futures_util::future::BoxFuture;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Sink;
use super::foreign::FunctionSource;
use crate::key::{Cause, Key, Trigger};
use crate::reconcile::BoxError;

/// A source: enqueues keys for one controller for as long as the controller runs.
pub trait Source<Q: Key>: Send + 'static {
    /// Runs the source until `stop` is cancelled. Calls [`Sink::synced`] once every object that existed at
    /// the start is enqueued.
    ///
    /// # Errors
    /// An error ends the manager, because a controller without one of its sources would miss changes
    /// unnoticed.
    fn run(self: Box<Self>, sink: Sink<Q>, stop: CancellationToken) -> SourceFuture;

    /// Returns the name of this source in errors and logs, where it follows the name of the controller.
    /// Called once.
    fn name(&self) -> String {
        type_name::<Self>().to_owned()
    }
}

/// The future that runs a source, from its start to its end.
pub type SourceFuture = BoxFuture<'static, Result<(), BoxError>>;

/// A handle that enqueues keys of a controller from anywhere in the process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Notifier<Q> {
    keys: mpsc::UnboundedSender<Q>,
}

/// Makes a source of keys and the handle that enqueues through it.
///
/// Unbounded on purpose: the receiver only passes keys to a queue that keeps each key once, and a notifier
/// that could block would let a slow controller stall, for example, every probe.
pub fn channel<Q: Key>() -> (Notifier<Q>, impl Source<Q>) {
    let (sender, mut keys) = mpsc::unbounded_channel();
    let run = move |sink: Sink<Q>, stop: CancellationToken| async move {
        let add = |key| sink.add(key, Cause::bare(Trigger::Generic));
        // Keys that were sent before the start belong to the initial sync. Their number is read first, so
        // that the sync comes however fast more are sent.
        for _ in 0..keys.len() {
            keys.try_recv().into_iter().for_each(add);
        }
        sink.synced();
        // A stop does not wait behind a full channel: the token is read before each key.
        while let Some(Some(key)) = stop.run_until_cancelled(keys.recv()).await {
            add(key);
        }
        // The end of the channel is no error: every notifier was dropped.
        stop.cancelled().await;
        Ok(())
    };
    (Notifier { keys: sender }, FunctionSource { name: "channel".to_owned(), run, syncs_itself: true })
}

// === impl Notifier ===

impl<Q: Key> Notifier<Q> {
    /// Enqueues `key` on the queue of the controller. No effect after the controller has ended.
    pub fn notify(&self, key: Q) {
        // Fails only after the controller has ended.
        drop(self.keys.send(key));
    }
}
