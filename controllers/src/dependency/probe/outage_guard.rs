//! Detects that the manager itself is cut off, so that failed probes prove nothing about their targets.
//!
//! For a cut-off manager all targets fall silent at once. Acting on that would turn an outage of its own
//! network into an outage of every workload. A target that is down mostly still answers, if only by a
//! refusal, and other targets keep answering. So the guard compares the number of hosts that fell silent
//! together with that of hosts that answer. A host counts once, with all its ports and all namespaces that
//! probe it. The alarm needs two conditions: more hosts are silent than answer, and more namespaces have a
//! silent majority than an answering one, so that one tenant cannot freeze the others.
//!
//! When unsure, freeze: a false alarm only delays a change; a missed outage acts on healthy workloads.
//!
//! # Invariants
//! 1. One silent host raises no alarm, with any number of waiting objects, unless the error came from the
//!    manager's machine and no other host answers.
//! 2. The alarm lasts while more hosts are silent than answer, and [`SETTLE`] longer. The losses may be
//!    older than [`WINDOW`] by then.
//! 3. Hosts of one namespace raise no alarm while in another namespace more hosts answer than are silent.
//!    Hosts that are probed less often than each [`WINDOW`] count as answering for that long only.
//! 4. An inconclusive probe counts as neither an answer nor silence.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::reachability::Contact;

/// Hosts that fell silent at most this far apart are taken to have one cause, and an answer at most this old
/// counts against it. A few default periods.
const WINDOW: Duration = Duration::from_mins(1);
/// How long the outage alarm outlasts its cause, so that each target is probed again first.
const SETTLE: Duration = Duration::from_secs(30);
/// The time between two evaluations of all targets during an outage alarm.
const EVALUATE_EVERY: Duration = Duration::from_secs(1);

/// Raises an alarm if so many probed hosts fall silent together that a fault of the manager's own network is
/// likely.
#[derive(Debug, Default)]
pub(super) struct OutageGuard {
    /// The start of the outage alarm; `None` without an alarm.
    began: Option<Instant>,
    /// The end of the outage alarm, unless its cause is found again before; `None` without an alarm.
    until: Option<Instant>,
    /// The time of the last evaluation of all targets; `None` before the first.
    evaluated: Option<Instant>,
}

/// The numbers of probed hosts that fell silent together and of hosts that answer.
#[derive(Debug, Default)]
struct Count {
    silent: usize,
    answering: usize,
    /// Whether one of the silent hosts had an error of the manager's machine.
    local_fault: bool,
}

// === impl OutageGuard ===

impl OutageGuard {
    /// Evaluates the contacts of all targets, given with their namespaces and hosts, and returns whether
    /// there is an outage alarm.
    pub(super) fn evaluate<'a>(
        &mut self,
        contacts: impl Iterator<Item = (&'a str, &'a str, &'a Contact)>,
        now: Instant,
    ) -> bool {
        let mut namespaces: HashMap<&str, HashMap<&str, Contact>> = HashMap::new();
        let mut hosts: HashMap<&str, Contact> = HashMap::new();
        for (namespace, host, contact) in contacts {
            hosts.entry(host).or_default().merge(contact);
            namespaces.entry(namespace).or_default().entry(host).or_default().merge(contact);
        }
        let since = self.began.unwrap_or(now).checked_sub(WINDOW);
        let recent = now.checked_sub(WINDOW);
        let (mut silent, mut answering) = (0, 0);
        for hosts in namespaces.values() {
            let count = Count::of(hosts.values(), since, recent);
            silent += usize::from(count.is_silent());
            answering += usize::from(count.answering > 0 && !count.is_silent());
        }
        let all = Count::of(hosts.values(), since, recent);
        if silent > answering && all.is_silent() && (all.silent > 1 || all.local_fault) {
            self.began.get_or_insert(now);
            self.until = Some(now + SETTLE);
        } else if self.until.is_none_or(|until| until <= now) {
            (self.began, self.until) = (None, None);
        }
        self.evaluated = Some(now);
        self.began.is_some()
    }

    /// Returns whether there is an outage alarm that still counts without another evaluation of all targets.
    pub(super) fn is_current(&self, now: Instant) -> bool {
        self.began.is_some() && self.evaluated.is_some_and(|evaluated| now < evaluated + EVALUATE_EVERY)
    }

    /// Returns whether there was an outage alarm at the last evaluation.
    pub(super) fn is_alarmed(&self) -> bool {
        self.began.is_some()
    }
}

// === impl Count ===

impl Count {
    /// Counts hosts that fell silent since the time `since` and hosts that answered since `recent`; `None` is
    /// no limit.
    fn of<'a>(
        hosts: impl Iterator<Item = &'a Contact>,
        since: Option<Instant>,
        recent: Option<Instant>,
    ) -> Self {
        let mut count = Self::default();
        for host in hosts {
            match host.silent.filter(|(at, _)| Some(*at) > host.answered) {
                Some((at, local_fault)) if Some(at) >= since => {
                    count.silent += 1;
                    count.local_fault |= local_fault;
                }
                Some(_) => {}
                None => count.answering += usize::from(host.answered.is_some() && host.answered >= recent),
            }
        }
        count
    }

    fn is_silent(&self) -> bool {
        self.silent > self.answering
    }
}

#[cfg(test)]
mod tests;
