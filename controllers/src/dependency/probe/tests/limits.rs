//! What is scarce is bounded, and shared fairly between namespaces.

use mainstay_api::plan::HttpCheck;
use mainstay_api::wait_for::HttpScheme;

use super::*;

impl Bench {
    /// Waits in a namespace for so many addresses, `10.NETWORK.x.y`.
    fn crowd(&self, namespace: &str, network: u8, targets: u32, period: u64, timeout: u64) {
        for number in 0..targets {
            let address = format!("10.{network}.{}.{}:80", number / 250, number % 250 + 1);
            let address = Address::parse("address", &address).unwrap();
            let wants = Want {
                target: Target::new(namespace, ProbeCheck::Tcp(address.clone())),
                timeout: Duration::from_secs(timeout),
                ..want(address, period)
            };
            self.engine.watch(&NamespacedName::namespaced(namespace, format!("web-{number}")), vec![wants]);
        }
    }

    /// Counts the dials to `10.NETWORK.x.y`.
    fn dials_to(&self, network: u8) -> usize {
        let is_there =
            |address: &SocketAddr| matches!(address.ip(), IpAddr::V4(ip) if ip.octets()[1] == network);
        self.net.dialled.lock().iter().filter(|(_, address)| is_there(address)).count()
    }

    fn swallow(&self, network: u8, targets: u32) {
        for number in 0..targets {
            self.set(&format!("10.{network}.{}.{}:80", number / 250, number % 250 + 1), Net::Silent);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_targets_leaves_the_others_their_share_of_the_rate() {
    let bench =
        Bench::new(64, ProbePolicy { max_per_second: 40, max_per_second_per_namespace: 1000, ..any() });
    bench.crowd("greedy", 1, 400, 1, 3);
    bench.crowd("modest", 2, 10, 1, 3);
    pass(60.0).await;
    let (greedy, modest) = (bench.dials_to(1), bench.dials_to(2));
    assert!((570..=640).contains(&modest), "ten targets, each once a second: {modest}");
    assert!((1700..=1900).contains(&greedy), "what is left of the rate: {greedy}");
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_a_namespace_is_bounded_beside_that_of_all() {
    let bench = Bench::new(64, ProbePolicy { max_per_second_per_namespace: 10, ..any() });
    bench.crowd("greedy", 1, 100, 1, 3);
    bench.crowd("modest", 2, 5, 1, 3);
    pass(60.0).await;
    assert!((595..=605).contains(&bench.dials_to(1)), "{}", bench.dials_to(1));
    assert!((285..=320).contains(&bench.dials_to(2)), "{}", bench.dials_to(2));
}

/// Returns how many dials there were within a second, wherever that begins, at most.
fn most_in_a_second(bench: &Bench, is_counted: impl Fn(&SocketAddr) -> bool) -> usize {
    let dialled = bench.net.dialled.lock();
    let at: Vec<Instant> =
        dialled.iter().filter(|(_, address)| is_counted(address)).map(|(at, _)| *at).collect();
    let within = |(first, from): (usize, &Instant)| {
        at[first..].iter().take_while(|at| **at < *from + Duration::from_secs(1)).count()
    };
    at.iter().enumerate().map(within).max().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn no_second_sees_more_than_the_rate_and_a_tenth_whatever_happens() {
    let policy = || ProbePolicy {
        max_per_second: 40,
        max_per_second_per_namespace: 20,
        max_per_second_per_address: 5,
        ..any()
    };
    let bench = Bench::new(64, policy());
    bench.crowd("pay", 1, 200, 1, 3);
    bench.crowd("bank", 2, 200, 1, 3);
    for port in 1..=50 {
        bench.watch(&format!("db-{port}"), &format!("db:{port}"), 3600);
    }
    for step in 0..3000 {
        bench.engine.probe_now("shop", "db");
        bench.watch("edited", &format!("10.3.0.1:{}", step % 50 + 1), 1);
        if step % 100 == 0 {
            bench.engine.reconfigure(policy());
        }
        pass(0.01).await;
    }
    let is_in = |network: u8| move |address: &SocketAddr| matches!(address.ip(), IpAddr::V4(ip) if ip.octets()[1] == network);
    assert!(bench.dials() > 30 * 36, "the rate is made use of: {}", bench.dials());
    for (most, expected, of) in [
        (most_in_a_second(&bench, |_| true), 40, "all"),
        (most_in_a_second(&bench, is_in(1)), 20, "a namespace"),
        (most_in_a_second(&bench, is_in(2)), 20, "a namespace"),
        (
            most_in_a_second(&bench, |address| !is_in(1)(address) && !is_in(2)(address)),
            20,
            "the edited namespace",
        ),
    ] {
        assert!(most <= expected + expected / 10 + 1, "{most} for {of}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_address_is_probed_no_more_often_for_many_checks_of_it_or_for_edits() {
    let bench = Bench::new(64, ProbePolicy { max_per_second_per_address: 10, ..any() });
    let get = |path: String| {
        let address = Address::parse("address", "10.1.0.1:80").unwrap();
        let (scheme, headers, statuses) = (HttpScheme::Http, Vec::new(), Vec::new());
        let check = HttpCheck { address: address.clone(), scheme, path, headers, statuses };
        Want { target: Target::new("shop", ProbeCheck::Http(check)), ..want(address, 1) }
    };
    for number in 0..50 {
        bench.engine.watch(&request(&format!("web-{number}")), vec![get(format!("/{number}"))]);
    }
    bench.watch("other", "10.2.0.1:80", 1);
    pass(0.01).await;
    let next: Vec<_> =
        (0..50).map(|number| bench.engine.describe(&request(&format!("web-{number}")))[0].next).collect();
    assert_eq!(
        next.iter().filter(|next| **next == NextProbe::Delayed(StartLimit::AddressRate)).count(),
        49,
        "{next:?}"
    );
    pass(30.0).await;
    let of_address = |address: &SocketAddr| address.to_string() == "10.1.0.1:80";
    assert!((299..=302).contains(&bench.dials_to(1)), "{}", bench.dials_to(1));
    assert!(bench.dials_to(2) >= 29, "others of the namespace do not wait for it: {}", bench.dials_to(2));
    for number in 0..50 {
        let turn = bench.engine.describe(&request(&format!("web-{number}")))[0].began;
        assert!(
            turn.is_some_and(|ago| ago < Duration::from_millis(5600)),
            "everybody's turn comes: {turn:?}"
        );
    }
    // Who comes anew each time finds that others came before.
    for edit in 0..1000 {
        bench.engine.watch(&request("edited"), vec![get(format!("/edit/{edit}"))]);
        pass(0.01).await;
        bench.engine.forget(&request("edited"));
    }
    let most = most_in_a_second(&bench, of_address);
    assert!(most <= 12, "{most} in a second");
    pass(61.0).await;
    for number in 0..50 {
        let turn = bench.engine.describe(&request(&format!("web-{number}")))[0].began;
        assert!(
            turn.is_some_and(|ago| ago < Duration::from_mins(1)),
            "nobody waits for who has left: {turn:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_takes_no_turn_from_others_of_an_address() {
    let policy = || ProbePolicy { max_per_second_per_address: 1, ..any() };
    let bench = Bench::new(8, policy());
    bench.set("10.1.0.1:80", Net::Accept);
    let watch = |name: u64, period: u64| {
        let address = Address::parse("address", "10.1.0.1:80").unwrap();
        let want = Want { timeout: Duration::from_millis(name), ..want(address, period) };
        bench.engine.watch(&request(&name.to_string()), vec![want]);
    };
    // By name: the timeout makes each a target of its own.
    let probed = || -> Vec<u64> {
        let is_probed = |name: &u64| bench.engine.describe(&request(&name.to_string()))[0].began.is_some();
        (1..=4).filter(is_probed).collect()
    };
    for name in 1..=4 {
        watch(name, 3600);
        pass(0.01).await;
    }
    assert_eq!(probed(), [1]);
    pass(0.95).await;
    watch(3, 1800);
    pass(0.1).await;
    assert_eq!(probed(), [1, 2]);
    pass(1.0).await;
    assert_eq!(probed(), [1, 2, 3], "edited, and still before the one that came after it");

    // A target that loses its place has no turn any more, and is not late by the time without one.
    for targets in [3, 4] {
        bench.engine.reconfigure(ProbePolicy { max_targets_per_namespace: targets, ..policy() });
        pass(0.1).await;
        assert_eq!((probed(), bench.dials()), (vec![1, 2, 3], 3));
    }
    pass(1.0).await;
    assert_eq!(probed(), [1, 2, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn black_holes_of_one_namespace_leave_slots_to_the_others() {
    let bench = Bench::new(64, any());
    bench.swallow(1, 500);
    bench.swallow(2, 500);
    bench.crowd("greedy", 1, 500, 60, 60);
    pass(5.0).await;
    let held = bench.net.open.load(Ordering::Relaxed);
    assert_eq!(held, 24, "half of the slots for what was never tried");
    // A second one gets half of what is left, and who comes after it still finds one.
    bench.crowd("greedy-too", 2, 500, 60, 60);
    pass(1.0).await;
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 36);
    bench.crowd("modest", 3, 3, 10, 3);
    pass(1.0).await;
    assert_eq!(bench.dials_to(3), 3, "none of them waited for a black hole");
}

#[tokio::test(start_paused = true)]
async fn black_holes_old_and_new_of_many_namespaces_leave_slots_to_what_answers() {
    let bench = Bench::new(64, any());
    bench.crowd("modest", 3, 3, 10, 3);
    pass(1.0).await;
    for (network, generation) in [(1, "old"), (2, "new")] {
        bench.swallow(network, 200);
        for namespace in 0..40 {
            bench.crowd(&format!("{generation}-{namespace}"), network, 200, 60, 60);
        }
        // All slots that black holes may hold have been taken, and most of them twice.
        pass(150.0).await;
        bench.engine.shared.slots.check();
        let held = bench.net.open.load(Ordering::Relaxed);
        assert!((32..=48).contains(&held), "{held} after the {generation} ones");
    }
    let before = bench.dials_to(3);
    pass(100.0).await;
    assert!(bench.dials_to(3) >= before + 27, "none of them waited for a black hole");
}

#[tokio::test(start_paused = true)]
async fn targets_beyond_those_of_a_namespace_wait_for_a_place() {
    let mut bench = Bench::new(8, ProbePolicy { max_targets_per_namespace: 2, ..any() });
    bench.wants("first", &[("10.0.0.1:80", 10), ("10.0.0.2:80", 10)]);
    bench.wants("second", &[("10.0.0.2:80", 10), ("10.0.0.3:80", 10)]);
    assert_eq!(bench.states("second"), [VerdictState::Pending, VerdictState::Denied]);
    let why = bench.result("second").unwrap().message().to_owned();
    assert!(why.contains("more targets than the 2 of probePolicy.maxTargetsPerNamespace"), "{why}");
    pass(60.0).await;
    assert_eq!(bench.told(), ["shop/first", "shop/first", "shop/second"]);
    assert_eq!(bench.states("second"), [VerdictState::NotReady, VerdictState::Denied]);

    bench.wants("first", &[("10.0.0.2:80", 10)]);
    pass(1.0).await;
    assert_eq!(bench.states("second"), [VerdictState::NotReady; 2], "there is a place now");
    assert_eq!(bench.told(), ["shop/second"]);

    bench.engine.reconfigure(ProbePolicy { max_targets_per_namespace: 1, ..any() });
    assert_eq!(bench.states("second"), [VerdictState::NotReady, VerdictState::Denied]);
    assert_eq!(bench.told(), ["shop/second"], "at once, and without a probe");
    let dials = bench.dials();
    pass(9.9).await;
    assert_eq!(bench.dials(), dials + 1, "only the one that has kept its place");
    bench.engine.reconfigure(any());
    pass(0.6).await;
    assert_eq!((bench.states("second"), bench.told().len()), (vec![VerdictState::NotReady; 2], 1));
}

#[tokio::test(start_paused = true)]
async fn a_place_is_kept_over_another_timeout_and_the_want_of_one_is_told_before_a_delay_is_over() {
    let mut bench = Bench::new(8, ProbePolicy { max_targets_per_namespace: 1, ..any() });
    bench.set("10.0.0.1:80", Net::Accept);
    bench.watch("web", "10.0.0.1:80", 10);
    let address = || Address::parse("address", "10.0.0.2:80").unwrap();
    let late = Want { initial_delay: Duration::from_secs(20), ..want(address(), 10) };
    bench.engine.watch(&request("late"), vec![late]);
    assert_eq!(bench.states("late"), [VerdictState::Denied]);
    assert!(bench.result("late").unwrap().message().contains("maxTargetsPerNamespace"));
    pass(1.0).await;
    bench.watch_patiently("web", "10.0.0.1:80", 10);
    assert_eq!(
        (bench.states("web"), bench.states("late")),
        (vec![VerdictState::Ready], vec![VerdictState::Denied])
    );
    pass(10.0).await;
    assert_eq!((bench.states("web"), bench.told()), (vec![VerdictState::Ready], vec!["shop/web".to_owned()]));
    bench.engine.forget(&request("web"));
    assert_eq!(bench.states("late"), [VerdictState::Pending], "it has a place now");
    assert_eq!(bench.told(), ["shop/late"], "what it was told is over");
    pass(10.0).await;
    assert_eq!(bench.states("late"), [VerdictState::NotReady]);
}

#[tokio::test(start_paused = true)]
async fn another_policy_begins_no_delay_early() {
    let bench = Bench::new(8, any());
    let address = Address::parse("address", "10.0.0.1:80").unwrap();
    let late = Want { initial_delay: Duration::from_secs(20), ..want(address, 3600) };
    bench.engine.watch(&request("late"), vec![late]);
    pass(1.0).await;
    bench.engine.reconfigure(ProbePolicy { denied_ports: vec![6000], ..any() });
    pass(18.9).await;
    assert_eq!(bench.dials(), 0);
    pass(0.7).await;
    assert_eq!((bench.dials(), bench.states("late")), (1, vec![VerdictState::NotReady]));
}

#[tokio::test(start_paused = true)]
async fn a_period_shorter_than_the_shortest_is_lengthened() {
    let bench = Bench::new(8, ProbePolicy { min_period: mainstay::config::Duration::from_secs(20), ..any() });
    bench.watch("web", "10.0.0.1:80", 1);
    pass(100.0).await;
    assert_eq!(bench.dials(), 6, "at 0, 19, 38, 57, 76 and 95");
    bench.engine.reconfigure(any());
    pass(10.0).await;
    assert!(
        (16..=17).contains(&bench.dials()),
        "another policy holds for what is waiting: {}",
        bench.dials()
    );
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_a_service_is_seen_before_the_period_is_over() {
    let mut bench = Bench::new(8, any());
    bench.wants("web", &[("db:80", 3600), ("db.shop.svc:5432", 3600), ("10.0.0.1:80", 3600)]);
    pass(60.0).await;
    assert_eq!((bench.dials(), bench.told().len()), (3, 3));
    bench.set("10.96.0.7:80", Net::Accept);
    bench.engine.probe_now("shop", "cache");
    bench.engine.probe_now("pay", "db");
    pass(1.0).await;
    assert_eq!(bench.dials(), 3, "other Services are none of its business");
    bench.engine.probe_now("shop", "db");
    pass(0.002).await;
    assert_eq!(bench.states("web"), [VerdictState::Ready, VerdictState::NotReady, VerdictState::NotReady]);
    assert_eq!(bench.dials(), 5);
    // The node learns of an endpoint a little later than we do: what failed is tried once more.
    bench.set("10.96.0.7:5432", Net::Accept);
    pass(1.1).await;
    assert_eq!(bench.states("web"), [VerdictState::Ready, VerdictState::Ready, VerdictState::NotReady]);
    assert_eq!(bench.dials(), 6);
    bench.engine.probe_now("shop", "db");
    pass(10.0).await;
    assert_eq!(bench.dials(), 6, "what is ready is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_has_come_up_does_not_queue_with_black_holes() {
    let bench = Bench::new(8, any());
    bench.set("10.96.0.7:80", Net::Silent);
    bench.watch("web", "db:80", 3600);
    pass(1.0).await;
    bench.swallow(1, 4);
    bench.crowd("shop", 1, 4, 60, 60);
    pass(300.0).await;
    let held = bench.net.open.load(Ordering::Relaxed);
    assert_eq!(held, 2, "its namespace has its share of the slots for what is slow");
    bench.set("10.96.0.7:80", Net::Accept);
    bench.engine.probe_now("shop", "db");
    pass(0.01).await;
    assert_eq!(bench.states("web"), [VerdictState::Ready]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changes_all_the_time_is_probed_little_more_often() {
    let bench = Bench::new(8, any());
    bench.watch("web", "db:80", 10);
    for _ in 0..10_000 {
        bench.engine.probe_now("shop", "db");
        pass(0.1).await;
    }
    // A thousand seconds are a hundred periods.
    assert!((190..=206).contains(&bench.dials()), "{}", bench.dials());
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_probe_is_seen_after_it_and_a_delay_stays_a_delay() {
    let bench = Bench::new(8, any());
    bench.set("10.96.0.7:80", Net::Silent);
    let address = Address::parse("address", "db:80").unwrap();
    let wants = Want { timeout: Duration::from_secs(3), ..want(address, 3600) };
    bench.engine.watch(&request("web"), vec![wants]);
    let address = Address::parse("address", "db:81").unwrap();
    let late = Want { initial_delay: Duration::from_secs(20), ..want(address, 3600) };
    bench.engine.watch(&request("late"), vec![late]);
    pass(1.0).await;
    bench.set("10.96.0.7:80", Net::Accept);
    bench.engine.probe_now("shop", "db");
    pass(1.9).await;
    assert_eq!((bench.dials(), bench.states("web")), (1, vec![VerdictState::Pending]), "one at a time");
    pass(0.2).await;
    assert_eq!((bench.dials(), bench.states("web")), (2, vec![VerdictState::Ready]));
    assert_eq!(bench.states("late"), [VerdictState::Pending]);
}

#[tokio::test(start_paused = true)]
async fn a_network_that_is_cut_is_told_from_prerequisites_that_are_down() {
    let bench = Bench::new(64, any());
    for number in 1..=10 {
        bench.set(&format!("10.1.0.{number}:80"), Net::Accept);
    }
    bench.crowd("shop", 1, 10, 10, 3);
    pass(60.0).await;
    bench.net.hosts.lock().clear();
    pass(60.0).await;
    assert!(!bench.engine.suspects_outage(), "they refuse, so they are heard");
    bench.swallow(1, 10);
    pass(20.0).await;
    assert!(bench.engine.suspects_outage(), "none is heard any more");
    bench.net.hosts.lock().clear();
    pass(10.0).await;
    assert!(bench.engine.suspects_outage(), "not until each has been seen for a while");
    pass(35.0).await;
    assert!(!bench.engine.suspects_outage());
}

#[tokio::test(start_paused = true)]
async fn who_was_not_asked_has_neither_answered_nor_fallen_silent() {
    let policy = ProbePolicy { denied_ports: vec![6000], ..any() };
    let bench = Bench::new(64, policy.clone());
    for number in 1..=3 {
        bench.set(&format!("10.1.0.{number}:80"), Net::Accept);
    }
    bench.crowd("shop", 1, 3, 10, 3);
    for number in 1..=8 {
        bench.set(&format!("10.2.0.{number}:6000"), Net::Silent);
        bench.watch(&format!("denied-{number}"), &format!("10.2.0.{number}:6000"), 10);
        bench.watch(&format!("missing-{number}"), &format!("missing-{number}:80"), 10);
        let name = format!("loopback-{number}.example.com");
        bench.net.names.lock().insert(name.clone(), vec!["127.0.0.1".parse().unwrap()]);
        bench.watch(&format!("resolved-{number}"), &format!("{name}:80"), 10);
    }
    pass(60.0).await;
    bench.engine.reconfigure(any());
    pass(30.0).await;
    assert!(!bench.engine.suspects_outage(), "who is asked for the first time");
    bench.engine.reconfigure(policy);
    pass(30.0).await;
    bench.swallow(1, 3);
    pass(20.0).await;
    assert!(bench.engine.suspects_outage(), "those that know without asking do not speak against it");
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_starts_without_a_network_does_not_take_what_held_for_lost() {
    let bench = Bench::new(64, any());
    bench.swallow(1, 3);
    for number in 1..=3 {
        let address = Address::parse("address", &format!("10.1.0.{number}:80")).unwrap();
        let wants = vec![Want { was_ready: true, failure_threshold: 3, ..want(address, 10) }];
        bench.engine.watch(&request(&format!("web-{number}")), wants);
    }
    pass(15.0).await;
    assert_eq!(bench.states("web-1"), [VerdictState::Pending], "two failures of three");
    pass(60.0).await;
    assert_eq!(bench.states("web-1"), [VerdictState::NotReady]);
    assert!(bench.engine.suspects_outage());
}

#[tokio::test(start_paused = true)]
async fn targets_that_can_no_longer_be_asked_keep_no_alarm_up() {
    let bench = Bench::new(64, any());
    for number in 1..=3 {
        bench.set(&format!("10.1.0.{number}:80"), Net::Accept);
    }
    bench.crowd("shop", 1, 3, 10, 3);
    pass(60.0).await;
    bench.swallow(1, 3);
    pass(60.0).await;
    assert!(bench.engine.suspects_outage());
    bench.engine.reconfigure(ProbePolicy { denied_ports: vec![80], ..any() });
    pass(45.0).await;
    assert!(!bench.engine.suspects_outage(), "their silence proves nothing any more");
}
