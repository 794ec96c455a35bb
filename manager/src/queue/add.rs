//! The arguments of an add, and the results of adds and failures.

use std::time::Duration;

use crate::key::{Cause, Trigger};

/// The arguments of an add of a key to a queue: how and why the key is added.
#[must_use]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Add {
    /// Whether the add ends a backoff and wakes a parked key (strong), or leaves such a key alone (weak).
    pub strength: Strength,
    /// The urgency of the add: live events go before new objects, and these before initial lists and resyncs.
    pub band: Band,
    /// The reason for the add: its trigger, such as an update or a resync, and the object behind it.
    pub cause: Cause,
    /// Delay before the key may run; `None` for no delay. The earliest of several adds wins. A key in its
    /// backoff then waits no longer than this time, but stays in backoff: a later add that reports no change
    /// does not end the rest of the wait.
    pub after: Option<Duration>,
    /// Whether the object of the key is new or has a new generation: then earlier failures no longer count,
    /// and the add is strong.
    pub new_generation: bool,
}

/// Whether an add ends a backoff and wakes a parked key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Strength {
    /// The add leaves a key in its backoff, or parked: it reports no change that a failing key could wait
    /// for.
    Weak,
    /// The add ends the backoff of a key, or wakes a parked one: it reports a change after which a run may
    /// succeed.
    Strong,
}

/// Urgency of an add, which decides the lane in which the key waits for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Band {
    /// An add for an object of the initial list of a watch, or for a resync. The least urgent band, and the
    /// only one that a full queue refuses.
    Background,
    /// An add for a new object of the controller's own kind: behind live events, before the background.
    New,
    /// An add for any event other than an initial list, a resync or a new object. The most urgent band.
    Live,
}

/// The result of adding a key to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Added {
    /// The key was not ready before, and by this add waits for a worker now.
    Queued,
    /// The key waits for the delay that the add requested.
    Delayed,
    /// A worker runs the key at present; because of this add the key runs once more afterwards.
    Dirtied,
    /// The key would have run anyway, no later than the add requested, so the add is merged into that run.
    Merged,
    /// The add was weak and had no effect: the key stays in its backoff, or parked.
    Kept,
    /// The queue is full, and the add was of a new key in the background band (an initial list or a resync):
    /// add the key again after [`WorkQueue::wait_for_room`](super::WorkQueue::wait_for_room).
    Refused,
    /// The queue shuts down and ignored the add.
    ShuttingDown,
}

/// The time of the next attempt of a key after a failed run, if there is one.
#[must_use = "a parked key is not tried again, which an event or a log line should report"]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retried {
    /// The failed key has its next attempt after this time; zero if an add during the run reported a change.
    After(Duration),
    /// The failed key is parked: it has no next attempt until an add that reports a change (a strong add).
    Parked,
}

/// The list in which a ready key waits for a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lane {
    /// The lane of keys added for live events, and of keys with a `RequeueAfter` that is over.
    Live,
    /// The lane of keys added for new objects of the controller's own kind.
    New,
    /// The lane of keys added for initial lists and resyncs.
    Background,
    /// The lane of failed keys with a backoff that is over.
    Retry,
}

// === impl Add ===

impl Add {
    /// Makes a strong add, for a change: it ends the backoff of a key and wakes a parked key.
    pub fn strong(cause: Cause) -> Self {
        Self { strength: Strength::Strong, band: Band::Live, cause, after: None, new_generation: false }
    }

    /// Makes a weak add, for an event that is no change: it leaves a failing key in its backoff, or parked.
    pub fn weak(cause: Cause) -> Self {
        Self { strength: Strength::Weak, ..Self::strong(cause) }
    }

    /// Makes an add for a manual request by a person. It is strong: it ends a backoff and wakes a parked key.
    pub fn by_hand() -> Self {
        Self::strong(Cause::bare(Trigger::Manual))
    }

    /// Returns this add in the background band: its key waits behind live events and new objects.
    pub fn in_background(self) -> Self {
        Self { band: Band::Background, ..self }
    }

    /// Returns this add with a delay of `wait` before the key runs.
    pub fn after(self, wait: Duration) -> Self {
        Self { after: Some(wait), ..self }
    }
}

// === impl Lane ===

impl Lane {
    /// Returns the name of the lane as a lower-case word, for JSON and tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::New => "new",
            Self::Background => "background",
            Self::Retry => "retry",
        }
    }
}
