use mainstay_api::{Address, ProbeCheck};

use super::*;
use crate::dependency::probe::Target;
use crate::dependency::probe::reachability::Reachability;

/// An outage guard, with targets that are probed every ten seconds.
struct Net {
    guard: OutageGuard,
    targets: Vec<(Target, Reachability, Contact)>,
    now: Instant,
}

impl Net {
    fn new(hosts: usize) -> Self {
        let mut net = Self { guard: OutageGuard::default(), targets: Vec::new(), now: Instant::now() };
        for number in 0..hosts {
            net.add("shop", &format!("10.0.0.{number}:80"));
        }
        net
    }

    fn add(&mut self, namespace: &str, address: &str) {
        let address = Address::parse("address", address).unwrap();
        let target = Target::new(namespace, ProbeCheck::Tcp(address));
        self.targets.push((target, Reachability::Answered, Contact::default()));
    }

    fn set(&mut self, targets: impl IntoIterator<Item = usize>, reachability: Reachability) {
        for target in targets {
            self.targets[target].1 = reachability;
        }
    }

    fn forget_silence(&mut self, target: usize) {
        self.targets[target].2.forget_silence();
    }

    fn evaluate(&mut self) -> bool {
        let hosts: Vec<_> = self.targets.iter().map(|(target, ..)| target.host()).collect();
        let targets = self.targets.iter().zip(&hosts);
        let contacts = targets.map(|((target, _, contact), host)| (target.namespace(), &**host, contact));
        self.guard.evaluate(contacts, self.now)
    }

    /// Probes all targets within ten seconds, one after the other. Returns whether there is an alarm then.
    fn round(&mut self) -> bool {
        let step = Duration::from_secs(10) / u32::try_from(self.targets.len()).unwrap();
        for at in 0..self.targets.len() {
            self.now += step;
            let (_, reachability, contact) = &mut self.targets[at];
            if contact.record(*reachability, false, self.now) {
                self.evaluate();
            }
        }
        self.evaluate()
    }

    fn rounds(&mut self, count: usize) -> bool {
        (0..count).fold(false, |_, _| self.round())
    }
}

#[test]
fn more_silent_than_answering_hosts_raise_an_alarm() {
    for (silent, expected) in [(1, false), (5, false), (6, true), (10, true)] {
        let mut net = Net::new(10);
        assert!(!net.rounds(3));
        net.set(0..silent, Reachability::Silent);
        assert_eq!(net.rounds(2), expected, "{silent} of ten");
    }
}

#[test]
fn the_alarm_lasts_as_long_as_its_cause_and_a_little_longer() {
    let mut net = Net::new(10);
    net.rounds(3);
    net.set(0..10, Reachability::Silent);
    assert!(net.rounds(2));
    assert!(net.rounds(360), "still after an hour");
    net.set(0..10, Reachability::Answered);
    assert!(net.rounds(2), "each target is probed once more first");
    assert!(!net.rounds(2));
}

#[test]
fn a_host_that_is_no_longer_probed_does_not_count() {
    let mut net = Net::new(4);
    net.add("shop", "10.0.0.3:81");
    net.rounds(3);
    net.set(0..5, Reachability::Silent);
    assert!(net.rounds(2));
    // The silence is forgotten and the target not probed any more, as for a denied target.
    for _ in 0..2 {
        net.forget_silence(0);
        net.targets.remove(0);
    }
    assert!(net.rounds(10), "it does not count as answering either");
    net.forget_silence(1);
    net.targets.remove(1);
    assert!(net.rounds(10), "another of its ports is silent");
    net.forget_silence(1);
    net.targets.remove(1);
    assert!(!net.rounds(4), "one alone");
}

#[test]
fn losses_far_apart_raise_no_alarm() {
    let mut net = Net::new(10);
    net.rounds(3);
    for host in 0..9 {
        net.set([host], Reachability::Silent);
        assert!(!net.rounds(7), "after {host}");
    }
    // A loss older than the window does not count.
    net.set([9], Reachability::Silent);
    assert!(!net.rounds(2));
}

#[test]
fn a_refusal_is_an_answer() {
    let mut net = Net::new(2);
    net.rounds(3);
    net.set([0], Reachability::Silent);
    assert!(!net.rounds(6), "the other host answers");
}

#[test]
fn a_single_host_raises_an_alarm_only_by_a_local_fault() {
    let mut net = Net::new(1);
    net.rounds(3);
    net.set([0], Reachability::Silent);
    assert!(!net.rounds(30), "the only host may be down");

    let mut net = Net::new(1);
    net.rounds(3);
    net.set([0], Reachability::LocalFault);
    assert!(net.rounds(30));

    let mut net = Net::new(2);
    net.rounds(3);
    net.set([0, 1], Reachability::Silent);
    assert!(net.rounds(30));

    let mut net = Net::new(3);
    net.rounds(3);
    net.set([0], Reachability::LocalFault);
    assert!(!net.rounds(30), "a fault that other hosts do not have is about that address");
}

#[test]
fn ports_of_one_host_are_one_host() {
    let mut net = Net::new(1);
    for port in 81..90 {
        net.add("shop", &format!("10.0.0.0:{port}"));
    }
    net.rounds(3);
    net.set(0..10, Reachability::Silent);
    assert!(!net.rounds(3));
}

#[test]
fn one_namespace_with_many_targets_raises_no_alarm_for_the_others() {
    let mut net = Net::new(10);
    net.add("pay", "10.1.0.1:80");
    net.rounds(3);
    net.set(0..10, Reachability::Silent);
    assert!(!net.rounds(3), "the host of the other namespace answers");
    net.set([10], Reachability::Silent);
    assert!(net.rounds(2), "that host is silent, too");

    let mut net = Net::new(1);
    for namespace in ["pay", "bank", "post"] {
        net.add(namespace, "10.1.0.1:80");
        net.add(namespace, "10.1.0.2:80");
    }
    net.rounds(3);
    net.set([1, 2, 3, 4], Reachability::Silent);
    assert!(!net.rounds(3), "two of four");
    net.set([5, 6], Reachability::Silent);
    assert!(net.rounds(2), "three of four");
}

#[test]
fn a_host_that_many_namespaces_wait_for_is_one_host() {
    let mut net = Net::new(10);
    for namespace in ["pay", "bank", "post"] {
        net.add(namespace, "10.1.0.1:80");
    }
    net.rounds(3);
    net.set(10..13, Reachability::Silent);
    assert!(!net.rounds(30), "the host is down for all of them");

    let mut net = Net::new(0);
    for namespace in ["pay", "bank", "post"] {
        net.add(namespace, "10.1.0.1:80");
    }
    net.rounds(3);
    net.set(0..3, Reachability::Silent);
    assert!(!net.rounds(30), "even if it is the only host");

    let mut net = Net::new(10);
    for (network, namespace) in ["pay", "bank", "post"].into_iter().enumerate() {
        for host in 0..4 {
            net.add(namespace, &format!("10.1.{network}.{host}:80"));
        }
    }
    net.rounds(3);
    net.set(10..22, Reachability::Silent);
    assert!(net.rounds(2), "twelve of twenty-two, and three namespaces of four");
}

#[test]
fn a_host_that_never_answered_is_not_lost() {
    let mut net = Net::new(10);
    net.set(0..10, Reachability::Silent);
    assert!(!net.rounds(6));
}
