//! `/debug/controllers/NAME/queue`: the keys of one queue, those in trouble first.
//!
//! The order, unless another is asked for: keys in backoff, parked, with a worker (running and dirty), ready, requeued.
//! Among those that wait for a moment the soonest is first, among the others the one that has been in its state for
//! longest; equals are in the order of their texts. A bound cuts off the end.

use std::cmp::{Ordering, Reverse};
use std::time::Duration;

use serde::Serialize;

use super::controllers::Queue;
use super::query::{Query, Sort};
use super::seconds;
use crate::controller::{ControllerView, KeyText};
use crate::queue::{KeySnapshot, Lane, State};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Queued {
    controller: &'static str,
    /// This replica leads, or the controller needs no Lease. If not, its keys are kept warm and nothing runs.
    leading: bool,
    /// Of the whole queue, whatever was asked for.
    queue: Queue,
    /// How many keys fit what was asked for, listed or not.
    matched: usize,
    /// Some of these are not listed, for the bound.
    truncated: bool,
    /// The next page is behind this key; `null` if there is none, or the order is another than that of names.
    next: Option<String>,
    keys: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    key: String,
    namespace: Option<String>,
    name: String,
    state: &'static str,
    /// `null` while it waits for a moment or is parked.
    lane: Option<&'static str>,
    /// Runs that failed in a row.
    attempts: u32,
    /// In this state.
    since_seconds: f64,
    next_run_seconds: Option<f64>,
    /// Why it is parked without having failed, such as a pause.
    reason: Option<&'static str>,
    last_error: Option<String>,
    last_duration_seconds: Option<f64>,
    /// What last put it on the queue. A key that waits keeps it until its wait is over.
    cause: String,
}

/// The first keys of any number, in memory for twice as many as are wanted.
struct First {
    /// At least 1.
    limit: usize,
    sort: Sort,
    matched: usize,
    /// The first `limit` of those seen are among these.
    kept: Vec<KeySnapshot<KeyText>>,
}

pub(super) fn page(controller: &dyn ControllerView, query: &Query) -> Queued {
    let status = controller.status();
    let mut first = First { limit: query.limit, sort: query.sort, matched: 0, kept: Vec::new() };
    controller.visit(&query.wanted, &mut |key| {
        if query.after.as_ref().is_none_or(|after| key.key.text > *after) {
            first.offer(key);
        }
    });
    let (matched, keys) = first.into_order();
    let truncated = keys.len() < matched;
    let last = keys.last().filter(|_| truncated && query.sort == Sort::Name);
    Queued {
        controller: status.name,
        leading: status.leading,
        queue: status.counts.into(),
        matched,
        truncated,
        next: last.map(|last| last.key.text.clone()),
        keys: keys.into_iter().map(Row::from).collect(),
    }
}

// === impl First ===

impl First {
    fn offer(&mut self, key: KeySnapshot<KeyText>) {
        self.matched += 1;
        self.kept.push(key);
        if self.kept.len() > self.limit.saturating_mul(2) {
            self.kept.select_nth_unstable_by(self.limit, |one, other| self.sort.order(one, other));
            self.kept.truncate(self.limit);
        }
    }

    fn into_order(mut self) -> (usize, Vec<KeySnapshot<KeyText>>) {
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
            state: snapshot.state.as_str(),
            lane: snapshot.lane.map(Lane::as_str),
            attempts: snapshot.attempts,
            since_seconds: seconds(snapshot.since),
            next_run_seconds: snapshot.next_run.map(seconds),
            reason: snapshot.reason,
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

/// Those that wait for no moment come last.
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
mod tests {
    use super::*;
    use crate::key::{Cause, Trigger};

    /// A key in a state, with seconds until its next run if it waits for one, and in that state.
    fn key(name: &str, state: State, next_run: Option<u64>, since: u64) -> KeySnapshot<KeyText> {
        KeySnapshot {
            key: KeyText { text: format!("shop/{name}"), namespace: Some("shop".into()), name: name.into() },
            state,
            lane: None,
            attempts: 0,
            since: Duration::from_secs(since),
            next_run: next_run.map(Duration::from_secs),
            reason: None,
            last_error: None,
            last_duration: None,
            cause: Cause::bare(Trigger::Generic),
        }
    }

    /// All states and every rule, in the order they are to be listed.
    fn sorted() -> Vec<KeySnapshot<KeyText>> {
        vec![
            key("soon", State::Backoff, Some(1), 1),
            key("late", State::Backoff, Some(9), 8),
            key("parked-for-long", State::Parked, None, 5),
            key("parked", State::Parked, None, 4),
            key("slow", State::Dirty, None, 3),
            key("quick", State::Running, None, 2),
            key("a", State::Ready, None, 7),
            key("b", State::Ready, None, 7),
            key("next", State::Requeued, Some(0), 0),
            key("far", State::Requeued, Some(60), 0),
        ]
    }

    #[test]
    fn trouble_comes_first_and_a_bound_cuts_off_the_end_however_the_keys_come() {
        let expected: Vec<_> = sorted().into_iter().map(|key| key.key.name).collect();
        let mut random = fastrand::Rng::with_seed(7);
        for limit in (1..=expected.len() + 1).cycle().take(500) {
            let mut keys = sorted();
            random.shuffle(&mut keys);
            let mut first = First { limit, sort: Sort::Trouble, matched: 0, kept: Vec::new() };
            for key in keys {
                first.offer(key);
                assert!(first.kept.len() <= 2 * limit, "memory is bounded");
            }
            let (matched, listed) = first.into_order();
            let listed: Vec<_> = listed.into_iter().map(|key| key.key.name).collect();
            assert_eq!(listed, expected[..limit.min(expected.len())]);
            assert_eq!(matched, expected.len());
        }
    }

    #[test]
    fn each_order_goes_by_what_it_is_called() {
        let mut keys = [
            KeySnapshot { attempts: 2, ..key("a", State::Backoff, Some(9), 1) },
            KeySnapshot { attempts: 7, ..key("b", State::Parked, None, 3) },
            key("c", State::Requeued, Some(1), 2),
            key("d", State::Ready, None, 3),
        ];
        for (sort, expected) in [
            (Sort::Trouble, "a b d c"),
            (Sort::Attempts, "b a c d"),
            (Sort::Next, "c a b d"),
            (Sort::Since, "b d c a"),
            (Sort::Name, "a b c d"),
        ] {
            keys.sort_by(|one, other| sort.order(one, other));
            let names: Vec<_> = keys.iter().map(|key| key.key.name.as_str()).collect();
            assert_eq!(names.join(" "), expected, "{sort:?}");
        }
    }
}
