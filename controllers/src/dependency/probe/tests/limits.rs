//! Rates, slots and numbers of targets are bounded, and shared fairly between namespaces.

use mainstay_api::plan::HttpCheck;
use mainstay_api::wait_for::HttpScheme;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_namespace_with_many_targets_leaves_the_others_their_share_of_the_rate() {
    let bench =
        Bench::new(64, ProbePolicy { max_per_second: 40, max_per_second_per_namespace: 1000, ..any() });
    bench.watch_many("greedy", 1, 400, 1, 3);
    bench.watch_many("modest", 2, 10, 1, 3);
    pass(60.0).await;
    let (greedy, modest) = (bench.dials_to(1), bench.dials_to(2));
    assert!((570..=640).contains(&modest), "ten targets, each once a second: {modest}");
    assert!((1700..=1900).contains(&greedy), "the rest of the rate: {greedy}");
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_a_namespace_is_bounded_beside_that_of_all() {
    let bench = Bench::new(64, ProbePolicy { max_per_second_per_namespace: 10, ..any() });
    bench.watch_many("greedy", 1, 100, 1, 3);
    bench.watch_many("modest", 2, 5, 1, 3);
    pass(60.0).await;
    assert!((595..=605).contains(&bench.dials_to(1)), "{}", bench.dials_to(1));
    assert!((285..=320).contains(&bench.dials_to(2)), "{}", bench.dials_to(2));
}

/// Returns the largest number of counted dials within any second.
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
async fn no_second_has_more_probes_than_the_rate_and_a_tenth() {
    let policy = || ProbePolicy {
        max_per_second: 40,
        max_per_second_per_namespace: 20,
        max_per_second_per_address: 5,
        ..any()
    };
    let bench = Bench::new(64, policy());
    bench.watch_many("pay", 1, 200, 1, 3);
    bench.watch_many("bank", 2, 200, 1, 3);
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
    assert!(bench.dials() > 30 * 36, "the rate is used up: {}", bench.dials());
    for (most, expected, of) in [
        (most_in_a_second(&bench, |_| true), 40, "all"),
        (most_in_a_second(&bench, |address| is_in(1, address)), 20, "a namespace"),
        (most_in_a_second(&bench, |address| is_in(2, address)), 20, "a namespace"),
        (
            most_in_a_second(&bench, |address| !is_in(1, address) && !is_in(2, address)),
            20,
            "the edited namespace",
        ),
    ] {
        assert!(most <= expected + expected / 10 + 1, "{most} for {of}");
    }
}

#[tokio::test(start_paused = true)]
async fn many_checks_and_edits_do_not_raise_the_rate_of_one_address() {
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
    assert!(
        bench.dials_to(2) >= 29,
        "other targets of the namespace do not wait for it: {}",
        bench.dials_to(2)
    );
    for number in 0..50 {
        let turn = bench.engine.describe(&request(&format!("web-{number}")))[0].began;
        assert!(
            turn.is_some_and(|ago| ago < Duration::from_millis(5600)),
            "every check has a turn: {turn:?}"
        );
    }
    // A check that is new each time waits behind the others.
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
            "no check waits for removed ones: {turn:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_edit_takes_no_turn_from_other_checks_of_an_address() {
    let policy = || ProbePolicy { max_per_second_per_address: 1, ..any() };
    let bench = Bench::new(8, policy());
    bench.set("10.1.0.1:80", Net::Accept);
    let watch = |name: u64, period: u64| {
        let address = Address::parse("address", "10.1.0.1:80").unwrap();
        let want = Want { timeout: Duration::from_millis(name), ..want(address, period) };
        bench.engine.watch(&request(&name.to_string()), vec![want]);
    };
    // The names of the probed objects; each has another timeout, and so a target of its own.
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
    assert_eq!(probed(), [1, 2, 3], "the edited one keeps its turn before the later one");

    // A target that is over the limit for a while loses its turn and takes a new one.
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
    bench.silence(1, 500);
    bench.silence(2, 500);
    bench.watch_many("greedy", 1, 500, 60, 60);
    pass(5.0).await;
    let held = bench.net.open.load(Ordering::Relaxed);
    assert_eq!(held, 24, "half of the slots for untried targets");
    // A second namespace gets half of the rest, and a third one still gets a slot.
    bench.watch_many("greedy-too", 2, 500, 60, 60);
    pass(1.0).await;
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 36);
    bench.watch_many("modest", 3, 3, 10, 3);
    pass(1.0).await;
    assert_eq!(bench.dials_to(3), 3, "none of them waited for a black hole");
}

#[tokio::test(start_paused = true)]
async fn black_holes_of_many_namespaces_leave_slots_to_targets_that_answer() {
    let bench = Bench::new(64, any());
    bench.watch_many("modest", 3, 3, 10, 3);
    pass(1.0).await;
    for (network, generation) in [(1, "old"), (2, "new")] {
        bench.silence(network, 200);
        for namespace in 0..40 {
            bench.watch_many(&format!("{generation}-{namespace}"), network, 200, 60, 60);
        }
        // Long enough for black holes to take all slots they may hold, most of them twice.
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
async fn targets_over_the_limit_of_a_namespace_are_deferred() {
    let mut bench = Bench::new(8, ProbePolicy { max_targets_per_namespace: 2, ..any() });
    bench.wants("first", &[("10.0.0.1:80", 10), ("10.0.0.2:80", 10)]);
    bench.wants("second", &[("10.0.0.2:80", 10), ("10.0.0.3:80", 10)]);
    assert_eq!(bench.states("second"), [VerdictState::Pending, VerdictState::Denied]);
    let why = bench.result("second").unwrap().message().to_owned();
    assert!(why.contains("more targets than the 2 of probePolicy.maxTargetsPerNamespace"), "{why}");
    pass(60.0).await;
    assert_eq!(bench.notified(), ["shop/first", "shop/first", "shop/second"]);
    assert_eq!(bench.states("second"), [VerdictState::NotReady, VerdictState::Denied]);

    bench.wants("first", &[("10.0.0.2:80", 10)]);
    pass(1.0).await;
    assert_eq!(bench.states("second"), [VerdictState::NotReady; 2], "within the limit now");
    assert_eq!(bench.notified(), ["shop/second"]);

    bench.engine.reconfigure(ProbePolicy { max_targets_per_namespace: 1, ..any() });
    assert_eq!(bench.states("second"), [VerdictState::NotReady, VerdictState::Denied]);
    assert_eq!(bench.notified(), ["shop/second"], "at once, and without a probe");
    let dials = bench.dials();
    pass(9.9).await;
    assert_eq!(bench.dials(), dials + 1, "only the admitted one");
    bench.engine.reconfigure(any());
    pass(0.6).await;
    assert_eq!((bench.states("second"), bench.notified().len()), (vec![VerdictState::NotReady; 2], 1));
}

#[tokio::test(start_paused = true)]
async fn a_target_stays_admitted_with_another_timeout_and_a_denial_shows_before_the_delay_is_over() {
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
    assert_eq!(
        (bench.states("web"), bench.notified()),
        (vec![VerdictState::Ready], vec!["shop/web".to_owned()])
    );
    bench.engine.forget(&request("web"));
    assert_eq!(bench.states("late"), [VerdictState::Pending], "admitted now");
    assert_eq!(bench.notified(), ["shop/late"], "the denial is over");
    pass(10.0).await;
    assert_eq!(bench.states("late"), [VerdictState::NotReady]);
}

#[tokio::test(start_paused = true)]
async fn another_policy_does_not_shorten_an_initial_delay() {
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
async fn the_minimum_period_of_the_policy_applies() {
    let bench = Bench::new(8, ProbePolicy { min_period: mainstay::config::Duration::from_secs(20), ..any() });
    bench.watch("web", "10.0.0.1:80", 1);
    pass(100.0).await;
    assert_eq!(bench.dials(), 6, "at 0, 19, 38, 57, 76 and 95");
    bench.engine.reconfigure(any());
    pass(10.0).await;
    assert!(
        (16..=17).contains(&bench.dials()),
        "another policy applies to registered targets: {}",
        bench.dials()
    );
}
