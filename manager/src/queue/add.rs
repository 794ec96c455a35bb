//! What is said to a queue, and what it answers.

use std::time::Duration;

use crate::key::{Cause, Trigger};

/// How and why a key is added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add {
    /// Whether it ends a backoff.
    pub strength: Strength,
    /// Whether it goes before or behind the other fresh keys.
    pub band: Band,
    /// What happened.
    pub cause: Cause,
    /// The key is not to run before this time has passed; `None` for at once. The earliest of several adds holds. A key
    /// in its backoff then waits no longer than that, still as one that failed: no weak add ends the rest.
    pub after: Option<Duration>,
    /// The request's own object has a new generation, or is a new object: the failures so far no longer count. Makes
    /// the add strong.
    pub new_generation: bool,
}

/// Whether an add ends a backoff and wakes a parked key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strength {
    /// No: nothing has changed that a failing key could be waiting for.
    Weak,
    /// Yes: the world has changed.
    Strong,
}

/// How urgent an add is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// The initial list of a watch, or a resync. The only one that a full queue refuses.
    Background,
    /// A new object of the controller's own kind.
    New,
    /// Any other event.
    Live,
}

/// What became of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Added {
    /// The key is ready now, and was not before.
    Queued,
    /// The key waits for the moment that was asked for.
    Delayed,
    /// The key runs, and will run once more.
    Dirtied,
    /// The key was to run anyway, no later than asked for.
    Merged,
    /// The add was weak, and the key stays in its backoff or parked.
    Kept,
    /// The queue is full and the add was of a new key in the background: see [`WorkQueue::drained`](super::WorkQueue::drained).
    Refused,
    /// The queue takes no more adds.
    ShuttingDown,
}

/// What becomes of a key after a failed run.
#[must_use = "a parked key is not tried again, which somebody should be told"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retried {
    /// The next attempt is after this time; zero if a strong add came during the run.
    After(Duration),
    /// There is none until something changes.
    Parked,
}

/// In which order ready keys are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// Events, and keys whose last run asked for this moment.
    Live,
    /// New objects of the controller's own kind.
    New,
    /// Initial lists and resyncs.
    Background,
    /// Keys whose failure backoff has run out.
    Retry,
}

// === impl Add ===

impl Add {
    /// An add that says the world has changed.
    #[must_use]
    pub fn strong(cause: Cause) -> Self {
        Self { strength: Strength::Strong, band: Band::Live, cause, after: None, new_generation: false }
    }

    /// An add that a failing key need not care about.
    #[must_use]
    pub fn weak(cause: Cause) -> Self {
        Self { strength: Strength::Weak, ..Self::strong(cause) }
    }

    /// A strong add by a person.
    #[must_use]
    pub fn by_hand() -> Self {
        Self::strong(Cause::bare(Trigger::Manual))
    }

    /// Puts it behind live events and new objects.
    #[must_use]
    pub fn in_background(self) -> Self {
        Self { band: Band::Background, ..self }
    }

    /// Delays it.
    #[must_use]
    pub fn after(self, wait: Duration) -> Self {
        Self { after: Some(wait), ..self }
    }

    /// Says that the request's own object has a new generation.
    #[must_use]
    pub fn with_new_generation(self) -> Self {
        Self { new_generation: true, ..self }
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
