//! Sources that have not synced, and a replica that does not lead: the parts that run then and those that
//! wait.

use super::*;
use crate::cache::tests::fixtures::ByHand;
use crate::watch::{function, interval};

/// A source that counts its runs, has one key, and syncs after this long, unless it is stopped before.
struct Late {
    starts: Arc<AtomicUsize>,
    takes: Duration,
}

fn late(takes: Duration) -> (Late, Arc<AtomicUsize>) {
    let starts = Arc::new(AtomicUsize::new(0));
    (Late { starts: Arc::clone(&starts), takes }, starts)
}

impl Source<NamespacedName> for Late {
    fn run(self: Box<Self>, sink: Sink<NamespacedName>, stop: CancellationToken) -> SourceFuture {
        Box::pin(async move {
            self.starts.fetch_add(1, Ordering::SeqCst);
            sink.add(key("listed"), Cause::bare(Trigger::Initial));
            if stop.run_until_cancelled(sleep(self.takes)).await.is_some() {
                sink.synced();
            }
            stop.cancelled().await;
            Ok(())
        })
    }
}

/// Longer than any test waits.
const NEVER: Duration = Duration::from_hours(1000);

#[tokio::test(start_paused = true)]
async fn a_source_is_waited_for_however_long_its_sync_takes_and_the_controller_says_so() {
    let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
    let (source, starts) = late(10 * LONG);
    let bench = Bench::start(Controller::new("test").source(source), reconciler);
    bench.notifier.notify(key("told"));
    none(&mut runs, 9 * LONG + LONG / 2).await;
    let status = bench.status();
    assert_eq!((status.synced, status.counts.ready()), (false, 2), "the others feed it meanwhile");
    next(&mut runs).await;
    next(&mut runs).await;
    assert!(bench.status().synced);
    assert_eq!(starts.load(Ordering::SeqCst), 1, "it was never begun anew");
}

#[tokio::test(start_paused = true)]
async fn an_interval_that_answers_more_than_the_queue_takes_has_synced_also_on_a_standby() {
    let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
    let shelves = interval("shelves", Duration::ZERO, || (0..10).map(|number| key(&number.to_string())));
    let bench = Bench::start_in(Term::new(), Controller::new("test").source(shelves), reconciler);
    bench.settings.send_modify(|settings| settings.queue.max_depth = 3);
    sleep(LONG).await;
    let status = bench.status();
    assert_eq!((status.synced, status.counts.ready()), (true, 3), "the others are owed");
    bench.term.begin();
    let mut seen = Vec::new();
    for _ in 0..10 {
        seen.push(next(&mut runs).await.0.name().to_owned());
    }
    seen.sort();
    assert_eq!(seen, (0..10).map(|number| number.to_string()).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_stop_before_every_source_has_synced_is_in_order_and_at_once() {
    let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
    let (source, _) = late(NEVER);
    let controller = Controller::new("test").source(source).reconciles(&unlisted());
    let mut bench = Bench::start(controller, reconciler);
    sleep(LONG).await;
    let began = Instant::now();
    bench.stop.cancel();
    bench.ended().await.expect("a stop is no failure");
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(runs.recv().await.is_none(), "nothing ran");
}

/// Makes a store that has not been listed.
fn unlisted() -> Store {
    Store::new(ByHand::unlisted().store)
}

#[tokio::test(start_paused = true)]
async fn on_a_standby_sources_fill_the_queue_and_nothing_runs_before_the_term_begins() {
    let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
    let (source, starts) = late(Duration::from_secs(1));
    let bench = Bench::start_in(Term::new(), Controller::new("test").source(source), reconciler);
    bench.notifier.notify(key("told"));
    none(&mut runs, LONG).await;
    let status = bench.status();
    assert!(status.synced && !status.leading);
    assert_eq!(bench.keys().len(), 2, "warm");
    let elected = Instant::now();
    bench.term.begin();
    for _ in 0..2 {
        assert_eq!(next(&mut runs).await.2, elected, "at once");
    }
    assert_eq!(starts.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_source_runs_once_however_terms_begin_and_end_around_its_sync() {
    let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
    let (source, starts) = late(LONG);
    let bench = Bench::start_in(Term::new(), Controller::new("test").source(source), reconciler);
    for _ in 0..5 {
        bench.term.begin();
        none(&mut runs, LONG / 6).await;
        bench.term.end();
    }
    sleep(LONG).await;
    bench.term.begin();
    assert_eq!(next(&mut runs).await.0, key("listed"));
    bench.term.lose();
    bench.term.begin();
    none(&mut runs, LONG).await;
    assert_eq!(starts.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_source_added_on_a_standby_starts_at_once() {
    let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
    let bench = Bench::start_in(Term::new(), Controller::new("test"), reconciler);
    sleep(LONG).await;
    let (source, starts) = late(Duration::ZERO);
    let port = bench.port.upgrade().expect("it lives");
    assert!(port.add_source(Box::new(source)));
    none(&mut runs, Duration::from_millis(1)).await;
    assert_eq!((starts.load(Ordering::SeqCst), bench.keys().len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_on_a_standby_ends_its_controller_too() {
    let (reconciler, _runs) = scripted(async |_| Ok(Action::Done));
    let broken = function("feed", async |_, _| Err("closed".into()));
    let mut bench = Bench::start_in(Term::new(), Controller::new("test").source(broken), reconciler);
    let error = bench.ended().await.expect_err("fails");
    assert!(matches!(&error, ControllerError::Source { name, .. } if **name == *"function feed"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_ended_controller_leaves_no_task_whether_it_led_or_not() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    for leading in [false, true] {
        let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
        let tidies_up = async |_: Sink<NamespacedName>, stop: CancellationToken| {
            stop.cancelled().await;
            sleep(LONG / 2).await;
            Ok(())
        };
        let controller = Controller::new("test").source(function("feed", tidies_up));
        let mut bench = Bench::start_in(Term::new(), controller, reconciler);
        if leading {
            bench.notifier.notify(key("web"));
            bench.term.begin();
            next(&mut runs).await;
        }
        sleep(LONG).await;
        assert!(tasks() > before + 1, "life and sources, at least");
        bench.term.end();
        bench.stop.cancel();
        bench.ended().await.expect("in order");
        assert_eq!(tasks(), before, "leading: {leading}");
    }
}
