//! The table of states and events, printed from the real state machine.
//!
//! Each cell builds its state anew, applies one event, and prints the resulting state of the key. A changed
//! rule shows as changed cells.

use super::*;
use crate::queue::machine::{Job, Outcome};

/// Every key in a state that allows failures has failed twice.
const STATES: [&str; 12] = [
    "absent",
    "delayed",
    "backoff",
    "ready live",
    "ready new",
    "ready background",
    "ready retry",
    "running",
    "running, weak dirt",
    "running, strong dirt",
    "parked",
    "paused",
];

const EVENTS: [&str; 16] = [
    "weak add",
    "weak background add",
    "strong add",
    "new object",
    "strong background add",
    "new generation",
    "weak add in 1 s",
    "strong add in 1 s",
    "wait over",
    "taken",
    "done",
    "requeue after 60 s",
    "failed",
    "failed for good",
    "put back",
    "paused",
];

struct Bench {
    inner: Inner<Id>,
    job: Option<Job<Id>>,
}

impl Bench {
    fn in_state(state: &str) -> Self {
        let settings = with_retry(RetryPolicy::exponential(ms(10_000), ms(1_000_000)).with_jitter(0));
        let mut bench = Self { inner: Inner::new(settings, 1, fastrand::Rng::with_seed(1)), job: None };
        match state {
            "absent" => {}
            "delayed" => {
                bench.apply("strong add");
                bench.apply("taken");
                bench.apply("requeue after 60 s");
            }
            "ready live" => bench.apply("strong add"),
            "ready new" => bench.apply("new object"),
            "ready background" => bench.apply("strong background add"),
            _ => bench.fail_twice(state),
        }
        bench
    }

    fn fail_twice(&mut self, state: &str) {
        for event in ["strong add", "taken", "failed", "strong add", "taken", "failed"] {
            self.apply(event);
        }
        if state == "backoff" {
            return;
        }
        self.apply("wait over");
        if state == "ready retry" {
            return;
        }
        self.apply("taken");
        match state {
            "running, weak dirt" => self.apply("weak add"),
            "running, strong dirt" => self.apply("strong add"),
            "parked" => self.apply("failed for good"),
            "paused" => self.apply("paused"),
            _ => {}
        }
    }

    fn apply(&mut self, event: &str) {
        match event {
            "weak add" => self.add(weak()),
            "weak background add" => self.add(weak().in_background()),
            "strong add" => self.add(strong()),
            "new object" => self.add(new()),
            "strong background add" => self.add(background()),
            "new generation" => self.add(new_generation()),
            "weak add in 1 s" => self.add(weak().after(ms(1000))),
            "strong add in 1 s" => self.add(strong().after(ms(1000))),
            "wait over" => {
                let due = self.inner.delays.first().map(|(until, _)| until);
                if let Some(due) = due {
                    self.inner.advance(due);
                }
            }
            "taken" => self.job = self.inner.try_take().or(self.job.take()),
            "done" => self.finish(Outcome::Done),
            "requeue after 60 s" => self.finish(Outcome::RequeueAfter(Duration::from_mins(1))),
            "failed" => self.finish(Outcome::Failed("no", Retry::Backoff)),
            "failed for good" => self.finish(Outcome::Failed("no", Retry::Never)),
            "put back" => self.finish(Outcome::PutBack),
            "paused" => self.finish(Outcome::Park("paused")),
            _ => panic!("no such event: {event}"),
        }
    }

    fn add(&mut self, add: Add) {
        let _: Added = self.inner.add(Id(1), add);
    }

    fn finish(&mut self, outcome: Outcome<'_>) {
        let job = self.job.take().expect("the key runs");
        let _: Retried = self.inner.finish(job.slot, &job.cause, outcome);
    }

    /// Returns whether an event is possible in the present state.
    fn admits(&self, event: &str) -> bool {
        match event {
            "wait over" => self.inner.delays.first().is_some(),
            "taken" => self.inner.lanes.len() > 0,
            "done" | "requeue after 60 s" | "failed" | "failed for good" | "put back" | "paused" => {
                self.job.is_some()
            }
            _ => true,
        }
    }

    fn describe(&self) -> String {
        let Some(slot) = self.inner.slots.find(&Id(1)) else { return "absent".to_owned() };
        let key = self.inner.describe(self.inner.slots.get(slot));
        let mut text = key.reason.unwrap_or(key.state.as_str()).to_owned();
        if let Some(lane) = key.lane.filter(|_| key.state == State::Ready) {
            text = format!("{text} {}", lane.as_str());
        }
        if let Some(wait) = key.next_run {
            text = format!("{text} {} s", wait.as_secs());
        }
        if key.attempts > 0 {
            text = format!("{text}, {} failed", key.attempts);
        }
        text
    }
}

#[test]
fn the_table_of_states_and_events() {
    let mut table = String::new();
    for state in STATES {
        table.extend([format!("{state} ({})\n", Bench::in_state(state).describe())]);
        for event in EVENTS {
            let mut bench = Bench::in_state(state);
            if bench.admits(event) {
                let before = bench.describe();
                bench.apply(event);
                bench.inner.check();
                let after = bench.describe();
                let after = if after == before { "-".to_owned() } else { after };
                table.extend([format!("  {event:<22} {after}\n")]);
            }
        }
    }
    assert_eq!(table, include_str!("table.txt"), "the actual table:\n{table}");
}
