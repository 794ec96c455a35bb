//! The arguments of an add, and the results of adds and failures.

use std::time::Duration;

use crate::key::{Cause, Trigger};

/// How and why a key is added.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add {
    /// Whether the add ends a backoff.
    pub strength: Strength,
    /// Whether the key goes before or behind the other fresh keys.
    pub band: Band,
    /// The event behind the add.
    pub cause: Cause,
    /// Delays the run by at least this time; `None` for no delay. The earliest of several adds wins. A key in
    /// its backoff then waits no longer than this time, but stays in backoff: no weak add ends the rest of
    /// the wait.
    pub after: Option<Duration>,
    /// The object of the key has a new generation, or is a new object: earlier failures no longer count.
    /// Makes the add strong.
    pub new_generation: bool,
}

/// Whether an add ends a backoff and wakes a parked key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strength {
    /// No: a change that a failing key could wait for has not happened.
    Weak,
    /// Yes: the world has changed.
    Strong,
}

/// How urgent an add is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// The initial list of a watch, or a resync. The only band that a full queue refuses.
    Background,
    /// A new object of the controller's own kind.
    New,
    /// Any other event.
    Live,
}

/// The result of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Added {
    /// The key is ready now, and was not before.
    Queued,
    /// The key is delayed, as the add asked.
    Delayed,
    /// The key runs, and will run once more.
    Dirtied,
    /// The key runs anyway, no later than the add asked.
    Merged,
    /// The add was weak, and the key stays in backoff or parked.
    Kept,
    /// The queue is full, and the add was of a new key in the background: add it again after
    /// [`WorkQueue::wait_for_room`](super::WorkQueue::wait_for_room).
    Refused,
    /// The queue shuts down and ignored the add.
    ShuttingDown,
}

/// The next attempt of a key after a failed run.
#[must_use = "a parked key is not tried again, which an event or a log line should report"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retried {
    /// The next attempt is after this time; zero if a strong add came during the run.
    After(Duration),
    /// There is no next attempt until a strong add.
    Parked,
}

/// The list in which a ready key waits for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Keys of events, and keys with a `RequeueAfter` that is over.
    Live,
    /// Keys of new objects of the controller's own kind.
    New,
    /// Keys of initial lists and resyncs.
    Background,
    /// Keys with a backoff that is over.
    Retry,
}

// === impl Add ===

impl Add {
    /// Makes an add for a change: it ends a backoff and wakes a parked key.
    pub fn strong(cause: Cause) -> Self {
        Self { strength: Strength::Strong, band: Band::Live, cause, after: None, new_generation: false }
    }

    /// Makes an add that leaves a failing key in its backoff or parked.
    pub fn weak(cause: Cause) -> Self {
        Self { strength: Strength::Weak, ..Self::strong(cause) }
    }

    /// Makes a strong add on behalf of a person.
    pub fn by_hand() -> Self {
        Self::strong(Cause::bare(Trigger::Manual))
    }

    /// Puts the key behind live events and new objects.
    pub fn in_background(self) -> Self {
        Self { band: Band::Background, ..self }
    }

    /// Delays the run by `wait`.
    pub fn after(self, wait: Duration) -> Self {
        Self { after: Some(wait), ..self }
    }
}

// === impl Lane ===

impl Lane {
    /// Returns the lower-case word used in JSON and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::New => "new",
            Self::Background => "background",
            Self::Retry => "retry",
        }
    }
}
