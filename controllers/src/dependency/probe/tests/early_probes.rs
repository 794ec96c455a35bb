//! Probes that a changed Service makes due early.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_changed_service_is_probed_before_the_period_is_over() {
    let mut bench = Bench::new(8, any());
    bench.wants("web", &[("db:80", 3600), ("db.shop.svc:5432", 3600), ("10.0.0.1:80", 3600)]);
    pass(60.0).await;
    assert_eq!((bench.dials(), bench.notified().len()), (3, 3));
    bench.set("10.96.0.7:80", Net::Accept);
    bench.engine.probe_now("shop", "cache");
    bench.engine.probe_now("pay", "db");
    pass(1.0).await;
    assert_eq!(bench.dials(), 3, "other Services have no effect");
    bench.engine.probe_now("shop", "db");
    pass(0.002).await;
    assert_eq!(bench.states("web"), [VerdictState::Ready, VerdictState::NotReady, VerdictState::NotReady]);
    assert_eq!(bench.dials(), 5);
    // A node may learn of an endpoint a little later than the manager: a failed probe is repeated once.
    bench.set("10.96.0.7:5432", Net::Accept);
    pass(1.1).await;
    assert_eq!(bench.states("web"), [VerdictState::Ready, VerdictState::Ready, VerdictState::NotReady]);
    assert_eq!(bench.dials(), 6);
    bench.engine.probe_now("shop", "db");
    pass(10.0).await;
    assert_eq!(bench.dials(), 6, "a ready target is not probed early");
}

#[tokio::test(start_paused = true)]
async fn a_changed_service_does_not_queue_with_black_holes() {
    let bench = Bench::new(8, any());
    bench.set("10.96.0.7:80", Net::Silent);
    bench.watch("web", "db:80", 3600);
    pass(1.0).await;
    bench.silence(1, 4);
    bench.watch_many("shop", 1, 4, 60, 60);
    pass(300.0).await;
    let held = bench.net.open.load(Ordering::Relaxed);
    assert_eq!(held, 2, "its namespace holds its share of the slots for slow targets");
    bench.set("10.96.0.7:80", Net::Accept);
    bench.engine.probe_now("shop", "db");
    pass(0.01).await;
    assert_eq!(bench.states("web"), [VerdictState::Ready]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changes_all_the_time_is_probed_at_most_twice_as_often() {
    let bench = Bench::new(8, any());
    bench.watch("web", "db:80", 10);
    for _ in 0..10_000 {
        bench.engine.probe_now("shop", "db");
        pass(0.1).await;
    }
    // A thousand seconds: a hundred periods.
    assert!((190..=206).contains(&bench.dials()), "{}", bench.dials());
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_probe_is_probed_after_it_and_an_initial_delay_is_kept() {
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
