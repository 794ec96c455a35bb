//! Whether what was lost has a common cause on our side: then the losses say nothing about the prerequisites.
//!
//! A manager that is cut off sees everything silent at once; acting on that would make the outage of its own network
//! one of every workload. A prerequisite that is down mostly still answers, if only by refusing, and the others go on
//! answering. So hosts that fell silent together are counted against those that answer; a host counts once, however
//! many of its ports are waited for.
//!
//! Doubt freezes: too much of it delays an action that was meant, too little does harm that was not.
//!
//! # Invariants
//! 1. A single host that falls silent shakes nothing, unless our own machine says why and nobody answers.
//! 2. As long as more of those that fell silent together are silent than hosts answer, and for [`SETTLE`] after, it is
//!    shaken: the end of the window in which losses count as one is not the end of the cause.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Target;
use super::heard::Heard;

/// Losses no further apart have one cause, and an answer no older speaks against it: a few default periods.
const WINDOW: Duration = Duration::from_mins(1);
/// For how long it stays shaken once it is over: each target is to be seen again first.
const SETTLE: Duration = Duration::from_secs(30);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Shaken {
    hosts: HashMap<Host, State>,
    /// When it began; `None` while all is well.
    began: Option<Instant>,
    /// When it is over unless it goes on.
    until: Option<Instant>,
    /// What was said last.
    told: bool,
}

/// One host as the objects of one namespace name it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Host(Arc<str>, Arc<str>);

#[derive(Debug, Default)]
struct State {
    /// How many targets are on it.
    targets: usize,
    /// When one of them answered last.
    answered: Option<Instant>,
    /// Since when one that had answered is silent; `None` if one has answered since.
    lost: Option<Instant>,
    /// Whether our own machine said why.
    own_fault: bool,
}

// === impl Host ===

impl Host {
    /// Returns whom a target asks.
    pub(super) fn of(target: &Target) -> Self {
        let host = target
            .address()
            .map_or_else(|| target.check().kind().to_owned(), |address| address.host.to_string());
        Self(Arc::clone(target.shared_namespace()), host.into())
    }
}

// === impl Shaken ===

impl Shaken {
    /// Takes a target in.
    pub(super) fn insert(&mut self, host: &Host) {
        self.hosts.entry(host.clone()).or_default().targets += 1;
    }

    /// Lets a target go.
    pub(super) fn remove(&mut self, host: &Host) {
        let Some(state) = self.hosts.get_mut(host) else { return };
        state.targets -= 1;
        if state.targets == 0 {
            self.hosts.remove(host);
        }
    }

    /// Notes what was heard of a target. `answered` is whether it had answered the time before.
    pub(super) fn note(&mut self, host: &Host, heard: Heard, answered: bool, now: Instant) {
        let Some(state) = self.hosts.get_mut(host) else { return };
        if heard == Heard::Answer {
            (state.answered, state.lost, state.own_fault) = (Some(now), None, false);
        } else if answered && state.lost.is_none() {
            (state.lost, state.own_fault) = (Some(now), heard == Heard::OwnFault);
            self.is_shaken(now);
        }
    }

    /// Returns whether it is shaken now, if that was not what was said last.
    pub(super) fn news(&mut self, now: Instant) -> Option<bool> {
        let is_shaken = self.began.is_some() && self.is_shaken(now);
        (std::mem::replace(&mut self.told, is_shaken) != is_shaken).then_some(is_shaken)
    }

    /// Returns whether it is shaken now.
    pub(super) fn is_shaken(&mut self, now: Instant) -> bool {
        let earlier = |at: Instant| at.checked_sub(WINDOW);
        let (together, recent) = (earlier(self.began.unwrap_or(now)), earlier(now));
        let (mut lost, mut answering, mut own_fault) = (0, 0, false);
        for state in self.hosts.values() {
            if let Some(at) = state.lost {
                if Some(at) >= together {
                    lost += 1;
                    own_fault |= state.own_fault;
                }
            } else if state.answered.is_some() && state.answered >= recent {
                answering += 1;
            }
        }
        if lost > answering && (lost > 1 || own_fault) {
            self.began.get_or_insert(now);
            self.until = Some(now + SETTLE);
        } else if self.until.is_none_or(|until| until <= now) {
            (self.began, self.until) = (None, None);
        }
        self.began.is_some()
    }
}

#[cfg(test)]
mod tests {
    use mainstay_api::{Address, ProbeCheck};

    use super::*;

    /// Hosts that are probed every ten seconds.
    struct Net {
        shaken: Shaken,
        hosts: Vec<(Host, Heard, bool)>,
        now: Instant,
    }

    impl Net {
        fn new(hosts: usize) -> Self {
            let mut net = Self { shaken: Shaken::default(), hosts: Vec::new(), now: Instant::now() };
            for number in 0..hosts {
                let host = host(&format!("10.0.0.{number}:80"));
                net.shaken.insert(&host);
                net.hosts.push((host, Heard::Answer, false));
            }
            net
        }

        fn set(&mut self, hosts: impl IntoIterator<Item = usize>, heard: Heard) {
            for host in hosts {
                self.hosts[host].1 = heard;
            }
        }

        /// Probes everything once in ten seconds, one after the other.
        fn round(&mut self) -> bool {
            let step = Duration::from_secs(10) / u32::try_from(self.hosts.len()).unwrap();
            for (host, heard, answered) in &mut self.hosts {
                self.now += step;
                self.shaken.note(host, *heard, *answered, self.now);
                *answered = *heard == Heard::Answer;
            }
            self.shaken.is_shaken(self.now)
        }

        fn rounds(&mut self, count: usize) -> bool {
            (0..count).fold(false, |_, _| self.round())
        }
    }

    fn host(address: &str) -> Host {
        let address = Address::parse("address", address).unwrap();
        Host::of(&Target::new("shop", ProbeCheck::Tcp(address)))
    }

    #[test]
    fn more_hosts_silent_than_answering_is_no_coincidence() {
        for (silent, expected) in [(1, false), (5, false), (6, true), (10, true)] {
            let mut net = Net::new(10);
            assert!(!net.rounds(3));
            net.set(0..silent, Heard::Nothing);
            assert_eq!(net.rounds(2), expected, "{silent} of ten");
        }
    }

    #[test]
    fn it_lasts_as_long_as_its_cause_and_a_little_longer() {
        let mut net = Net::new(10);
        net.rounds(3);
        net.set(0..10, Heard::Nothing);
        assert!(net.rounds(2));
        assert!(net.rounds(360), "an hour later it still says nothing about the prerequisites");
        net.set(0..10, Heard::Answer);
        assert!(net.rounds(2), "each has been seen once more");
        assert!(!net.rounds(2));
    }

    #[test]
    fn who_went_one_after_the_other_went_for_reasons_of_their_own() {
        let mut net = Net::new(10);
        net.rounds(3);
        for host in 0..9 {
            net.set([host], Heard::Nothing);
            assert!(!net.rounds(7), "after {host}");
        }
        // What went long ago says nothing about what goes now.
        net.set([9], Heard::Nothing);
        assert!(!net.rounds(2));
    }

    #[test]
    fn a_refusal_is_an_answer() {
        let mut net = Net::new(2);
        net.rounds(3);
        net.set([0], Heard::Nothing);
        assert!(!net.rounds(6), "the other answers, whatever it says");
    }

    #[test]
    fn with_few_targets_our_own_machine_makes_the_difference() {
        let mut net = Net::new(1);
        net.rounds(3);
        net.set([0], Heard::Nothing);
        assert!(!net.rounds(30), "the one that is waited for may well be down");

        let mut net = Net::new(1);
        net.rounds(3);
        net.set([0], Heard::OwnFault);
        assert!(net.rounds(30));

        let mut net = Net::new(2);
        net.rounds(3);
        net.set([0, 1], Heard::Nothing);
        assert!(net.rounds(30));

        let mut net = Net::new(3);
        net.rounds(3);
        net.set([0], Heard::OwnFault);
        assert!(!net.rounds(30), "a fault that others do not have is about that address");
    }

    #[test]
    fn ports_of_one_host_are_one_host() {
        let mut net = Net::new(1);
        for port in 81..90 {
            let host = host(&format!("10.0.0.0:{port}"));
            net.shaken.insert(&host);
            net.hosts.push((host, Heard::Answer, false));
        }
        net.rounds(3);
        net.set(0..10, Heard::Nothing);
        assert!(!net.rounds(3));
        for (host, ..) in &net.hosts {
            net.shaken.remove(host);
        }
        assert!(net.shaken.hosts.is_empty(), "nothing is kept of who is not waited for");
    }

    #[test]
    fn what_never_answered_cannot_fall_silent() {
        let mut net = Net::new(10);
        net.set(0..10, Heard::Nothing);
        assert!(!net.rounds(6));
    }
}
