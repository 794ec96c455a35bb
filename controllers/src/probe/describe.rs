//! What the engine knows of a target and is about to do, for people who ask why an object waits.

use std::collections::BTreeSet;
use std::time::Duration;

use mainstay::key::Request;

use super::{Held, ProbeResult, Target, VerdictState};

/// Most of those who wait for the same that are named.
pub const MAX_NAMED: usize = 10;

/// One target of an object at one moment. Times are relative to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// What is probed.
    pub target: Target,
    /// The judgement, thresholds applied.
    pub state: VerdictState,
    /// How the last probe ended, also one that does not count for this object because of its delay.
    pub result: Option<ProbeResult>,
    /// For how long every probe has ended so.
    pub unchanged_for: Option<Duration>,
    /// Successes in a row at the end; 0 after a failure.
    pub successes: u32,
    /// Failures in a row at the end; 0 after a success.
    pub failures: u32,
    /// How long ago the last probe began.
    pub began: Option<Duration>,
    /// How long the last probe took; `None` while it lasts.
    pub took: Option<Duration>,
    /// What comes next.
    pub next: NextProbe,
    /// From the start of one probe to the start of the next, before jitter: longer than what the object asks for if the
    /// policy has a longer one, shorter if another object asks for that.
    pub period: Duration,
    /// How many other objects wait for the same.
    pub others: usize,
    /// The first [`MAX_NAMED`] of them.
    pub named: BTreeSet<Request>,
}

/// When a target is probed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextProbe {
    /// It is being probed.
    InFlight,
    /// In so long.
    In(Duration),
    /// It is due, and kept by a limit.
    Held(Held),
    /// It has no place among the targets of its namespace, by `probePolicy.maxTargetsPerNamespace`.
    NoPlace,
}

/// Returns the first few.
pub(super) fn first<'a>(requests: impl Iterator<Item = &'a Request>) -> BTreeSet<Request> {
    let mut named = BTreeSet::new();
    for request in requests {
        if named.len() < MAX_NAMED || named.last().is_some_and(|last| request < last) {
            named.insert(request.clone());
        }
        if named.len() > MAX_NAMED {
            named.pop_last();
        }
    }
    named
}
