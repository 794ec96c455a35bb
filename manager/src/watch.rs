//! How what happens becomes requests: sources, event handlers and predicates.
//!
//! A source runs for as long as its controller and puts keys on that controller's queue through a [`Sink`]. For
//! objects in the cache that is done by [`StoreSource`]: delta, then predicates, then handler, then queue. Handlers and
//! predicates are synchronous, see metadata without decoding anything, and run in the task that delivers the delta.

mod foreign;
mod handler;
mod metrics;
mod predicate;
mod sink;
mod source;
mod store;
mod timed;

pub use foreign::{FunctionSource, function, stream, try_stream};
pub use handler::{Enqueue, EnqueueForObject, EnqueueForOwner, EventHandler, map, map_view};
pub(crate) use metrics::SourceMetrics;
pub use predicate::{
    And, AnnotationsChanged, DeletionRequested, FinalizersChanged, GenerationChanged, LabelsChanged, Not, Or,
    Predicate, ResourceVersionChanged, Verdict,
};
pub use sink::{NeverSynced, Sink, SourcesSynced};
pub use source::{ChannelSource, Notifier, Source, SourceError, channel};
pub use store::{StoreSource, Watched};
pub use timed::{Interval, interval};

#[cfg(test)]
mod tests;
