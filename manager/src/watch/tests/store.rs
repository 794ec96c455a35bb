//! A store as a source: what reaches the queue, and how.

use std::time::Duration;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::cache::testing::{ByHand, object};
use crate::cache::{Delta, HandlerTrouble, View};
use crate::key::{Key as _, Request};
use crate::metrics::Registry;
use crate::queue::{QueueMetrics, QueueSettings, RetryPolicy, Running, State, WorkQueue};
use crate::watch::{
    EnqueueForObject, EventHandler, Sink, Source, SourceError, SourcesSynced, StoreSource, enqueue_mapped,
};

/// Longer than anything here takes; the clock is paused, so a wait for it costs nothing.
const LONG: Duration = Duration::from_hours(1);

/// A store, a source over it and the queue it feeds. No controller: the test takes the keys.
struct Bench {
    cache: ByHand,
    queue: WorkQueue<Request>,
    _running: JoinSet<Result<(), SourceError>>,
}

impl Bench {
    async fn start(
        objects: &[Value],
        max_depth: usize,
        source: impl FnOnce(&ByHand) -> StoreSource<Request>,
    ) -> Self {
        let retry = RetryPolicy::fixed(Duration::from_mins(1));
        let settings = QueueSettings { retry, max_depth, ..QueueSettings::default() };
        let queue = WorkQueue::new("test", settings, 1, &QueueMetrics::register(&Registry::new()));
        queue.set_leading(true);
        let cache = ByHand::listed(objects);
        let synced = SourcesSynced::default();
        let sink = Sink::join(&queue, &synced);
        let mut running = JoinSet::new();
        let source = Box::new(source(&cache));
        running.spawn(source.run(sink, CancellationToken::new()));
        synced.wait().await.expect("synced");
        Self { cache, queue, _running: running }
    }

    /// The next key to run.
    async fn get(&self) -> Running<Request> {
        timeout(LONG, self.queue.get()).await.expect("a key").expect("the queue is open")
    }

    /// Runs this many keys and answers their names, sorted.
    async fn run(&self, count: usize) -> Vec<String> {
        let mut names = Vec::new();
        for _ in 0..count {
            let running = self.get().await;
            names.push(running.key().name().to_owned());
            running.done();
        }
        names.sort();
        names
    }

    async fn is_idle(&self) -> bool {
        timeout(LONG, self.queue.get()).await.is_err()
    }

    fn state(&self, name: &str) -> Option<State> {
        self.queue.find(&Request::namespaced("shop", name)).map(|key| key.state)
    }

    fn trouble(&self) -> Vec<(String, u64)> {
        let handlers = self.cache.store.status().handlers;
        handlers.into_iter().map(|(name, HandlerTrouble { panics, .. })| (name, panics)).collect()
    }
}

fn objects(count: usize) -> Vec<Value> {
    (0..count).map(|number| object(&format!("{number:02}"), &format!("u{number}"), 5)).collect()
}

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("{number:02}")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_list_longer_than_the_queue_runs_to_its_last_object_and_each_once_more_at_most() {
    let source = |cache: &ByHand| StoreSource::new(cache.store.clone(), EnqueueForObject).primary();
    let bench = Bench::start(&objects(40), 4, source).await;
    let mut seen = Vec::new();
    while let Ok(Some(running)) = timeout(LONG, bench.queue.get()).await {
        assert!(bench.queue.counts().ready() <= 4, "never more than allowed");
        seen.push(running.key().name().to_owned());
        running.done();
    }
    assert!(seen.len() <= 40 + 4, "the sweep offers each object once: {seen:?}");
    seen.sort();
    seen.dedup();
    assert_eq!(seen, names(40));
}

#[tokio::test(start_paused = true)]
async fn one_object_that_concerns_more_keys_than_the_queue_takes_loses_none_of_them() {
    let source = |cache: &ByHand| {
        let twenty = |_: &View| names(20).into_iter().map(|name| Request::namespaced("shop", name));
        StoreSource::new(cache.store.clone(), enqueue_mapped(twenty))
    };
    let bench = Bench::start(&objects(1), 3, source).await;
    let mut seen = Vec::new();
    while let Ok(Some(running)) = timeout(LONG, bench.queue.get()).await {
        seen.push(running.key().name().to_owned());
        running.done();
    }
    seen.sort();
    seen.dedup();
    assert_eq!(seen, names(20));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_leaves_a_key_in_its_backoff_and_makes_an_absent_one_ready() {
    let source = |cache: &ByHand| StoreSource::new(cache.store.clone(), EnqueueForObject).primary();
    let bench = Bench::start(&objects(3), 1, source).await;
    let failing = bench.get().await;
    let name = failing.key().name().to_owned();
    failing.retry("no luck");
    let mut others = names(3);
    others.retain(|other| *other != name);
    assert_eq!(bench.run(2).await, others, "swept in");
    assert_eq!(bench.state(&name), Some(State::Backoff), "the sweep came by and did not wake it");
}

/// Panics whenever it sees this object.
fn allergic(to: &'static str) -> impl EventHandler<Request> {
    enqueue_mapped(move |view: &View| {
        assert!(view.meta().name() != to, "cannot stand {to}");
        Some(view.request().clone())
    })
}

/// A function with a name of its own in the log.
struct Named<H>(H);

impl<H: EventHandler<Request>> EventHandler<Request> for Named<H> {
    fn handle(&self, delta: &Delta<'_>, out: &mut crate::watch::Enqueue<Request>) {
        self.0.handle(delta, out);
    }

    fn name(&self) -> &'static str {
        "allergic"
    }
}

#[tokio::test(start_paused = true)]
async fn a_map_that_panics_loses_one_event_and_is_named_with_its_controller() {
    let source = |cache: &ByHand| StoreSource::new(cache.store.clone(), Named(allergic("01")));
    let bench = Bench::start(&objects(3), 0, source).await;
    assert_eq!(bench.run(2).await, ["00", "02"]);
    bench.cache.changed(&object("02", "u2", 11));
    assert_eq!(bench.run(1).await, ["02"], "goes on");
    assert!(bench.is_idle().await);
    assert_eq!(bench.trouble(), [("test: allergic".to_owned(), 1)]);
}

#[tokio::test(start_paused = true)]
async fn a_map_that_panics_during_a_sweep_loses_one_object_too() {
    let source = |cache: &ByHand| StoreSource::new(cache.store.clone(), Named(allergic("05")));
    let bench = Bench::start(&objects(10), 2, source).await;
    let mut seen = Vec::new();
    while let Ok(Some(running)) = timeout(LONG, bench.queue.get()).await {
        seen.push(running.key().name().to_owned());
        running.done();
    }
    seen.sort();
    seen.dedup();
    let mut expected = names(10);
    expected.remove(5);
    assert_eq!(seen, expected);
    assert_eq!(bench.trouble(), [("test: allergic".to_owned(), 2)], "the list and the sweep");
}
