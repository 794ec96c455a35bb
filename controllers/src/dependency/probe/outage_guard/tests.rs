use mainstay_api::{Address, ProbeCheck};

use super::*;
use crate::dependency::probe::Target;
use crate::dependency::probe::reachability::Reachability;

/// Targets that are probed every ten seconds.
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

    fn look(&mut self) -> bool {
        let hosts: Vec<_> = self.targets.iter().map(|(target, ..)| target.host()).collect();
        let targets = self.targets.iter().zip(&hosts);
        let contacts = targets.map(|((target, _, contact), host)| (target.namespace(), &**host, contact));
        self.guard.look(contacts, self.now)
    }

    /// Probes everything once in ten seconds, one after the other.
    fn round(&mut self) -> bool {
        let step = Duration::from_secs(10) / u32::try_from(self.targets.len()).unwrap();
        for at in 0..self.targets.len() {
            self.now += step;
            let (_, reachability, contact) = &mut self.targets[at];
            if contact.note(*reachability, false, self.now) {
                self.look();
            }
        }
        self.look()
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
        net.set(0..silent, Reachability::Silent);
        assert_eq!(net.rounds(2), expected, "{silent} of ten");
    }
}

#[test]
fn it_lasts_as_long_as_its_cause_and_a_little_longer() {
    let mut net = Net::new(10);
    net.rounds(3);
    net.set(0..10, Reachability::Silent);
    assert!(net.rounds(2));
    assert!(net.rounds(360), "an hour later it still says nothing about the prerequisites");
    net.set(0..10, Reachability::Answered);
    assert!(net.rounds(2), "each has been seen once more");
    assert!(!net.rounds(2));
}

#[test]
fn a_host_that_can_no_longer_be_asked_counts_on_neither_side() {
    let mut net = Net::new(4);
    net.add("shop", "10.0.0.3:81");
    net.rounds(3);
    net.set(0..5, Reachability::Silent);
    assert!(net.rounds(2));
    // Forgotten and not probed any more, as a denied target is not.
    for _ in 0..2 {
        net.forget_silence(0);
        net.targets.remove(0);
    }
    assert!(net.rounds(10), "nor for having answered before");
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
    assert!(!net.rounds(6), "the other answers, whatever it says");
}

#[test]
fn with_few_targets_our_own_machine_makes_the_difference() {
    let mut net = Net::new(1);
    net.rounds(3);
    net.set([0], Reachability::Silent);
    assert!(!net.rounds(30), "the one that is waited for may well be down");

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
    assert!(!net.rounds(30), "a fault that others do not have is about that address");
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
fn one_namespace_with_many_targets_does_not_speak_for_the_others() {
    let mut net = Net::new(10);
    net.add("pay", "10.1.0.1:80");
    net.rounds(3);
    net.set(0..10, Reachability::Silent);
    assert!(!net.rounds(3), "the other one is answered");
    net.set([10], Reachability::Silent);
    assert!(net.rounds(2), "it is not any more");

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
    assert!(!net.rounds(30), "it is down, whoever waits for it");

    let mut net = Net::new(0);
    for namespace in ["pay", "bank", "post"] {
        net.add(namespace, "10.1.0.1:80");
    }
    net.rounds(3);
    net.set(0..3, Reachability::Silent);
    assert!(!net.rounds(30), "even if nobody waits for anything else");

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
