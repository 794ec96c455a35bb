//! Pauses, requests for a reconcile, and predicates, from the annotation of an object to the worker.

use serde_json::{Value, json};

use super::*;
use crate::cache::Delta;
use crate::cache::tests::fixtures::{ByHand, object};
use crate::client::Writer;
use crate::watch::{EnqueueForObject, GenerationChanged};

/// Object `web` at a version, of the first generation.
fn web(version: u64, annotations: Value) -> Value {
    let mut web = object("web", "u1", version);
    web["metadata"]["generation"] = json!(1);
    web["metadata"]["annotations"] = annotations;
    web
}

fn paused(version: u64) -> Value {
    web(version, json!({"mainstay.dev/paused": "true"}))
}

fn asked(version: u64, at: &str) -> Value {
    web(version, json!({"mainstay.dev/reconcile-at": at}))
}

pub(super) fn store(cache: &ByHand) -> Store {
    Store::new(Arc::clone(&cache.store))
}

#[tokio::test(start_paused = true)]
async fn a_paused_object_is_left_alone_until_its_pause_ends() {
    let cache = ByHand::listed(&[paused(5)]);
    let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
    let controller = Controller::new("test").reconciles(store(&cache).when(GenerationChanged));
    let bench = Bench::start(controller, reconciler);
    none(&mut runs, LONG).await;
    let mut edited = paused(11);
    edited["metadata"]["generation"] = json!(2);
    cache.changed(&edited);
    none(&mut runs, LONG).await;
    bench.notifier.notify(key("web"));
    none(&mut runs, LONG).await;
    assert_eq!(bench.counts("mainstay_queue_paused_keys"), "{name=\"test\",controller=\"test\"} 1");
    assert_eq!(bench.counts("controller_runtime_reconcile_total"), "", "a pause is no run");

    let before = Instant::now();
    let mut resumed = web(12, json!({"mainstay.dev/paused": "false"}));
    resumed["metadata"]["generation"] = json!(2);
    cache.changed(&resumed);
    assert_eq!(next(&mut runs).await, (key("web"), 1, before), "past the predicate, and at once");
    assert_eq!(bench.counts("mainstay_queue_paused_keys"), "");
}

#[tokio::test(start_paused = true)]
async fn a_paused_object_that_is_being_deleted_is_seen_to() {
    let cache = ByHand::listed(&[paused(5)]);
    let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
    let _bench = Bench::start(Controller::new("test").reconciles(&store(&cache)), reconciler);
    none(&mut runs, LONG).await;
    let mut deleted = paused(11);
    deleted["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
    deleted["metadata"]["finalizers"] = json!(["a/b"]);
    cache.changed(&deleted);
    assert_eq!(next(&mut runs).await.0, key("web"));
}

#[tokio::test(start_paused = true)]
async fn a_paused_controller_begins_no_run_and_loses_no_key() {
    let (reconciler, mut runs) = scripted(async |_| {
        sleep(Duration::from_mins(1)).await;
        Ok(Action::Done)
    });
    let bench = Bench::start(Controller::new("test"), reconciler);
    sleep(Duration::from_millis(1)).await;
    bench.notifier.notify(key("running"));
    assert_eq!(next(&mut runs).await.0, key("running"));
    bench.settings.send_modify(|settings| settings.paused = true);
    sleep(Duration::from_millis(1)).await;
    bench.notifier.notify(key("later"));
    none(&mut runs, LONG).await;
    let status = bench.directory.find("test").expect("it is listed").status();
    assert_eq!((status.settings.paused, status.counts.running, status.counts.ready_live), (true, 0, 1));
    let succeeded = bench.counts("controller_runtime_reconcile_total");
    assert!(succeeded.contains("result=\"success\"} 1"), "the run that had begun ends in peace: {succeeded}");
    bench.settings.send_modify(|settings| settings.paused = false);
    assert_eq!(next(&mut runs).await.0, key("later"));
}

#[tokio::test(start_paused = true)]
async fn a_request_by_annotation_ends_a_backoff_whoever_wrote_it_and_passes_every_predicate() {
    let cache = ByHand::listed(&[web(5, json!({}))]);
    let (reconciler, mut runs) = scripted(async |_| Err("no luck".into()));
    let controller =
        Controller::new("test").reconciles(store(&cache).when(GenerationChanged).when(|_: &Delta<'_>| true));
    let bench = Bench::start(controller, reconciler);
    bench.settings.send_modify(|settings| settings.queue.retry = RetryPolicy::fixed(LONG));
    assert_eq!(next(&mut runs).await.1, 1);
    sleep(Duration::from_secs(2)).await;
    while runs.try_recv().is_ok() {}
    let (at, own) = (Instant::now(), asked(12, "noon"));
    cache.written(&own, Writer::controller("test").in_run_of(&key("web")));
    assert_eq!(next(&mut runs).await.2, at);
    sleep(Duration::from_secs(1)).await;
    let at = Instant::now();
    cache.changed(&asked(13, "one"));
    assert_eq!(next(&mut runs).await.2, at, "another value");
    sleep(Duration::from_secs(1)).await;
    cache.changed(&web(14, json!({})));
    none(&mut runs, Duration::from_mins(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_predicate_sees_the_deltas_of_its_store_that_earlier_predicates_admit() {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let spy = |who: &'static str| {
        let seen = Arc::clone(&seen);
        move |delta: &Delta<'_>| {
            let name = delta.latest().map(|view| view.request().to_string()).unwrap_or_default();
            seen.lock().push(format!("{who} {name}"));
            true
        }
    };
    let (first, second) = (ByHand::listed(&[object("a", "u1", 5)]), ByHand::listed(&[object("b", "u2", 5)]));
    let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
    let controller = Controller::new("test")
        .reconciles(store(&first).when(spy("one")).when(spy("two")))
        .watches(store(&second).when(|_: &Delta<'_>| false).when(spy("three")), EnqueueForObject);
    let bench = Bench::start(controller, reconciler);
    assert_eq!(next(&mut runs).await.0, key("a"));
    bench.notifier.notify(key("raw"));
    assert_eq!(next(&mut runs).await.0, key("raw"), "a channel passes no predicate");
    none(&mut runs, LONG).await;
    let mut seen = seen.lock().clone();
    seen.sort();
    assert_eq!(seen, ["one shop/a", "two shop/a"], "the delta of b ends at the first predicate");
}
