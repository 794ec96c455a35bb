//! `/debug/controllers`: every running controller, by name. `/debug/controllers/NAME/queue`: the keys of one
//! queue, failing keys first.
//!
//! The default order: keys in backoff, parked, with a worker (running and dirty), ready, requeued. Among
//! delayed keys the soonest is first, among others the key that has been in its state for longest; equal keys
//! are sorted by their texts. A limit cuts off the end.

use std::cmp::{Ordering, Reverse};
use std::time::Duration;

use super::pages::{Controller, Controllers, Counts, Queued, Ready, Row};
use super::query::{Query, Sort};
use super::seconds;
use crate::controller::{ControllerStatus, ControllerView, Directory, KeyText};
use crate::queue::{self, KeySnapshot, State};

/// Selects the first `limit` keys of any number of a queue's keys, in memory for twice as many.
struct FirstKeys {
    /// The most keys to select; at least 1.
    limit: usize,
    sort: Sort,
    /// How many keys of the queue were offered.
    matched: usize,
    /// The keys kept so far: at most twice `limit`, among them the first `limit` of the offered keys.
    kept: Vec<KeySnapshot<KeyText>>,
}

pub(super) fn controllers(directory: &Directory) -> Controllers {
    let controllers = directory.all();
    Controllers { controllers: controllers.iter().map(|controller| controller.status().into()).collect() }
}

pub(super) fn queue(controller: &dyn ControllerView, query: &Query) -> Queued {
    let status = controller.status();
    let mut first = FirstKeys { limit: query.limit, sort: query.sort, matched: 0, kept: Vec::new() };
    controller.visit(&query.wanted, &mut |key| {
        if query.after.as_ref().is_none_or(|after| key.key.text > *after) {
            first.offer(key);
        }
    });
    let (matched, keys) = first.into_sorted();
    let truncated = keys.len() < matched;
    let last = keys.last().filter(|_| truncated && query.sort == Sort::Name);
    Queued {
        controller: status.name.to_string().into(),
        leading: status.leading,
        queue: status.counts.into(),
        matched,
        truncated,
        next: last.map(|last| last.key.text.clone()),
        keys: keys.into_iter().map(Row::from).collect(),
    }
}

// === impl Controller, Counts ===

impl From<ControllerStatus> for Controller {
    fn from(status: ControllerStatus) -> Self {
        Self {
            name: status.name.to_string().into(),
            workers: status.settings.workers,
            needs_lease: status.needs_lease,
            leading: status.leading,
            synced: status.synced,
            enabled: status.settings.enabled,
            paused: status.settings.paused,
            queue: status.counts.into(),
        }
    }
}

impl From<queue::Counts> for Counts {
    fn from(counts: queue::Counts) -> Self {
        Self {
            ready: Ready {
                live: counts.ready_live,
                new: counts.ready_new,
                background: counts.ready_background,
                retry: counts.ready_retry,
            },
            delayed: counts.delayed,
            running: counts.running,
            dirty: counts.dirty,
            parked: counts.parked,
            paused: counts.paused,
            oldest_ready_seconds: counts.oldest_ready.map(seconds),
            shutting_down: counts.shutting_down,
        }
    }
}

// === impl FirstKeys ===

impl FirstKeys {
    fn offer(&mut self, key: KeySnapshot<KeyText>) {
        self.matched += 1;
        self.kept.push(key);
        if self.kept.len() > self.limit.saturating_mul(2) {
            self.kept.select_nth_unstable_by(self.limit, |one, other| self.sort.order(one, other));
            self.kept.truncate(self.limit);
        }
    }

    /// Returns the number of all offered keys, and the first `limit` of them in order.
    fn into_sorted(mut self) -> (usize, Vec<KeySnapshot<KeyText>>) {
        self.kept.sort_unstable_by(|one, other| self.sort.order(one, other));
        self.kept.truncate(self.limit);
        (self.matched, self.kept)
    }
}

// === impl Row ===

impl From<KeySnapshot<KeyText>> for Row {
    fn from(snapshot: KeySnapshot<KeyText>) -> Self {
        let KeyText { text, namespace, name } = snapshot.key;
        Self {
            key: text,
            namespace,
            name,
            state: snapshot.state.as_str().into(),
            lane: snapshot.lane.map(|lane| lane.as_str().into()),
            attempts: snapshot.attempts,
            since_seconds: seconds(snapshot.since),
            next_run_seconds: snapshot.next_run.map(seconds),
            reason: snapshot.reason.map(Into::into),
            last_error: snapshot.last_error.map(|error| error.to_string()),
            last_duration_seconds: snapshot.last_duration.map(seconds),
            cause: snapshot.cause.to_string(),
        }
    }
}

// === impl Sort ===

impl Sort {
    fn order(self, one: &KeySnapshot<KeyText>, other: &KeySnapshot<KeyText>) -> Ordering {
        let first = match self {
            Self::Trouble => trouble(one).cmp(&trouble(other)),
            Self::Attempts => other.attempts.cmp(&one.attempts),
            Self::Next => next(one).cmp(&next(other)),
            Self::Since => other.since.cmp(&one.since),
            Self::Name => Ordering::Equal,
        };
        first.then_with(|| one.key.cmp(&other.key))
    }
}

fn trouble(key: &KeySnapshot<KeyText>) -> (u8, Option<Duration>, Reverse<Duration>) {
    (rank(key.state), key.next_run, Reverse(key.since))
}

/// Returns the time until the next run of a key, for sorting. A key without a next run gets the longest time,
/// so it comes last.
fn next(key: &KeySnapshot<KeyText>) -> Duration {
    key.next_run.unwrap_or(Duration::MAX)
}

fn rank(state: State) -> u8 {
    match state {
        State::Backoff => 0,
        State::Parked => 1,
        State::Running | State::Dirty => 2,
        State::Ready => 3,
        State::Requeued => 4,
    }
}

#[cfg(test)]
mod tests;
