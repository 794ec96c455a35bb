//! Several targets per object, each with its own thresholds.

use super::*;

#[tokio::test(start_paused = true)]
async fn every_target_of_a_request_has_its_own_verdict_in_order() {
    let mut bench = Bench::new(8, any());
    bench.set("10.0.0.2:80", Net::Accept);
    bench.wants("web", &[("10.0.0.1:80", 10), ("10.0.0.2:80", 10), ("10.0.0.1:80", 60)]);
    assert_eq!(bench.states("web"), [VerdictState::Pending; 3]);
    pass(1.0).await;
    assert_eq!(bench.states("web"), [VerdictState::NotReady, VerdictState::Ready, VerdictState::NotReady]);
    assert_eq!(bench.dials(), 2, "a target that is listed twice is probed once");
    assert_eq!(bench.notified(), ["shop/web", "shop/web"], "once for each result");

    bench.wants("web", &[("10.0.0.2:80", 10), ("10.0.0.3:80", 10)]);
    assert_eq!(bench.states("web"), [VerdictState::Ready, VerdictState::Pending], "known results stay");
    pass(60.0).await;
    let dialled = bench.net.dialled.lock().clone();
    let gone = dialled.iter().filter(|(_, address)| address.ip().to_string() == "10.0.0.1").count();
    assert_eq!(gone, 1, "a target that is not listed any more is not probed any more");
    bench.wants("web", &[]);
    assert_eq!(bench.states("web"), []);
    let dials = bench.dials();
    pass(60.0).await;
    assert_eq!(bench.dials(), dials);
}

#[tokio::test(start_paused = true)]
async fn each_object_has_its_own_thresholds() {
    let mut bench = Bench::new(8, any());
    bench.set("10.0.0.1:80", Net::Accept);
    let address = || Address::parse("address", "10.0.0.1:80").unwrap();
    let patient = Want { success_threshold: 3, failure_threshold: 2, ..want(address(), 10) };
    bench.engine.watch(&request("patient"), vec![patient]);
    bench.watch("quick", "10.0.0.1:80", 10);
    pass(1.0).await;
    assert_eq!(bench.states("quick"), [VerdictState::Ready]);
    assert_eq!(bench.states("patient"), [VerdictState::NotReady], "one success of three");
    assert_eq!(bench.reason("patient"), Some("Connected"));
    assert_eq!(bench.notified(), ["shop/patient", "shop/quick"]);
    pass(10.0).await;
    assert!(bench.notified().is_empty(), "the second success changes no verdict");
    pass(10.0).await;
    assert_eq!(
        (bench.states("patient"), bench.notified()),
        (vec![VerdictState::Ready], vec!["shop/patient".to_owned()])
    );

    bench.net.hosts.lock().clear();
    pass(10.0).await;
    assert_eq!(
        (bench.states("quick"), bench.states("patient")),
        (vec![VerdictState::NotReady], vec![VerdictState::Ready])
    );
    pass(10.0).await;
    assert_eq!(bench.states("patient"), [VerdictState::NotReady]);
    assert_eq!(
        bench.notified(),
        ["shop/patient", "shop/patient", "shop/quick"],
        "the result, then the verdict"
    );
}

#[tokio::test(start_paused = true)]
async fn an_initial_delay_applies_only_to_its_own_object() {
    let mut bench = Bench::new(8, any());
    let address = || Address::parse("address", "10.0.0.1:80").unwrap();
    let late = || vec![Want { initial_delay: Duration::from_secs(25), ..want(address(), 10) }];
    bench.engine.watch(&request("late"), late());
    pass(20.0).await;
    assert_eq!(bench.dials(), 0);
    bench.watch("early", "10.0.0.1:80", 10);
    pass(4.0).await;
    assert_eq!((bench.dials(), bench.notified()), (1, vec!["shop/early".to_owned()]));
    bench.engine.watch(&request("late"), late());
    assert_eq!(
        bench.states("late"),
        [VerdictState::Pending],
        "a probe before the end of the delay does not count"
    );
    pass(6.5).await;
    assert_eq!(
        (bench.states("late"), bench.notified()),
        (vec![VerdictState::NotReady], vec!["shop/late".to_owned()])
    );

    bench.engine.forget(&request("late"));
    bench.engine.forget(&request("early"));
    let dials = bench.dials();
    bench.engine.watch(&request("late"), late());
    pass(24.9).await;
    assert_eq!(bench.dials(), dials);
    pass(0.2).await;
    assert_eq!(bench.dials(), dials + 1);
}

#[tokio::test(start_paused = true)]
async fn a_description_has_the_results_and_the_next_probe() {
    let bench = Bench::new(8, ProbePolicy { max_targets_per_namespace: 2, max_per_second: 1, ..any() });
    bench.set("10.0.0.2:80", Net::Silent);
    for name in 0..20 {
        bench.watch(&format!("web-{name:02}"), "db:80", 10);
    }
    let of = |(address, timeout)| {
        let address = Address::parse("address", address).unwrap();
        Want { timeout: Duration::from_millis(timeout), ..want(address, 60) }
    };
    bench.engine.watch(
        &request("web-00"),
        [("db:80", 500), ("10.0.0.2:80", 3000), ("10.0.0.3:80", 500)].map(of).to_vec(),
    );
    let next = |description: &Description| description.next;
    let describe = || bench.engine.describe(&request("web-00"));
    pass(0.001).await;
    let [answers, silent, third] = &describe()[..] else { panic!("three targets") };
    assert_eq!((answers.state, answers.failures, answers.others), (VerdictState::NotReady, 1, 19));
    assert_eq!(answers.result.as_ref().map(ProbeResult::reason), Some("Refused"));
    assert_eq!(answers.named.len(), MAX_NAMED);
    assert_eq!(answers.named.first(), Some(&request("web-01")));
    assert_eq!(answers.named.last(), Some(&request("web-10")));
    assert_eq!(answers.period, Duration::from_secs(10), "the period of the others");
    assert_eq!((answers.took.unwrap(), answers.began.unwrap()), (Duration::ZERO, Duration::from_millis(1)));
    assert_eq!(next(silent), NextProbe::Delayed(StartLimit::Rate), "one a second");
    assert_eq!((silent.result.clone(), silent.others), (None, 0));
    assert_eq!(next(third), NextProbe::OverTargetLimit);
    assert_eq!(third.state, VerdictState::Denied);

    pass(2.0).await;
    let [answers, silent, _] = &describe()[..] else { panic!("three targets") };
    assert_eq!(answers.unchanged_for, Some(Duration::from_millis(2001)));
    assert_eq!(next(answers), NextProbe::In(Duration::from_millis(9500 - 2001)));
    assert_eq!((next(silent), silent.took), (NextProbe::InFlight, None));
    assert!(bench.engine.describe(&request("unknown")).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_long_timeout_does_not_delay_objects_with_a_short_one() {
    let bench = Bench::new(8, any());
    bench.set("10.96.0.7:80", Net::Silent);
    bench.watch_patiently("patient", "db:80", 60);
    pass(1.0).await;
    bench.watch("other", "db:80", 5);
    pass(1.0).await;
    assert_eq!(bench.reason("other"), Some("Timeout"), "its own timeout is over");
    assert_eq!(bench.reason("patient"), None, "the long timeout is not over");
    bench.set("10.96.0.7:80", Net::Accept);
    pass(5.1).await;
    assert_eq!(bench.states("other"), [VerdictState::Ready]);
}

#[tokio::test(start_paused = true)]
async fn results_stay_while_the_timeout_changes() {
    let mut bench = Bench::new(8, any());
    bench.set("10.0.0.1:80", Net::Accept);
    bench.watch("web", "10.0.0.1:80", 10);
    pass(1.0).await;
    assert_eq!((bench.states("web"), bench.notified().len()), (vec![VerdictState::Ready], 1));
    bench.watch_patiently("web", "10.0.0.1:80", 10);
    assert_eq!((bench.states("web"), bench.reason("web")), (vec![VerdictState::Ready], Some("Connected")));
    pass(20.0).await;
    assert!(bench.notified().is_empty());
    assert!(bench.dials() <= 4, "the entry with the old timeout is not probed any more: {}", bench.dials());
}

#[tokio::test(start_paused = true)]
async fn a_want_with_another_timeout_takes_no_state_from_an_unchanged_want() {
    let mut bench = Bench::new(8, ProbePolicy { max_targets_per_namespace: 1, ..any() });
    bench.set("10.0.0.1:80", Net::Accept);
    bench.watch("web", "10.0.0.1:80", 10);
    pass(1.0).await;
    assert_eq!((bench.states("web"), bench.notified().len()), (vec![VerdictState::Ready], 1));
    let address = || Address::parse("address", "10.0.0.1:80").unwrap();
    let patient = Want { timeout: Duration::from_secs(5), ..want(address(), 10) };
    bench.engine.watch(&request("web"), vec![patient, want(address(), 10)]);
    assert_eq!(bench.states("web"), [VerdictState::Denied, VerdictState::Ready]);
}
