//! The longest run, and the runs that count as timeouts.

use super::*;

/// A reconciler that sends the deadline of each reconcile, which then takes this long.
struct Tells {
    deadlines: mpsc::UnboundedSender<Option<Instant>>,
    takes: Duration,
}

impl Reconciler for Tells {
    async fn reconcile(&self, _: &NamespacedName, cx: &Context) -> Outcome {
        self.deadlines.send(cx.deadline()).expect("the test listens");
        sleep(self.takes).await;
        Ok(Action::Done)
    }
}

fn timeouts(bench: &Bench) -> String {
    bench.counts("controller_runtime_reconcile_timeouts_total")
}

/// Begins the run of one key under a timeout.
async fn one_run<F, W>(timeout: Duration, run: F) -> (Bench, Runs)
where
    F: Fn() -> W + Send + Sync + 'static,
    W: Future<Output = Outcome> + Send + 'static,
{
    let (reconciler, mut runs) = scripted(move |_| run());
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.settings.send_modify(|settings| {
        settings.reconcile_timeout = timeout;
        settings.queue.retry = RetryPolicy::fixed(100 * LONG);
    });
    sleep(Duration::from_millis(1)).await;
    bench.notifier.notify(key("web"));
    next(&mut runs).await;
    (bench, runs)
}

#[tokio::test(start_paused = true)]
async fn the_context_tells_when_the_run_will_be_dropped_and_nothing_where_it_never_is() {
    let (deadlines, mut told) = mpsc::unbounded_channel();
    let bench = Bench::start(Controller::new("test"), Tells { deadlines, takes: 10 * LONG });
    for (limit, result) in [(Duration::from_secs(30), "error"), (Duration::ZERO, "success")] {
        bench.settings.send_modify(|settings| {
            settings.reconcile_timeout = limit;
            settings.queue.retry = RetryPolicy::fixed(100 * LONG);
        });
        sleep(Duration::from_millis(1)).await;
        let began = Instant::now();
        bench.notifier.notify(key(result));
        let deadline = told.recv().await.expect("a run");
        assert_eq!(deadline, (!limit.is_zero()).then(|| began + limit));
        sleep(20 * LONG).await;
        let counted = bench.counts("controller_runtime_reconcile_total");
        assert!(counted.contains(&format!("result=\"{result}\"}} 1")), "{counted}");
    }
}

#[tokio::test(start_paused = true)]
async fn every_run_that_meets_its_timeout_counts_as_one() {
    let (reconciler, mut runs) = scripted(async |_| std::future::pending().await);
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    for _ in 0..3 {
        next(&mut runs).await;
    }
    // The third is still running.
    sleep(DEFAULT_RECONCILE_TIMEOUT + Duration::from_millis(1)).await;
    assert_eq!(timeouts(&bench), "{controller=\"test\"} 3");
}

#[tokio::test(start_paused = true)]
async fn a_timeout_names_the_limit_the_run_had_and_not_that_of_the_next() {
    let (bench, _runs) = one_run(Duration::from_mins(1), async || std::future::pending().await).await;
    bench.settings.send_modify(|settings| settings.reconcile_timeout = LONG);
    sleep(Duration::from_mins(1) + Duration::from_millis(1)).await;
    let error = bench.keys().remove(0).last_error.expect("it failed");
    assert_eq!(*error, "no outcome within reconcileTimeout 60s");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_panics_when_it_is_dropped_has_ended_all_the_same() {
    let (bench, _runs) = one_run(Duration::from_mins(1), async || {
        let _panics = on_drop(|| panic!("cannot let go"));
        std::future::pending().await
    })
    .await;
    assert_eq!(bench.counts("controller_runtime_active_workers"), "{controller=\"test\"} 1");
    sleep(LONG).await;
    assert_eq!(bench.counts("controller_runtime_active_workers"), "");
    assert_eq!(bench.counts("controller_runtime_reconcile_time_seconds_count"), "{controller=\"test\"} 1");
}

#[tokio::test(start_paused = true)]
async fn nothing_but_the_timeout_of_the_controller_counts_as_one() {
    const LIMIT: Duration = Duration::from_mins(1);
    let (bench, _runs) = one_run(LIMIT, async || {
        timeout(Duration::from_secs(1), std::future::pending::<()>()).await?;
        Ok(Action::Done)
    })
    .await;
    sleep(LIMIT).await;
    let result = bench.counts("controller_runtime_reconcile_total");
    assert_eq!(result, "{controller=\"test\",result=\"error\"} 1");
    assert_eq!(timeouts(&bench), "", "a timeout of the reconciler's own");

    let in_time = async || {
        sleep(LIMIT.saturating_sub(Duration::from_millis(1))).await;
        Ok(Action::Done)
    };
    let (bench, _runs) = one_run(LIMIT, in_time).await;
    sleep(LONG).await;
    assert_eq!(timeouts(&bench), "", "in time");

    let (bench, _runs) = one_run(LIMIT, async || std::future::pending().await).await;
    bench.term.lose();
    sleep(LONG).await;
    assert_eq!(timeouts(&bench), "", "interrupted, since the Lease was lost");

    let (bench, _runs) = one_run(Duration::ZERO, async || std::future::pending().await).await;
    sleep(LONG).await;
    assert_eq!(timeouts(&bench), "", "no limit at all");
    assert_eq!(bench.status().counts.running, 1);
}
