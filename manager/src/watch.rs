//! Sources, event handlers and predicates: they turn changes into keys on the queue of a controller.
//!
//! A source runs for as long as its controller and enqueues keys through a [`Sink`]. [`StoreSource`] is the
//! one for objects in the cache: delta, then predicates, then handler, then queue. Handlers and predicates
//! are synchronous, read metadata without decoding, and run in the dispatcher of the store.

mod foreign;
mod handler;
mod predicate;
mod sink;
mod source;
mod store;
mod timed;

pub use foreign::{FunctionSource, function, stream, try_stream};
pub use handler::{Enqueue, EnqueueForObject, EnqueueForOwner, EventHandler, map, map_view};
pub use predicate::{
    AnnotationsChanged, DeletionRequested, FinalizersChanged, GenerationChanged, LabelsChanged, Predicate,
    ResourceVersionChanged, Verdict,
};
pub use sink::Sink;
pub(crate) use sink::{SourcePanics, SourcesSynced};
pub use source::{Notifier, Source, SourceFuture, channel};
pub use store::{StoreSource, Watched};
pub use timed::{Interval, interval};

#[cfg(test)]
mod tests;
