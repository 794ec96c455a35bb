//! Failed keys: the changes that end their backoff, and those that do not.

use super::*;

/// Object `a` of a generation.
fn generation(generation: u64, uid: &str, version: u64) -> Value {
    let mut object = object("a", uid, version);
    object["metadata"]["generation"] = json!(generation);
    object
}

/// Fails `a`, which runs next as this attempt, after `meanwhile` has happened. Returns its next state.
async fn fail(bench: &Bench, attempt: u32, meanwhile: impl FnOnce()) -> Option<State> {
    let running = bench.get().await;
    assert_eq!(running.attempt(), attempt);
    meanwhile();
    // Time for the delivery.
    sleep(Duration::from_millis(1)).await;
    let _retried: Retried = running.retry("no luck");
    bench.state("a")
}

#[tokio::test(start_paused = true)]
async fn a_controller_that_writes_its_own_spec_and_then_fails_keeps_its_backoff_and_its_failures() {
    let source = |cache: &ByHand| StoreSource::new(cache.store.clone(), EnqueueForObject).primary();
    let bench = Bench::start(&[generation(1, "u1", 5)], 0, source).await;
    let run = Writer::controller("test").in_run_of(&NamespacedName::namespaced("shop", "a"));
    // Each write is of the version that the one before it left.
    let mut left = 5;
    let mut own = |number| {
        let object = generation(number, "u1", 10 + number);
        bench.cache.written(&object, run.for_version(Some(left)));
        left = 10 + number;
    };
    let first = fail(&bench, 1, || own(2)).await;
    let second = fail(&bench, 2, || own(3)).await;
    assert_eq!([first, second], [Some(State::Backoff); 2], "the backoff stands");
    // Also after the run has ended.
    own(4);
    sleep(Duration::from_millis(1)).await;
    let key = bench.queue.find(&NamespacedName::namespaced("shop", "a")).expect("it waits");
    assert_eq!((key.state, key.attempts), (State::Backoff, 2));
    bench.cache.changed(&generation(5, "u1", 20));
    assert_eq!(bench.get().await.attempt(), 1, "what another wrote is tried at once, and anew");
}

#[tokio::test(start_paused = true)]
async fn an_object_that_becomes_too_large_or_small_enough_is_tried_again_whatever_changed() {
    // A change of the status raises no generation, and an own write of a run ends no wait.
    let sized = |bytes: usize, version| {
        let mut object = generation(1, "u1", version);
        object["status"] = json!({"log": "x".repeat(bytes)});
        object
    };
    let (small, large) = (10, CacheSettings::default().max_object_bytes);
    for (case, from, to, expected) in [
        ("shrunk", large, small, State::Ready),
        ("grown", small, large, State::Ready),
        ("still too large", large, large + 1, State::Parked),
    ] {
        let source = |cache: &ByHand| {
            let watched = Watched::from(cache.store.clone()).when(GenerationChanged);
            StoreSource::new(watched, EnqueueForObject).primary()
        };
        let bench = Bench::start(&[sized(from, 5)], 0, source).await;
        let _parked: Retried = bench.get().await.fail("no luck", Retry::Never);
        bench.cache.changed(&sized(to, 11));
        // Time for the delivery.
        sleep(Duration::from_millis(1)).await;
        assert_eq!(bench.state("a"), Some(expected), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_own_write_wakes_every_parked_key_but_that_of_its_run() {
    let [a, b] = ["a", "b"].map(|name| NamespacedName::namespaced("shop", name));
    let run = |key: &NamespacedName| Writer::controller("test").in_run_of(key);
    for (case, writer, expected) in [
        ("its own run", run(&a).for_version(Some(5)), State::Parked),
        ("its own run, with what another wrote before", run(&a), State::Ready),
        ("the run of another key", run(&b).for_version(Some(5)), State::Ready),
        ("another controller", Writer::controller("other").in_run_of(&a).for_version(Some(5)), State::Ready),
        ("no run", Writer::controller("test"), State::Ready),
        ("a part without a name", Writer::default(), State::Ready),
    ] {
        let source = |cache: &ByHand| StoreSource::new(cache.store.clone(), EnqueueForObject).primary();
        let bench = Bench::start(&[generation(1, "u1", 5)], 0, source).await;
        let _parked: Retried = bench.get().await.fail("no luck", Retry::Never);
        bench.cache.written(&generation(2, "u1", 12), writer);
        // Time for the delivery.
        sleep(Duration::from_millis(1)).await;
        assert_eq!(bench.state("a"), Some(expected), "{case}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_a_run_writes_wakes_every_owner_but_the_one_that_ran() {
    let after = Duration::from_secs(1);
    let of_all = move |_: &Delta<'_>, out: &mut Enqueue<NamespacedName>| {
        for name in ["own", "other"] {
            out.add(NamespacedName::cluster(name));
            out.add_after(NamespacedName::cluster(format!("{name}-later")), after);
        }
    };
    for (run, expected) in [
        ("own", [State::Parked, State::Ready, State::Requeued, State::Requeued]),
        ("own-later", [State::Ready, State::Ready, State::Parked, State::Requeued]),
    ] {
        let source = |cache: &ByHand| StoreSource::new(cache.store.clone(), of_all);
        let bench = Bench::start(&[], 0, source).await;
        let names = ["own", "other", "own-later", "other-later"].map(NamespacedName::cluster);
        for name in &names {
            bench.queue.add(name.clone(), Add::strong(Cause::bare(Trigger::Generic)));
            let _parked: Retried = bench.get().await.fail("no luck", Retry::Never);
        }
        let writer = Writer::controller("test").in_run_of(&NamespacedName::cluster(run));
        bench.cache.written(&generation(1, "u1", 12), writer);
        // Time for the delivery.
        sleep(Duration::from_millis(1)).await;
        let states = names.map(|name| bench.queue.find(&name).map(|key| key.state));
        assert_eq!(states, expected.map(Some), "{run}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_object_of_the_name_does_not_inherit_the_failures_of_the_old_one() {
    let recreated = |bench: &Bench| {
        bench.cache.deleted(&generation(1, "u1", 11));
        bench.cache.changed(&generation(1, "u2", 12));
    };
    let replaced = |bench: &Bench| bench.cache.relisted(&[generation(1, "u2", 12)], 20);
    let ways: [&dyn Fn(&Bench); 2] = [&recreated, &replaced];
    for (way, happens) in ["created again", "found another"].into_iter().zip(ways) {
        let source = |cache: &ByHand| StoreSource::new(cache.store.clone(), EnqueueForObject).primary();
        let bench = Bench::start(&[generation(1, "u1", 5)], 0, source).await;
        assert_eq!(fail(&bench, 1, || {}).await, Some(State::Backoff));
        assert_eq!(fail(&bench, 2, || {}).await, Some(State::Backoff));
        happens(&bench);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(bench.get().await.attempt(), 1, "{way}");
    }
}
