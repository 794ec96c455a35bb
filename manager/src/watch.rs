//! Sources, event handlers and predicates: they turn changes into keys on the queue of a controller.
//!
//! A source runs for as long as its controller and enqueues keys through a [`Sink`]. [`StoreSource`] is the one for
//! objects in the cache: delta, then predicates, then handler, then queue. Handlers and predicates are synchronous, read
//! metadata without decoding, and run in the dispatcher of the store.

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
