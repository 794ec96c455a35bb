//! The article's case: objects that fail, beside others that do not, and how soon they are tried again.

use super::*;

/// A reconciler that fails at one object and at no other.
struct FailsAt {
    name: &'static str,
    runs: mpsc::UnboundedSender<(NamespacedName, u32, Instant)>,
}

impl Reconciler for FailsAt {
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        self.runs.send((request.clone(), cx.attempt(), Instant::now())).expect("the test listens");
        if request.name() == self.name { Err("always fails".into()) } else { Ok(Action::Done) }
    }
}

/// Starts a controller with a single worker and the retries every controller has unless configured.
async fn single_worker() -> (Bench, Runs) {
    let (runs, seen) = mpsc::unbounded_channel();
    let bench = Bench::start(Controller::new("test"), FailsAt { name: "failing", runs });
    bench.settings.send_modify(|settings| {
        *settings = ControllerSettings { workers: 1, ..ControllerSettings::default() };
    });
    // The clock moves on once the settings are in force.
    sleep(Duration::from_millis(1)).await;
    (bench, seen)
}

#[tokio::test(start_paused = true)]
async fn forty_attempts_wait_five_milliseconds_doubled_within_jitter_and_a_thousand_seconds_at_most() {
    let (bench, mut runs) = single_worker().await;
    bench.notifier.notify(key("failing"));
    let (_, _, mut last) = next(&mut runs).await;
    for attempt in 2..=40 {
        let (_, said, at) = next(&mut runs).await;
        assert_eq!(said, attempt, "the context tells the attempt");
        let doubled =
            Duration::from_millis(5).saturating_mul(1_u32.checked_shl(attempt - 2).unwrap_or(u32::MAX));
        let longest = doubled.min(Duration::from_secs(1000));
        // Timers have a resolution of one millisecond, and round up.
        let bounds = longest.mul_f64(0.9)..=longest + Duration::from_millis(1);
        assert!(bounds.contains(&(at - last)), "{:?} before attempt {attempt}, not {bounds:?}", at - last);
        last = at;
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_delays_no_other_key_not_even_those_of_its_only_worker() {
    let (bench, mut runs) = single_worker().await;
    bench.notifier.notify(key("failing"));
    for attempt in 1..=40 {
        let (request, _, failed) = next(&mut runs).await;
        assert_eq!(request, key("failing"));
        // The worker has just seen a failure: it neither sleeps nor waits.
        let name = format!("healthy-{attempt}");
        bench.notifier.notify(key(&name));
        let (request, attempt, at) = next(&mut runs).await;
        assert_eq!((request, attempt, at - failed), (key(&name), 1, Duration::ZERO));
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_keys_that_fail_at_one_moment_have_all_been_tried_again_within_a_second_by_four_workers()
{
    const KEYS: usize = 10_000;
    let (reconciler, mut runs) = scripted(async |attempt| {
        // Takes no time, but leaves the others theirs.
        tokio::task::yield_now().await;
        if attempt == 1 { Err("down".into()) } else { Ok(Action::Done) }
    });
    let most = Arc::clone(&reconciler.most);
    let bench = Bench::start_in(Term::new(), Controller::new("test"), reconciler);
    bench.settings.send_modify(|settings| {
        *settings = ControllerSettings { workers: 4, ..ControllerSettings::default() };
    });
    for number in 0..KEYS {
        bench.notifier.notify(key(&number.to_string()));
    }
    sleep(LONG).await;
    let failed = Instant::now();
    bench.term.begin();
    let (mut first, mut second) = (0, 0);
    while second < KEYS {
        let (_, attempt, at) = next(&mut runs).await;
        if attempt == 1 {
            assert_eq!(at, failed, "all at one moment");
            first += 1;
        } else {
            assert!(at - failed <= Duration::from_secs(1), "{:?} after its failure", at - failed);
            second += 1;
        }
    }
    assert_eq!((first, most.load(Ordering::SeqCst)), (KEYS, 4), "by all workers at once");
    none(&mut runs, LONG).await;
    assert!(bench.keys().is_empty());
}
