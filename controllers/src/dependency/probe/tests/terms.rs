//! The start and the end of terms of leadership.

use super::*;

#[tokio::test(start_paused = true)]
async fn the_end_of_a_run_closes_sockets_and_forgets_results() {
    let mut bench = Bench::new(8, any());
    bench.set("10.0.0.1:80", Net::Accept);
    bench.set("10.0.0.2:80", Net::Silent);
    bench.watch("known", "10.0.0.1:80", 10);
    bench.watch_patiently("silent", "10.0.0.2:80", 10);
    pass(1.0).await;
    assert_eq!((bench.states("known"), bench.notified().len()), (vec![VerdictState::Ready], 1));
    bench.stop.cancel();
    let driver = bench.driver.join_next().await.unwrap().unwrap();
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 0);
    assert_eq!(bench.notified(), ["shop/known", "shop/silent"], "they register again");

    // Another replica leads for an hour.
    bench.net.hosts.lock().clear();
    pass(3600.0).await;
    bench.driver.spawn(async move {
        driver.run(CancellationToken::new()).await;
        driver
    });
    bench.watch("known", "10.0.0.1:80", 10);
    assert_eq!(bench.states("known"), [VerdictState::Pending], "the old result does not count");
    pass(1.0).await;
    assert_eq!((bench.states("known"), bench.notified().len()), (vec![VerdictState::NotReady], 1));
    let dials = bench.dials();
    pass(60.0).await;
    assert_eq!(bench.dials(), dials + 6, "an object that does not register again is not probed");
}

#[tokio::test(start_paused = true)]
async fn targets_registered_between_two_terms_are_ignored() {
    let mut bench = Bench::new(8, any());
    let (lead, leading) = watch::channel(true);
    bench.engine = bench.engine.clone().while_leading(leading);
    bench.watch("web", "10.0.0.1:80", 10);
    pass(1.0).await;
    assert_eq!(bench.dials(), 1);

    lead.send(false).unwrap();
    bench.stop.cancel();
    let driver = bench.driver.join_next().await.unwrap().unwrap();
    bench.watch("web", "10.0.0.1:80", 10);
    assert_eq!(bench.states("web"), []);
    lead.send(true).unwrap();
    // A reconcile of the new term may register before the driver runs.
    bench.watch("other", "10.0.0.2:80", 10);
    bench.driver.spawn(async move {
        driver.run(CancellationToken::new()).await;
        driver
    });
    pass(1.0).await;
    let last = bench.net.dialled.lock().last().unwrap().1;
    assert_eq!((bench.dials(), last), (2, "10.0.0.2:80".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_registers_before_the_old_run_ends_is_enqueued_again() {
    let mut bench = Bench::new(8, any());
    let (lead, leading) = watch::channel(true);
    bench.engine = bench.engine.clone().while_leading(leading);
    pass(1.0).await;

    // The Lease is acquired again before the driver is polled.
    lead.send(false).unwrap();
    bench.stop.cancel();
    lead.send(true).unwrap();
    bench.watch("web", "10.0.0.1:80", 10);
    drop(bench.driver.join_next().await.unwrap().unwrap());
    assert_eq!((bench.states("web"), bench.notified()), (vec![], vec!["shop/web".to_owned()]));
}
