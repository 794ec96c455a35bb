//! Whether what was lost has a common cause on our side: then the losses say nothing about the prerequisites.
//!
//! A manager that is cut off sees everything silent at once; acting on that would make the outage of its own network
//! one of every workload. A prerequisite that is down mostly still answers, if only by refusing, and the others go on
//! answering. So hosts that fell silent together are counted against those that answer, a host once, however many of
//! its ports are waited for, and by however many namespaces; and of namespaces those with more of the ones against those
//! with more of the others, as no tenant is to speak for all. Both have to speak for it.
//!
//! Doubt freezes: too much of it delays an action that was meant, too little does harm that was not.
//!
//! # Invariants
//! 1. A single host that falls silent shakes nothing, whoever waits for it, unless our own machine says why and nobody
//!    answers.
//! 2. As long as the silent are more, and for [`SETTLE`] after, it is shaken: the end of the window in which losses count
//!    as one is not the end of the cause.
//! 3. As long as in another namespace more hosts answer than are silent, those of one alone shake nothing.

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
    /// By namespace and host; never an empty map.
    namespaces: HashMap<Arc<str>, HashMap<Arc<str>, State>>,
    /// The same by host alone, whoever waits for it.
    hosts: HashMap<Arc<str>, State>,
    /// When it began; `None` while all is well.
    began: Option<Instant>,
    /// When it is over unless it goes on.
    until: Option<Instant>,
    /// What was said last.
    told: bool,
}

/// One host as the objects of one namespace know it: a Service by its name and namespace, anything else as written.
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

/// How many of some hosts fell silent together, and how many answer.
#[derive(Debug, Default)]
struct Count {
    lost: usize,
    answering: usize,
    /// Whether our own machine said why of one that is lost.
    own_fault: bool,
}

// === impl Host ===

impl Host {
    /// Returns whom a target asks.
    pub(super) fn of(target: &Target) -> Self {
        let host = match (target.service(), target.address()) {
            (Some(service), _) => service.to_string(),
            (None, Some(address)) => address.host.to_string(),
            (None, None) => target.check().kind().to_owned(),
        };
        Self(Arc::clone(target.shared_namespace()), host.into())
    }
}

// === impl Shaken ===

impl Shaken {
    /// Takes a target in.
    pub(super) fn insert(&mut self, host: &Host) {
        let hosts = self.namespaces.entry(Arc::clone(&host.0)).or_default();
        hosts.entry(Arc::clone(&host.1)).or_default().targets += 1;
        self.hosts.entry(Arc::clone(&host.1)).or_default().targets += 1;
    }

    /// Lets a target go.
    pub(super) fn remove(&mut self, host: &Host) {
        let Some(hosts) = self.namespaces.get_mut(&host.0) else { return };
        leave(hosts, &host.1);
        if hosts.is_empty() {
            self.namespaces.remove(&host.0);
        }
        leave(&mut self.hosts, &host.1);
    }

    /// Notes what was heard of a target. `answered` is whether it had answered the time before.
    pub(super) fn note(&mut self, host: &Host, heard: Heard, answered: bool, now: Instant) {
        let here = self.namespaces.get_mut(&host.0).and_then(|hosts| hosts.get_mut(&host.1));
        let states = [here, self.hosts.get_mut(&host.1)];
        let is_loss =
            states.into_iter().flatten().fold(false, |any, state| state.note(heard, answered, now) | any);
        if is_loss {
            self.is_shaken(now);
        }
    }

    /// Takes back that a host is lost of which nothing can be heard any more, unless it is among those of which something
    /// is still `silent`.
    pub(super) fn forgive<'a>(&mut self, host: &Host, silent: impl Iterator<Item = &'a Host>) {
        let (mut here, mut anywhere) = (false, false);
        for other in silent.filter(|other| other.1 == host.1) {
            (here, anywhere) = (here || other == host, true);
        }
        let hosts = self.namespaces.get_mut(&host.0).filter(|_| !here);
        let state = hosts.and_then(|hosts| hosts.get_mut(&host.1));
        let of_all = self.hosts.get_mut(&host.1).filter(|_| !anywhere);
        for state in [state, of_all].into_iter().flatten().filter(|state| state.lost.is_some()) {
            // What it had answered before it was lost does not count either.
            *state = State { targets: state.targets, ..State::default() };
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
        let (mut silent, mut answering) = (0, 0);
        for hosts in self.namespaces.values() {
            let here = Count::of(hosts, together, recent);
            silent += usize::from(here.is_silent());
            answering += usize::from(here.answering > 0 && !here.is_silent());
        }
        let all = Count::of(&self.hosts, together, recent);
        if silent > answering && all.is_silent() && (all.lost > 1 || all.own_fault) {
            self.began.get_or_insert(now);
            self.until = Some(now + SETTLE);
        } else if self.until.is_none_or(|until| until <= now) {
            (self.began, self.until) = (None, None);
        }
        self.began.is_some()
    }
}

/// Lets a target go of a host.
fn leave(hosts: &mut HashMap<Arc<str>, State>, host: &Arc<str>) {
    let Some(state) = hosts.get_mut(host) else { return };
    state.targets -= 1;
    if state.targets == 0 {
        hosts.remove(host);
    }
}

// === impl State ===

impl State {
    /// Notes what was heard. Returns whether the host is lost by that.
    fn note(&mut self, heard: Heard, answered: bool, now: Instant) -> bool {
        if heard == Heard::Answer {
            (self.answered, self.lost, self.own_fault) = (Some(now), None, false);
            return false;
        }
        let is_loss = answered && self.lost.is_none();
        if is_loss {
            (self.lost, self.own_fault) = (Some(now), heard == Heard::OwnFault);
        }
        is_loss
    }
}

// === impl Count ===

impl Count {
    /// Counts those lost since `together`, and those that answered since `recent`; `None`: ever.
    fn of(hosts: &HashMap<Arc<str>, State>, together: Option<Instant>, recent: Option<Instant>) -> Self {
        let mut count = Self::default();
        for state in hosts.values() {
            if let Some(at) = state.lost {
                if Some(at) >= together {
                    count.lost += 1;
                    count.own_fault |= state.own_fault;
                }
            } else if state.answered.is_some() && state.answered >= recent {
                count.answering += 1;
            }
        }
        count
    }

    fn is_silent(&self) -> bool {
        self.lost > self.answering
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
                net.add("shop", &format!("10.0.0.{number}:80"));
            }
            net
        }

        fn add(&mut self, namespace: &str, address: &str) {
            let address = Address::parse("address", address).unwrap();
            let host = Host::of(&Target::new(namespace, ProbeCheck::Tcp(address)));
            self.shaken.insert(&host);
            self.hosts.push((host, Heard::Answer, false));
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
    fn a_host_of_which_nothing_can_be_heard_any_more_speaks_for_nobody() {
        let mut net = Net::new(4);
        net.rounds(3);
        net.set(0..4, Heard::Nothing);
        assert!(net.rounds(2));
        for (host, ..) in net.hosts.drain(..2) {
            net.shaken.forgive(&host, std::iter::empty());
        }
        assert!(net.rounds(10), "nor for having answered before");
        let (host, ..) = net.hosts[0].clone();
        net.shaken.forgive(&host, std::iter::once(&host));
        assert!(net.rounds(10), "another of its ports is silent");
        net.shaken.forgive(&host, std::iter::empty());
        net.hosts.remove(0);
        assert!(!net.rounds(4), "one alone");
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
            net.add("shop", &format!("10.0.0.0:{port}"));
        }
        net.rounds(3);
        net.set(0..10, Heard::Nothing);
        assert!(!net.rounds(3));
        for (host, ..) in &net.hosts {
            net.shaken.remove(host);
        }
        assert!(
            net.shaken.namespaces.is_empty() && net.shaken.hosts.is_empty(),
            "nothing is kept of who is not waited for"
        );
    }

    #[test]
    fn one_namespace_with_many_targets_does_not_speak_for_the_others() {
        let mut net = Net::new(10);
        net.add("pay", "10.1.0.1:80");
        net.rounds(3);
        net.set(0..10, Heard::Nothing);
        assert!(!net.rounds(3), "the other one is answered");
        net.set([10], Heard::Nothing);
        assert!(net.rounds(2), "it is not any more");

        let mut net = Net::new(1);
        for namespace in ["pay", "bank", "post"] {
            net.add(namespace, "10.1.0.1:80");
            net.add(namespace, "10.1.0.2:80");
        }
        net.rounds(3);
        net.set([1, 2, 3, 4], Heard::Nothing);
        assert!(!net.rounds(3), "two of four");
        net.set([5, 6], Heard::Nothing);
        assert!(net.rounds(2), "three of four");
    }

    #[test]
    fn a_host_that_many_namespaces_wait_for_is_one_host() {
        let mut net = Net::new(10);
        for namespace in ["pay", "bank", "post"] {
            net.add(namespace, "10.1.0.1:80");
        }
        net.rounds(3);
        net.set(10..13, Heard::Nothing);
        assert!(!net.rounds(30), "it is down, whoever waits for it");

        let mut net = Net::new(0);
        for namespace in ["pay", "bank", "post"] {
            net.add(namespace, "10.1.0.1:80");
        }
        net.rounds(3);
        net.set(0..3, Heard::Nothing);
        assert!(!net.rounds(30), "even if nobody waits for anything else");

        let mut net = Net::new(10);
        for (network, namespace) in ["pay", "bank", "post"].into_iter().enumerate() {
            for host in 0..4 {
                net.add(namespace, &format!("10.1.{network}.{host}:80"));
            }
        }
        net.rounds(3);
        net.set(10..22, Heard::Nothing);
        assert!(net.rounds(2), "twelve of twenty-two, and three namespaces of four");
    }

    #[test]
    fn what_never_answered_cannot_fall_silent() {
        let mut net = Net::new(10);
        net.set(0..10, Heard::Nothing);
        assert!(!net.rounds(6));
    }
}
