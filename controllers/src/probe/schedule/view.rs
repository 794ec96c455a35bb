//! What is told of a schedule.

use mainstay::key::Request;
use tokio::time::Instant;

use super::{Schedule, Wait};
use crate::probe::describe::{Description, NextProbe, first};
use crate::probe::{Held, Verdict, VerdictState};

impl Schedule {
    /// Returns what is known of each target that `request` waits for, in the order in which it named them.
    pub(in crate::probe) fn verdicts(&self, request: &Request) -> Vec<Verdict> {
        let waits = self.waits.get(request).into_iter().flatten();
        waits.map(|wait| self.verdict(wait)).collect()
    }

    /// Returns what is known of each target that `request` waits for, and what comes next, in the same order.
    pub(in crate::probe) fn describe(&self, request: &Request, now: Instant) -> Vec<Description> {
        let waits = self.waits.get(request).into_iter().flatten();
        waits.filter_map(|wait| self.describe_one(request, wait, now)).collect()
    }

    fn verdict(&self, wait: &Wait) -> Verdict {
        let Some(entry) = self.entries.get(&wait.entry) else { return Verdict::PENDING };
        match wait.from {
            // That it has no place is known without a probe.
            Some(_) if !entry.admitted => {
                Verdict { state: VerdictState::Denied, result: entry.result.clone() }
            }
            Some(_) => Verdict::PENDING,
            None => Verdict { state: wait.state, result: entry.result.clone() },
        }
    }

    fn describe_one(&self, request: &Request, wait: &Wait, now: Instant) -> Option<Description> {
        let entry = self.entries.get(&wait.entry)?;
        let next = match entry.due {
            None if entry.admitted => NextProbe::InFlight,
            None => NextProbe::NoPlace,
            Some(_) if entry.postponed.is_some() => NextProbe::Held(Held::AddressRate),
            Some(due) => match self.turns.held(entry.target.namespace(), entry.lane, now) {
                Some(held) if due <= now => NextProbe::Held(held),
                _ => NextProbe::In(due.duration_since(now)),
            },
        };
        Some(Description {
            target: entry.target.clone(),
            state: self.verdict(wait).state,
            result: entry.result.clone(),
            unchanged_for: entry.since.map(|since| now.duration_since(since)),
            successes: entry.row.successes(),
            failures: entry.row.failures(),
            began: entry.started.map(|started| now.duration_since(started)),
            took: entry.took,
            next,
            period: entry.period(self.min_period),
            others: entry.waiting.len() - 1,
            named: first(entry.waiting.iter().filter(|other| *other != request)),
        })
    }
}
