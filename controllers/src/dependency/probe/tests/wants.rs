//! Many targets per request, each judged by its own thresholds.

use super::*;

#[tokio::test(start_paused = true)]
async fn every_target_of_a_request_has_its_own_verdict_in_order() {
    let mut bench = Bench::new(8, any());
    bench.set("10.0.0.2:80", Net::Accept);
    bench.wants("web", &[("10.0.0.1:80", 10), ("10.0.0.2:80", 10), ("10.0.0.1:80", 60)]);
    assert_eq!(bench.states("web"), [VerdictState::Pending; 3]);
    pass(1.0).await;
    assert_eq!(bench.states("web"), [VerdictState::NotReady, VerdictState::Ready, VerdictState::NotReady]);
    assert_eq!(bench.dials(), 2, "what is named twice is probed once");
    assert_eq!(bench.told(), ["shop/web", "shop/web"], "once for each result");

    bench.wants("web", &[("10.0.0.2:80", 10), ("10.0.0.3:80", 10)]);
    assert_eq!(
        bench.states("web"),
        [VerdictState::Ready, VerdictState::Pending],
        "what is known stays known"
    );
    pass(60.0).await;
    let dialled = bench.net.dialled.lock().clone();
    let gone = dialled.iter().filter(|(_, address)| address.ip().to_string() == "10.0.0.1").count();
    assert_eq!(gone, 1, "what is not named any more is not probed any more");
    bench.wants("web", &[]);
    assert_eq!(bench.states("web"), []);
    let dials = bench.dials();
    pass(60.0).await;
    assert_eq!(bench.dials(), dials);
}

#[tokio::test(start_paused = true)]
async fn thresholds_are_those_of_each_who_waits() {
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
    assert_eq!(bench.told(), ["shop/patient", "shop/quick"]);
    pass(10.0).await;
    assert!(bench.told().is_empty(), "the second success is no news");
    pass(10.0).await;
    assert_eq!(
        (bench.states("patient"), bench.told()),
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
        bench.told(),
        ["shop/patient", "shop/patient", "shop/quick"],
        "the result, then the judgement"
    );
}

#[tokio::test(start_paused = true)]
async fn a_delay_is_waited_for_by_who_asked_for_it_alone() {
    let mut bench = Bench::new(8, any());
    let address = || Address::parse("address", "10.0.0.1:80").unwrap();
    let late = || vec![Want { initial_delay: Duration::from_secs(25), ..want(address(), 10) }];
    bench.engine.watch(&request("late"), late());
    pass(20.0).await;
    assert_eq!(bench.dials(), 0);
    bench.watch("early", "10.0.0.1:80", 10);
    pass(4.0).await;
    assert_eq!((bench.dials(), bench.told()), (1, vec!["shop/early".to_owned()]));
    bench.engine.watch(&request("late"), late());
    assert_eq!(bench.states("late"), [VerdictState::Pending], "a probe before its time does not count");
    pass(6.5).await;
    assert_eq!(
        (bench.states("late"), bench.told()),
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
async fn a_description_says_what_is_known_and_what_comes_next() {
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
    assert_eq!(answers.period, Duration::from_secs(10), "what the others ask for");
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
    assert!(bench.engine.describe(&request("nobody")).is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_has_patience_makes_nobody_else_see_late() {
    let bench = Bench::new(8, any());
    bench.set("10.96.0.7:80", Net::Silent);
    bench.watch_patiently("patient", "db:80", 60);
    pass(1.0).await;
    bench.watch("other", "db:80", 5);
    pass(1.0).await;
    assert_eq!(bench.reason("other"), Some("Timeout"), "its own time is over");
    assert_eq!(bench.reason("patient"), None, "and it is not the other's");
    bench.set("10.96.0.7:80", Net::Accept);
    pass(5.1).await;
    assert_eq!(bench.states("other"), [VerdictState::Ready]);
}

#[tokio::test(start_paused = true)]
async fn what_is_known_stays_known_while_the_time_for_a_probe_changes() {
    let mut bench = Bench::new(8, any());
    bench.set("10.0.0.1:80", Net::Accept);
    bench.watch("web", "10.0.0.1:80", 10);
    pass(1.0).await;
    assert_eq!((bench.states("web"), bench.told().len()), (vec![VerdictState::Ready], 1));
    bench.watch_patiently("web", "10.0.0.1:80", 10);
    assert_eq!((bench.states("web"), bench.reason("web")), (vec![VerdictState::Ready], Some("Connected")));
    pass(20.0).await;
    assert!(bench.told().is_empty());
    assert!(bench.dials() <= 4, "the one before is not probed any more: {}", bench.dials());
}

#[tokio::test(start_paused = true)]
async fn who_asks_with_another_timeout_takes_nothing_from_who_asks_as_before() {
    let mut bench = Bench::new(8, ProbePolicy { max_targets_per_namespace: 1, ..any() });
    bench.set("10.0.0.1:80", Net::Accept);
    bench.watch("web", "10.0.0.1:80", 10);
    pass(1.0).await;
    assert_eq!((bench.states("web"), bench.told().len()), (vec![VerdictState::Ready], 1));
    let address = || Address::parse("address", "10.0.0.1:80").unwrap();
    let patient = Want { timeout: Duration::from_secs(5), ..want(address(), 10) };
    bench.engine.watch(&request("web"), vec![patient, want(address(), 10)]);
    assert_eq!(bench.states("web"), [VerdictState::Denied, VerdictState::Ready]);
}
