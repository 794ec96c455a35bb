//! A store as a source: the adds that reach the queue.

mod failures;
mod sweeps;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::cache::tests::fixtures::{ByHand, object};
use crate::cache::{CacheSettings, Delta, HandlerTrouble, View};
use crate::client::Writer;
use crate::key::{Cause, Key as _, NamespacedName, Trigger};
use crate::metrics::Registry;
use crate::queue::{
    Add, QueueMetrics, QueueSettings, Retried, Retry, RetryPolicy, Running, State, WorkQueue,
};
use crate::reconcile::BoxError;
use crate::watch::{
    Enqueue, EnqueueForObject, EnqueueForOwner, EventHandler, GenerationChanged, Sink, Source, SourcePanics,
    SourcesSynced, StoreSource, Watched, map_view,
};

/// Longer than any step of these tests; the clock is paused, so a wait for it takes no time.
const LONG: Duration = Duration::from_hours(1);

/// A store, a source over it and the queue it feeds. No controller: the test takes the keys.
struct Bench {
    cache: ByHand,
    queue: WorkQueue<NamespacedName>,
    _running: JoinSet<Result<(), BoxError>>,
}

impl Bench {
    async fn start(
        objects: &[Value],
        max_depth: usize,
        source: impl FnOnce(&ByHand) -> StoreSource<NamespacedName>,
    ) -> Self {
        let retry = RetryPolicy::fixed(Duration::from_mins(1));
        let settings = QueueSettings { retry, max_depth, ..QueueSettings::default() };
        let queue = WorkQueue::new("test", settings, 1, &QueueMetrics::register(&Registry::new()));
        queue.set_leading(true);
        let cache = ByHand::listed(objects);
        let synced = SourcesSynced::default();
        let source = Box::new(source(&cache));
        let sink = Sink::join(&queue, &synced, source.name(), &SourcePanics::default());
        let mut running = JoinSet::new();
        running.spawn(source.run(sink, CancellationToken::new()));
        synced.wait().await.expect("synced");
        Self { cache, queue, _running: running }
    }

    /// The next key to run.
    async fn get(&self) -> Running<NamespacedName> {
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

    /// Runs every key there is and answers their names, sorted, each once.
    async fn drain(&self) -> Vec<String> {
        let mut seen = Vec::new();
        while let Ok(Some(running)) = timeout(LONG, self.queue.get()).await {
            seen.push(running.key().name().to_owned());
            running.done();
        }
        seen.sort();
        seen.dedup();
        seen
    }

    async fn is_idle(&self) -> bool {
        timeout(LONG, self.queue.get()).await.is_err()
    }

    fn state(&self, name: &str) -> Option<State> {
        self.queue.find(&NamespacedName::namespaced("shop", name)).map(|key| key.state)
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

/// A change in words such as `a@5 -> a@6`.
fn told(delta: &Delta<'_>) -> String {
    let state = |view: Option<&View>| {
        view.map_or_else(
            || "nothing".to_owned(),
            |view| format!("{}@{}", view.meta().name(), view.meta().resource_version),
        )
    };
    format!("{} -> {}", state(delta.old), state(delta.new))
}

#[tokio::test(start_paused = true)]
async fn a_handler_sees_each_change_with_its_states_and_the_key_tells_what_it_was() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let source = |cache: &ByHand| {
        let seen = Arc::clone(&seen);
        let handler = move |delta: &Delta<'_>, out: &mut Enqueue<NamespacedName>| {
            seen.lock().push(told(delta));
            EnqueueForObject.handle(delta, out);
        };
        StoreSource::new(cache.store.clone(), handler)
    };
    let bench = Bench::start(&[object("a", "u1", 5)], 0, source).await;
    let mut log = Vec::new();
    let changes: [&dyn Fn(); 7] = [
        &|| {},
        &|| bench.cache.changed(&object("b", "u2", 11)),
        &|| bench.cache.changed(&object("b", "u2", 12)),
        &|| bench.cache.deleted(&object("b", "u2", 13)),
        &|| bench.cache.resynced(),
        // An object that was deleted while the watch was down is reported with its last known state.
        &|| bench.cache.relisted(&[], 20),
        &|| bench.cache.deleted(&object("nobody", "u9", 21)),
    ];
    for change in changes {
        change();
        let Ok(Some(running)) = timeout(LONG, bench.queue.get()).await else { break };
        let what = std::mem::take(&mut *seen.lock()).join(", ");
        log.push(format!("{} {} {what}", running.cause().trigger.as_str(), running.key().name()));
        running.done();
    }
    assert_eq!(
        log,
        [
            "initial a nothing -> a@5",
            "created b nothing -> b@11",
            "updated b b@11 -> b@12",
            "deleted b b@12 -> nothing",
            "resync a a@5 -> a@5",
            "deleted a a@5 -> nothing",
        ]
    );
    assert!(seen.lock().is_empty(), "the end of what was never there is no event");
}

#[tokio::test(start_paused = true)]
async fn a_predicate_may_drop_any_kind_of_event() {
    let kind = |delta: &Delta<'_>| match (delta.old.is_some(), delta.new.is_some()) {
        (false, _) => "create",
        (true, true) => "update",
        (true, false) => "delete",
    };
    for dropped in ["create", "update", "delete"] {
        let source = |cache: &ByHand| {
            let watched =
                Watched::from(cache.store.clone()).when(move |delta: &Delta<'_>| kind(delta) != dropped);
            StoreSource::new(watched, EnqueueForObject)
        };
        let bench = Bench::start(&[], 0, source).await;
        let steps: [(_, &dyn Fn()); 3] = [
            ("create", &|| bench.cache.changed(&object("a", "u1", 11))),
            ("update", &|| bench.cache.changed(&object("a", "u1", 12))),
            ("delete", &|| bench.cache.deleted(&object("a", "u1", 13))),
        ];
        for (event, step) in steps {
            step();
            if event == dropped {
                assert!(bench.is_idle().await, "{event} is dropped");
            } else {
                assert_eq!(bench.run(1).await, ["a"], "{event} passes, and {dropped} does not");
            }
        }
    }
}

/// How many keys are ready in the lanes of live events, new objects and initial lists. Takes them out.
async fn lanes(bench: &Bench) -> [usize; 3] {
    // Time for the delivery.
    sleep(Duration::from_millis(1)).await;
    let counts = bench.queue.counts();
    bench.run(counts.ready()).await;
    [counts.ready_live, counts.ready_new, counts.ready_background]
}

/// An object that `web` owns.
fn owned(name: &str, version: u64) -> Value {
    let mut object = object(name, name, version);
    let owner =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "uid": "u", "controller": true});
    object["metadata"]["ownerReferences"] = json!([owner]);
    object
}

#[tokio::test(start_paused = true)]
async fn what_is_merely_listed_or_resynced_is_background_work_through_every_handler() {
    type Make = fn(&ByHand) -> StoreSource<NamespacedName>;
    let handlers: [(&str, Make); 4] = [
        ("object", |cache| StoreSource::new(cache.store.clone(), EnqueueForObject)),
        ("controller", |cache| {
            let owner = cache.store.kind().clone();
            StoreSource::new(cache.store.clone(), EnqueueForOwner::controller(owner))
        }),
        ("owner", |cache| {
            let owner = cache.store.kind().clone();
            StoreSource::new(cache.store.clone(), EnqueueForOwner::any(owner))
        }),
        ("map", |cache| {
            let map = map_view(|view: &View| Some(view.request().clone()));
            StoreSource::new(cache.store.clone(), map)
        }),
    ];
    for (handler, source) in handlers {
        let bench = Bench::start(&[owned("a", 5)], 0, source).await;
        assert_eq!(lanes(&bench).await, [0, 0, 1], "{handler}: listed");
        bench.cache.resynced();
        assert_eq!(lanes(&bench).await, [0, 0, 1], "{handler}: seen again");
        bench.cache.changed(&owned("a", 11));
        assert_eq!(lanes(&bench).await, [1, 0, 0], "{handler}: changed");
        bench.cache.changed(&owned("b", 12));
        assert_eq!(lanes(&bench).await, [1, 0, 0], "{handler}: created");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_object_of_the_controllers_own_kind_waits_behind_changes_of_others() {
    let source = |cache: &ByHand| StoreSource::new(cache.store.clone(), EnqueueForObject).primary();
    let bench = Bench::start(&[], 0, source).await;
    bench.cache.changed(&object("a", "a", 11));
    assert_eq!(lanes(&bench).await, [0, 1, 0], "created");
    bench.cache.changed(&object("a", "a", 12));
    assert_eq!(lanes(&bench).await, [1, 0, 0], "changed");
    bench.cache.changed(&object("b", "b", 13));
    bench.cache.changed(&object("b", "b", 14));
    assert_eq!(lanes(&bench).await, [1, 0, 0], "changed before it had its turn");
}

#[tokio::test(start_paused = true)]
async fn a_new_object_goes_before_a_long_list_and_is_taken_in_while_others_fill_the_queue() {
    let source = |cache: &ByHand| StoreSource::new(cache.store.clone(), EnqueueForObject).primary();
    let bench = Bench::start(&objects(3), 3, source).await;
    let full = || assert_eq!(bench.queue.counts().ready(), 3, "the queue is full");
    full();
    bench.cache.changed(&object("a", "a", 11));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(bench.run(1).await, ["a"], "before all that was listed");
    // All three fail, and their backoff is over.
    for _ in 0..3 {
        let _retried: Retried = bench.get().await.retry("no luck");
    }
    sleep(Duration::from_mins(1)).await;
    full();
    bench.cache.changed(&object("b", "b", 12));
    sleep(Duration::from_millis(1)).await;
    assert_eq!(bench.run(1).await, ["b"], "though retries fill the queue");
}

#[tokio::test(start_paused = true)]
async fn what_a_handler_says_of_a_key_stands_over_what_the_event_says() {
    let source = |cache: &ByHand| {
        let live = |_: &Delta<'_>, out: &mut Enqueue<NamespacedName>| {
            out.add_with(NamespacedName::cluster("web"), Add::strong(Cause::bare(Trigger::Generic)));
        };
        StoreSource::new(cache.store.clone(), live)
    };
    let bench = Bench::start(&objects(1), 0, source).await;
    assert_eq!(lanes(&bench).await, [1, 0, 0], "though it is merely listed");
}
