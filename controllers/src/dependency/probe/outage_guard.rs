//! Detects that the manager itself is cut off: then failed probes are no proof against their targets.
//!
//! A cut-off manager sees every target silent at once; acting on that would turn an outage of its own network
//! into an outage of every workload. A target that is down mostly still answers, if only by a refusal, and
//! other targets keep answering. So the guard compares hosts that fell silent together with hosts that
//! answer. A host counts once, however many of its ports and from however many namespaces it is probed. Both
//! of two conditions must hold: more hosts are silent than answer, and in more namespaces, so that one tenant
//! cannot freeze the others.
//!
//! When unsure, freeze: a false alarm only delays a change, a missed outage acts on healthy workloads.
//!
//! # Invariants
//! 1. One silent host raises no alarm, however many objects wait for it, unless the error came from our own
//!    machine and no other host answers.
//! 2. The alarm lasts while more hosts are silent than answer, and for [`SETTLE`] after, also when the losses
//!    are older than [`WINDOW`] by then.
//! 3. Hosts of one namespace raise no alarm while in another namespace more hosts answer than are silent. Hosts that
//!    are probed less often than each [`WINDOW`] count as answering for that long only.
//! 4. An inconclusive probe counts as neither an answer nor silence.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

use super::reachability::Contact;

/// Losses at most this far apart have one cause, and an answer at most this old speaks against it: a few
/// default periods.
const WINDOW: Duration = Duration::from_mins(1);
/// How long the alarm outlasts its cause: each target has to be probed again first.
const SETTLE: Duration = Duration::from_secs(30);
/// The time between two looks at all targets during an alarm.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct OutageGuard {
    /// When the alarm began; `None`: there is none.
    began: Option<Instant>,
    /// When the alarm ends if its cause does not go on.
    until: Option<Instant>,
    looked: Option<Instant>,
    /// The last result of [`news`](OutageGuard::news).
    reported: bool,
}

/// How many of some hosts fell silent together, and how many answer.
#[derive(Debug, Default)]
struct Count {
    silent: usize,
    answering: usize,
    /// Whether an error of our own machine was the sign for one of the silent hosts.
    local_fault: bool,
}

// === impl OutageGuard ===

impl OutageGuard {
    /// Returns whether there is an alarm, from the contacts of all targets with their namespaces and hosts.
    pub(super) fn look<'a>(
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
        self.looked = Some(now);
        self.began.is_some()
    }

    /// Returns whether the alarm of the last look still stands without another look.
    pub(super) fn is_current(&self, now: Instant) -> bool {
        self.began.is_some() && self.looked.is_some_and(|looked| now < looked + LOOK_EVERY)
    }

    /// Returns whether there was an alarm at the last look.
    pub(super) fn is_alarmed(&self) -> bool {
        self.began.is_some()
    }

    /// Returns whether there was an alarm at the last look, if that has changed since the last call.
    pub(super) fn news(&mut self) -> Option<bool> {
        let alarm = self.began.is_some();
        (std::mem::replace(&mut self.reported, alarm) != alarm).then_some(alarm)
    }
}

// === impl Count ===

impl Count {
    /// Counts hosts that fell silent after `since` and hosts that answered after `recent`; `None`: ever.
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
