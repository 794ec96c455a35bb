//! Full queues, the sweeps that follow, and handlers that panic.

use super::*;

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
        let twenty = |_: &View| names(20).into_iter().map(|name| NamespacedName::namespaced("shop", name));
        StoreSource::new(cache.store.clone(), map_view(twenty))
    };
    let bench = Bench::start(&objects(1), 3, source).await;
    assert_eq!(bench.drain().await, names(20));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_leaves_a_key_in_its_backoff_and_makes_an_absent_one_ready() {
    let source = |cache: &ByHand| StoreSource::new(cache.store.clone(), EnqueueForObject).primary();
    let bench = Bench::start(&objects(3), 1, source).await;
    let failing = bench.get().await;
    let name = failing.key().name().to_owned();
    let _retried: Retried = failing.retry("no luck");
    let mut others = names(3);
    others.retain(|other| *other != name);
    assert_eq!(bench.run(2).await, others, "swept in");
    assert_eq!(bench.state(&name), Some(State::Backoff), "the sweep came by and did not wake it");
}

/// Panics whenever it sees this object.
fn allergic(to: &'static str) -> impl EventHandler<NamespacedName> {
    map_view(move |view: &View| {
        assert!(view.meta().name() != to, "cannot stand {to}");
        Some(view.request().clone())
    })
}

/// A function with a name of its own in the log.
struct Named<H>(H);

impl<H: EventHandler<NamespacedName>> EventHandler<NamespacedName> for Named<H> {
    fn handle(&self, delta: &Delta<'_>, out: &mut Enqueue<NamespacedName>) {
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
    let mut expected = names(10);
    expected.remove(5);
    assert_eq!(bench.drain().await, expected);
    assert_eq!(bench.trouble(), [("test: allergic".to_owned(), 2)], "the list and the sweep");
}
