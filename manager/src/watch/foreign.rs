//! Sources made from a stream of keys or from a function.

use std::convert::Infallible;

use futures_util::{Stream, StreamExt as _, pin_mut};
use tokio::task::coop::consume_budget;
use tokio_util::sync::CancellationToken;

use super::{Sink, Source, SourceFuture};
use crate::key::{Cause, Key, Trigger};
use crate::reconcile::BoxError;

/// A source of keys that runs a function. Made by [`function`].
#[derive(derive_more::Debug)]
#[debug("FunctionSource {{ name: {:?}, .. }}", self.name)]
pub struct FunctionSource<F> {
    pub(super) name: String,
    pub(super) run: F,
    pub(super) syncs_itself: bool,
}

/// Makes a source that enqueues every key of a stream. Counts as synced at once; the end of the stream is no
/// error.
pub fn stream<Q: Key>(keys: impl Stream<Item = Q> + Send + 'static) -> impl Source<Q> {
    of_stream("stream".to_owned(), keys.map(Ok::<Q, Infallible>))
}

/// Makes a source that enqueues every key of a stream that can fail. The first error of the stream ends the
/// source, and with it the manager, under `name`. Otherwise as [`stream`].
pub fn try_stream<Q, E>(
    name: &'static str,
    keys: impl Stream<Item = Result<Q, E>> + Send + 'static,
) -> impl Source<Q>
where
    Q: Key,
    E: Into<BoxError> + 'static,
{
    of_stream(format!("stream {name}"), keys)
}

fn of_stream<Q, E>(name: String, keys: impl Stream<Item = Result<Q, E>> + Send + 'static) -> impl Source<Q>
where
    Q: Key,
    E: Into<BoxError> + 'static,
{
    let run = move |sink: Sink<Q>, stop: CancellationToken| async move {
        // Converted into the boxed error first, because the error of the stream need not be `Send`.
        let keys = keys.map(|key| key.map_err(Into::into)).take_until(stop.cancelled_owned());
        pin_mut!(keys);
        while let Some(key) = keys.next().await {
            sink.add(key?, Cause::bare(Trigger::Generic));
            // Without this, a stream that always has a key would block all other tasks of its thread.
            consume_budget().await;
        }
        Ok(())
    };
    FunctionSource { name, run, syncs_itself: false }
}

/// Makes a source that runs a function. The function should return when its token is cancelled, and may
/// return earlier; an error ends the manager under `name`.
///
/// The source counts as synced at once, unless [`FunctionSource::syncs_itself`].
pub fn function<Q, F, W>(name: &'static str, run: F) -> FunctionSource<F>
where
    Q: Key,
    F: FnOnce(Sink<Q>, CancellationToken) -> W + Send + 'static,
    W: Future<Output = Result<(), BoxError>> + Send,
{
    FunctionSource { name: format!("function {name}"), run, syncs_itself: false }
}

// === impl FunctionSource ===

impl<F> FunctionSource<F> {
    /// Makes the function responsible for the call of [`Sink::synced`]; the controller does not reconcile
    /// before it.
    #[must_use]
    pub fn syncs_itself(mut self) -> Self {
        self.syncs_itself = true;
        self
    }
}

impl<Q, F, W> Source<Q> for FunctionSource<F>
where
    Q: Key,
    F: FnOnce(Sink<Q>, CancellationToken) -> W + Send + 'static,
    W: Future<Output = Result<(), BoxError>> + Send,
{
    fn run(self: Box<Self>, sink: Sink<Q>, stop: CancellationToken) -> SourceFuture {
        let Self { run, syncs_itself, .. } = *self;
        Box::pin(async move {
            if !syncs_itself {
                sink.synced();
            }
            run(sink, stop).await
        })
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}
