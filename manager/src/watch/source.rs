//! Where requests come from: a thing that runs beside the controller and feeds its queue.

use std::any::type_name;

use futures_util::future::BoxFuture;
use thiserror::Error;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Sink;
use crate::key::{Cause, Key, Trigger};
use crate::reconcile::BoxError;

/// Feeds the queue of one controller for as long as that controller lives.
pub trait Source<Q: Key>: Send + 'static {
    /// Runs until `stop` is cancelled, calling [`Sink::synced`] once everything that was there at the start is queued.
    ///
    /// # Errors
    /// An error ends the manager: a controller without one of its sources would be blind without knowing it.
    fn run(
        self: Box<Self>,
        sink: Sink<Q>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>>;

    /// Returns what errors and logs call this source, after the name of its controller. Asked once, before it runs.
    fn name(&self) -> String {
        type_name::<Self>().to_owned()
    }
}

/// A source could not go on.
#[derive(Debug, Error)]
#[error("source {name} ended")]
pub struct SourceError {
    /// What the source calls itself.
    pub name: String,
    /// Why it ended.
    #[source]
    pub source: BoxError,
}

/// Feeds a queue from the other half of [`channel`].
#[derive(Debug)]
pub struct ChannelSource<Q> {
    keys: mpsc::UnboundedReceiver<Q>,
}

/// Tells a controller from anywhere in the process that a key should be looked at. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Notifier<Q> {
    keys: mpsc::UnboundedSender<Q>,
}

/// Makes a source and the handle that feeds it.
///
/// Unbounded on purpose: the receiver does nothing but hand keys to a queue that keeps each only once, and a notifier
/// that could block would let a slow consumer stall, for example, every probe.
pub fn channel<Q: Key>() -> (Notifier<Q>, ChannelSource<Q>) {
    let (sender, receiver) = mpsc::unbounded_channel();
    (Notifier { keys: sender }, ChannelSource { keys: receiver })
}

// === impl Notifier ===

impl<Q: Key> Notifier<Q> {
    /// Asks for a look at `key`. After the controller has ended this does nothing.
    pub fn notify(&self, key: Q) {
        // The only failure is that nobody listens any more, which is what the doc says.
        drop(self.keys.send(key));
    }
}

// === impl ChannelSource ===

impl<Q: Key> Source<Q> for ChannelSource<Q> {
    fn run(
        mut self: Box<Self>,
        sink: Sink<Q>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            let add = |key| sink.add(key, Cause::bare(Trigger::Generic));
            // What was asked for before the start is there at the start. Counted first: it comes to an end however
            // fast more comes in.
            for _ in 0..self.keys.len() {
                self.keys.try_recv().into_iter().for_each(add);
            }
            sink.synced();
            loop {
                // Biased: a stop should not wait behind a full channel.
                let key = tokio::select! {
                    biased;
                    () = stop.cancelled() => return Ok(()),
                    key = self.keys.recv() => key,
                };
                let Some(key) = key else {
                    // Every notifier is gone: nothing will come any more, and nothing is wrong.
                    stop.cancelled().await;
                    return Ok(());
                };
                add(key);
            }
        })
    }

    fn name(&self) -> String {
        "channel".to_owned()
    }
}
