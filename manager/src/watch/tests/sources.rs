//! Sources other than stores, with keys of a type of their own.

use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::instrument::WithSubscriber as _;

use crate::client::tests::server::logged;
use crate::key::tests::Id;
use crate::key::{Cause, Trigger};
use crate::metrics::{Format, Registry};
use crate::queue::{Add, QueueMetrics, QueueSettings, Retried, Retry, State, WorkQueue};
use crate::reconcile::BoxError;
use crate::watch::{
    Sink, Source, SourcePanics, SourcesSynced, channel, function, interval, stream as keys_of, try_stream,
};

/// Longer than any step of these tests; the clock is paused, so a wait for it takes no time.
const LONG: Duration = Duration::from_hours(1);
const PERIOD: Duration = Duration::from_mins(10);

struct Bench {
    registry: Registry,
    queue: WorkQueue<Id>,
    synced: SourcesSynced,
    stop: CancellationToken,
    running: JoinSet<Result<(), BoxError>>,
}

impl Bench {
    fn start(max_depth: usize, source: impl Source<Id>) -> Self {
        let settings = QueueSettings { max_depth, ..QueueSettings::default() };
        let registry = Registry::new();
        let queue = WorkQueue::new("test", settings, 1, &QueueMetrics::register(&registry));
        queue.set_leading(true);
        let synced = SourcesSynced::default();
        let panics = registry.family("mainstay_source_panics", "Panics", SourcePanics::default());
        let sink = Sink::join(&queue, &synced, source.name(), &panics);
        let (stop, mut running) = (CancellationToken::new(), JoinSet::new());
        running.spawn(Box::new(source).run(sink, stop.clone()).with_current_subscriber());
        Self { registry, queue, synced, stop, running }
    }

    async fn synced(&mut self) {
        timeout(LONG, self.synced.wait()).await.expect("in time").expect("synced");
    }

    async fn next(&self) -> u32 {
        let running = timeout(LONG, self.queue.get()).await.expect("a key").expect("open");
        let number = running.key().0;
        running.done();
        number
    }

    async fn is_idle(&self, within: Duration) -> bool {
        timeout(within, self.queue.get()).await.is_err()
    }

    async fn ended(&mut self) -> Result<(), BoxError> {
        timeout(LONG, self.running.join_next()).await.expect("ends").expect("ran").expect("did not panic")
    }

    async fn stopped(mut self) {
        self.stop.cancel();
        self.ended().await.expect("stops in order");
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_asks_at_once_and_then_every_period_or_up_to_a_tenth_less() {
    let mut round = 0;
    let mut source = interval("ids", PERIOD, move || {
        round += 1;
        [Id(round)]
    });
    source.random = fastrand::Rng::with_seed(7);
    let mut bench = Bench::start(0, source);
    bench.synced().await;
    let mut last = Instant::now();
    assert_eq!(bench.next().await, 1, "its first look is part of the sync");
    for round in 2..20 {
        assert_eq!(bench.next().await, round);
        let took = last.elapsed();
        assert!(took > PERIOD.mul_f64(0.899) && took < PERIOD.mul_f64(1.001), "{took:?}");
        last = Instant::now();
    }
    bench.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn an_interval_without_a_period_asks_once() {
    let mut bench = Bench::start(0, interval("ids", Duration::ZERO, || [Id(1)]));
    bench.synced().await;
    assert_eq!(bench.next().await, 1);
    assert!(bench.is_idle(LONG).await);
    bench.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn an_interval_waits_while_the_queue_is_full_and_loses_nothing() {
    let mut bench = Bench::start(2, interval("ids", Duration::ZERO, || (0..10).map(Id)));
    bench.synced().await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(bench.queue.counts().ready(), 2, "the others are owed, and nobody waits for them to say so");
    let mut seen = Vec::new();
    for _ in 0..10 {
        seen.push(bench.next().await);
    }
    assert_eq!(seen, (0..10).collect::<Vec<_>>());
    bench.stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_period_longer_than_any_clock_asks_once() {
    for seed in 0..100 {
        let mut source = interval("ids", Duration::MAX, || [Id(1)]);
        source.random = fastrand::Rng::with_seed(seed);
        let mut bench = Bench::start(0, source);
        bench.synced().await;
        assert_eq!(bench.next().await, 1);
        assert!(bench.is_idle(LONG).await);
        bench.stopped().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_ends_a_backoff_unless_it_is_weak() {
    let ids = || [Id(1)];
    for (weak, after) in [(false, State::Ready), (true, State::Backoff)] {
        let source = interval("ids", PERIOD, ids);
        let bench = Bench::start(0, if weak { source.weak() } else { source });
        let running = timeout(LONG, bench.queue.get()).await.expect("a key").expect("open");
        let _retried: Retried = running.fail("no luck", Retry::After(LONG));
        sleep(PERIOD).await;
        let state = bench.queue.find(&Id(1)).map(|key| key.state);
        assert_eq!(state, Some(after), "weak: {weak}");
        bench.stopped().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_interval_that_panics_loses_that_look_alone_and_is_counted() {
    let mut round = 0;
    let source = interval("ids", PERIOD, move || {
        round += 1;
        let id = Id(round);
        // Panics in the function itself, and later in the iterator that it returns.
        assert!(round != 1, "nobody has counted yet");
        std::iter::once(id).inspect(|id| assert!(id.0 != 3, "miscounted"))
    });
    let lines = logged(async {
        let mut bench = Bench::start(0, source);
        bench.synced().await;
        assert_eq!((bench.next().await, bench.next().await), (2, 4));
        let text = bench.registry.encode(Format::Text).expect("encoded");
        let counted = text.lines().find(|line| line.starts_with("mainstay_source_panics_total"));
        assert_eq!(counted, Some(r#"mainstay_source_panics_total{controller="test"} 2"#));
        bench.stopped().await;
    });
    let line = |said: &str| {
        let named = format!(r#"controller="test" source="interval ids" panic="{said}""#);
        format!("ERROR source panicked; this round is lost {named}")
    };
    assert_eq!(lines.await, [line("nobody has counted yet"), line("miscounted")]);
}

#[test]
fn every_source_has_a_name() {
    fn name(source: &impl Source<Id>) -> String {
        source.name()
    }
    let ended = async |_: Sink<Id>, _: CancellationToken| Ok(());
    let names = [
        name(&interval("ids", PERIOD, || [Id(1)])),
        name(&channel().1),
        name(&keys_of(stream::empty())),
        name(&try_stream("shop feed", stream::empty::<Result<Id, &str>>())),
        name(&function("counter", ended)),
    ];
    assert_eq!(names, ["interval ids", "channel", "stream", "stream shop feed", "function counter"]);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_enqueued_to_its_end_which_is_no_failure() {
    let mut bench = Bench::start(0, keys_of(stream::iter([Id(1), Id(2)])));
    bench.synced().await;
    assert_eq!((bench.next().await, bench.next().await), (1, 2));
    bench.ended().await.expect("no failure");
    Bench::start(0, keys_of(stream::pending())).stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_always_has_a_key_leaves_others_of_its_thread_their_turn() {
    const MANY: u32 = 100_000;
    let ids = || stream::iter((0..MANY).map(Id));
    let fallible = ids().map(Ok::<_, &str>);
    for bench in [Bench::start(0, keys_of(ids())), Bench::start(0, try_stream("shop feed", fallible))] {
        tokio::task::yield_now().await;
        let ready = bench.queue.counts().ready();
        assert!(ready > 0 && ready < MANY as usize / 10, "{ready} keys without a pause");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_before_the_failure_of_a_stream_are_enqueued_and_none_after_it() {
    let source = try_stream("shop feed", stream::iter([Ok(Id(1)), Err("closed"), Ok(Id(2))]));
    let mut bench = Bench::start(0, source);
    let error = bench.ended().await.expect_err("fails");
    assert_eq!(error.to_string(), "closed");
    assert_eq!(bench.next().await, 1);
    assert!(bench.is_idle(LONG).await, "nothing after the error");
    Bench::start(0, try_stream("shop feed", stream::pending::<Result<Id, &str>>())).stopped().await;
}

#[tokio::test(start_paused = true)]
async fn a_function_feeds_the_queue_and_may_say_itself_when_it_has_synced() {
    let late = async |sink: Sink<Id>, stop: CancellationToken| {
        sink.add(Id(1), Cause::bare(Trigger::Generic));
        sleep(PERIOD).await;
        sink.offer(Id(2), Add::by_hand());
        sink.synced();
        stop.cancelled().await;
        Ok(())
    };
    let mut bench = Bench::start(0, function("counter", late).syncs_itself());
    let began = Instant::now();
    bench.synced().await;
    assert_eq!(began.elapsed(), PERIOD);
    assert_eq!((bench.next().await, bench.next().await), (1, 2));
    bench.stopped().await;

    let failing = async |_: Sink<Id>, _: CancellationToken| Err("no ids".into());
    let mut bench = Bench::start(0, function("counter", failing));
    bench.synced().await;
    assert_eq!(bench.ended().await.expect_err("fails").to_string(), "no ids");
}

#[tokio::test(start_paused = true)]
async fn a_channel_hands_on_what_it_holds_before_it_says_that_it_has_synced() {
    let (notifier, source) = channel();
    for id in 0..2000 {
        notifier.notify(Id(id));
    }
    let mut bench = Bench::start(0, source);
    bench.synced().await;
    assert_eq!(bench.queue.counts().ready(), 2000, "whatever came before the start, and more than a buffer");
    drop(notifier);
    for id in 0..2000 {
        assert_eq!(bench.next().await, id);
    }
    assert!(bench.is_idle(LONG).await, "the end of the channel is no failure");
    bench.stopped().await;
}
