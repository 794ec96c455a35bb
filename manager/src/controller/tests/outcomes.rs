//! The state of a key after each outcome, and how the outcome is counted.

use super::*;
use crate::client::tests::server::logged_by_all;

/// Long enough for a run that has begun to be over, and shorter than any wait here.
const MOMENT: Duration = Duration::from_millis(1);

/// Makes a reconciler that returns these outcomes, one after the other, and later no error.
fn following(script: impl IntoIterator<Item = Outcome>) -> (impl Reconciler, Runs) {
    let script: Mutex<VecDeque<Outcome>> = Mutex::new(script.into_iter().collect());
    scripted(move |_| {
        let outcome = script.lock().pop_front().unwrap_or(Ok(Action::Done));
        async move { outcome }
    })
}

/// Returns the only key of the queue; panics if there is another number of keys.
fn only(bench: &Bench) -> KeySnapshot<KeyText> {
    let mut keys = bench.keys();
    assert_eq!(keys.len(), 1, "{keys:?}");
    keys.remove(0)
}

/// Returns state, attempts and last error of a key.
fn failure(key: &KeySnapshot<KeyText>) -> (State, u32, Option<&str>) {
    (key.state, key.attempts, key.last_error.as_ref().map(|error| error.as_str()))
}

#[tokio::test(start_paused = true)]
async fn a_key_reaches_the_reconciler_once_and_nothing_of_it_is_left() {
    let (reconciler, mut runs) = following([]);
    let bench = Bench::start(Controller::new("test"), reconciler);
    let at = Instant::now();
    bench.notifier.notify(key("web"));
    assert_eq!(next(&mut runs).await, (key("web"), 1, at));
    none(&mut runs, LONG).await;
    assert!(bench.keys().is_empty(), "{:?}", bench.keys());
}

#[tokio::test(start_paused = true)]
async fn each_error_adds_to_the_attempts_and_the_next_success_forgets_them() {
    let (reconciler, mut runs) = following([Err("down".into()), Err("still down".into())]);
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    for (attempt, error) in [(1, "down"), (2, "still down")] {
        assert_eq!(next(&mut runs).await.1, attempt);
        sleep(MOMENT).await;
        assert_eq!(failure(&only(&bench)), (State::Backoff, attempt, Some(error)));
    }
    assert_eq!(next(&mut runs).await.1, 3, "and succeeds");
    none(&mut runs, LONG).await;
    assert!(bench.keys().is_empty());
    bench.notifier.notify(key("web"));
    assert_eq!(next(&mut runs).await.1, 1, "as if it had never failed");
}

#[tokio::test(start_paused = true)]
async fn a_requeue_forgets_the_attempts_and_comes_back_at_its_moment_without_jitter() {
    let wait = Duration::from_mins(7);
    let (reconciler, mut runs) = following([Err("down".into()), Ok(Action::RequeueAfter(wait))]);
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    assert_eq!(next(&mut runs).await.1, 1);
    let (_, attempt, asked) = next(&mut runs).await;
    assert_eq!(attempt, 2);
    sleep(MOMENT).await;
    assert_eq!(failure(&only(&bench)), (State::Requeued, 0, None));
    assert_eq!(next(&mut runs).await, (key("web"), 1, asked + wait));
}

#[tokio::test(start_paused = true)]
async fn a_requeue_after_no_time_is_none() {
    let (reconciler, mut runs) =
        following([Err("down".into()), Ok(Action::RequeueAfter(Duration::ZERO)), Err("run again".into())]);
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    assert_eq!(next(&mut runs).await.1, 1);
    assert_eq!(next(&mut runs).await.1, 2);
    none(&mut runs, LONG).await;
    assert!(bench.keys().is_empty(), "{:?}", bench.keys());
    let counted = bench.counts("controller_runtime_reconcile_total");
    assert!(counted.ends_with(r#"result="success"} 1"#), "{counted}");
}

#[tokio::test(start_paused = true)]
async fn a_key_parked_by_its_conflicts_is_an_error_that_the_log_tells() {
    let lines = logged_by_all(tracing::Level::WARN, async {
        let (reconciler, mut runs) = scripted(async |_| Err(conflict()));
        let bench = Bench::start(Controller::new("test"), reconciler);
        bench.settings.send_modify(|settings| settings.queue.retry.max_attempts = 2);
        sleep(MOMENT).await;
        bench.notifier.notify(key("web"));
        assert_eq!(next(&mut runs).await.1, 1);
        assert_eq!(next(&mut runs).await.1, 2);
        none(&mut runs, LONG).await;
        assert_eq!(only(&bench).state, State::Parked);
        let counted = bench.counts("controller_runtime_reconcile_total");
        assert_eq!(
            counted,
            "{controller=\"test\",result=\"error\"} 1\n{controller=\"test\",result=\"requeue\"} 1"
        );
    })
    .await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("failed too often"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_terminal_error_waits_for_no_change_that_has_come_already() {
    let lines = logged_by_all(tracing::Level::WARN, async {
        let (reconciler, mut runs) = scripted(async |attempt| {
            sleep(Duration::from_secs(1)).await;
            if attempt == 1 { Err(ReconcileError::terminal("broken")) } else { Ok(Action::Done) }
        });
        let bench = Bench::start(Controller::new("test"), reconciler);
        bench.notifier.notify(key("web"));
        next(&mut runs).await;
        bench.notifier.notify(key("web"));
        assert_eq!(next(&mut runs).await.1, 2);
    })
    .await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("the object has changed meanwhile"), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_terminal_error_is_not_tried_again_and_stays_visible_until_something_changes() {
    let (reconciler, mut runs) = following([Err(ReconcileError::terminal("broken"))]);
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    assert_eq!(next(&mut runs).await.1, 1);
    none(&mut runs, LONG).await;
    assert_eq!(failure(&only(&bench)), (State::Parked, 1, Some("broken")));
    assert_eq!(bench.status().counts.ready(), 0, "no worker is kept from anything");
    bench.notifier.notify(key("web"));
    assert_eq!(next(&mut runs).await.1, 2, "its failure is not forgotten");
    sleep(MOMENT).await;
    assert!(bench.keys().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_that_the_queue_tells_with_its_text() {
    let (reconciler, mut runs) = scripted(async |_| panic!("index 7 of 3"));
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    assert_eq!(next(&mut runs).await.1, 1);
    sleep(MOMENT).await;
    assert_eq!(failure(&only(&bench)), (State::Backoff, 1, Some("panic: index 7 of 3")));
}

#[tokio::test(start_paused = true)]
async fn each_run_counts_under_one_outcome_and_once_in_time() {
    let wait = Duration::from_hours(2);
    let outcomes: [(fn() -> Outcome, _, _); 6] = [
        (|| Ok(Action::Done), "success", ""),
        (|| Ok(Action::RequeueAfter(Duration::from_hours(2))), "requeue_after", ""),
        (|| Err(ReconcileError::retry_after("down", Duration::from_hours(2))), "error", "1"),
        (|| Err(ReconcileError::terminal("broken")), "error", "1"),
        (|| panic!("oops"), "error", "1"),
        (|| Err(conflict()), "requeue", ""),
    ];
    for (outcome, result, errors) in outcomes {
        let (reconciler, mut runs) = scripted(move |_| async move { outcome() });
        let bench = Bench::start(Controller::new("test"), reconciler);
        bench.settings.send_modify(|settings| settings.queue.retry = RetryPolicy::fixed(wait));
        let text = bench.registry.encode(Format::Text).expect("encoded");
        assert!(!text.contains("reconcile"), "nothing before its life has begun:\n{text}");
        sleep(MOMENT).await;
        let text = bench.registry.encode(Format::Text).expect("encoded");
        for result in ["success", "error", "requeue", "requeue_after"] {
            let zero =
                format!("controller_runtime_reconcile_total{{controller=\"test\",result=\"{result}\"}} 0\n");
            assert!(text.contains(&zero), "every series is there from the start:\n{text}");
        }
        bench.notifier.notify(key("web"));
        next(&mut runs).await;
        sleep(MOMENT).await;
        assert_eq!(
            bench.counts("controller_runtime_reconcile_total"),
            format!("{{controller=\"test\",result=\"{result}\"}} 1")
        );
        let one = |count: &str| {
            if count.is_empty() { String::new() } else { format!("{{controller=\"test\"}} {count}") }
        };
        assert_eq!(bench.counts("controller_runtime_reconcile_errors_total"), one(errors), "{result}");
        assert_eq!(bench.counts("controller_runtime_reconcile_time_seconds_count"), one("1"), "{result}");
    }
}

#[tokio::test(start_paused = true)]
async fn each_outcome_is_counted_and_followed_by_what_the_table_says() {
    let outcomes: VecDeque<Outcome> = VecDeque::from([
        Ok(Action::Done),
        Ok(Action::RequeueAfter(Duration::from_secs(7))),
        Err("down".into()),
        Err(ReconcileError::retry_after("busy", Duration::from_secs(30))),
        Err(conflict()),
        Err(ReconcileError::terminal("broken")),
        Ok(Action::Done),
    ]);
    let outcomes = Mutex::new(outcomes);
    let (reconciler, mut runs) = scripted(move |_| {
        let outcome = outcomes.lock().pop_front().expect("no further run");
        async move { outcome }
    });
    let bench = Bench::start(Controller::new("test"), reconciler);
    let mut waits = Vec::new();
    let mut last = None;
    for nudge in [true, true, false, false, false, false] {
        if nudge {
            bench.notifier.notify(key("web"));
        }
        let (_, attempt, at) = next(&mut runs).await;
        waits.push((attempt, last.map_or(0, |last: Instant| (at - last).as_millis() / 100 * 100)));
        last = Some(at);
    }
    none(&mut runs, LONG).await;
    bench.notifier.notify(key("web"));
    next(&mut runs).await;
    // Attempt, and whether it came when it was due: a fixed delay of 1 s, less its jitter of at most a tenth.
    let waits: Vec<(u32, bool)> = waits
        .iter()
        .zip([0, 0, 7000, 1000, 30_000, 1000])
        .map(|((attempt, waited), due)| (*attempt, (due - due / 10..=due).contains(waited)))
        .collect();
    assert_eq!(waits, [(1, true), (1, true), (1, true), (2, true), (3, true), (4, true)]);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(
        bench.counts("controller_runtime_reconcile_total"),
        [
            r#"{controller="test",result="error"} 3"#,
            r#"{controller="test",result="requeue"} 1"#,
            r#"{controller="test",result="requeue_after"} 1"#,
            r#"{controller="test",result="success"} 2"#,
        ]
        .join("\n"),
    );
    assert_eq!(bench.counts("controller_runtime_terminal_reconcile_errors_total"), "{controller=\"test\"} 1");
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_its_run_and_nothing_else() {
    let (reconciler, mut runs) = scripted(async |attempt| {
        assert!(attempt > 1, "the first attempt panics");
        Ok(Action::Done)
    });
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    assert_eq!(next(&mut runs).await.1, 1);
    assert_eq!(next(&mut runs).await.1, 2);
    assert_eq!(bench.counts("controller_runtime_reconcile_panics_total"), "{controller=\"test\"} 1");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_dropped_at_its_timeout_and_tried_again() {
    let (reconciler, mut runs) = scripted(async |attempt| {
        if attempt == 1 {
            std::future::pending::<()>().await;
        }
        Ok(Action::Done)
    });
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    let (_, _, began) = next(&mut runs).await;
    let (_, attempt, again) = next(&mut runs).await;
    assert_eq!(attempt, 2);
    assert!(again - began >= DEFAULT_RECONCILE_TIMEOUT, "not before its time: {:?}", again - began);
    assert_eq!(bench.counts("controller_runtime_reconcile_timeouts_total"), "{controller=\"test\"} 1");
}
