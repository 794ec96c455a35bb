//! The parts of a controller: its key, its sources, and other controllers beside it.

use super::steering::store;
use super::*;
use crate::cache::tests::fixtures::{ByHand, object};
use crate::cache::{Delta, View};
use crate::key::tests::Id;
use crate::watch::{Enqueue, function};

#[tokio::test]
async fn an_owner_is_known_before_what_it_owns_and_is_of_one_kind() {
    let wired = |wire: fn(Controller, &Store) -> Controller| {
        let (reconciler, _runs) = scripted(async |_| Ok(Action::Done));
        let store = Store::new(ByHand::unlisted().store);
        let registration = wire(Controller::new("test"), &store).reconciler(reconciler);
        registration.problem().map(ToString::to_string)
    };
    let owned_first = "owns(ConfigMap) needs the kind of the owner: call reconciles(...) before it";
    assert_eq!(wired(|controller, maps| controller.owns(maps)).as_deref(), Some(owned_first));
    assert_eq!(wired(|controller, maps| controller.co_owns(maps)).as_deref(), Some(owned_first));
    assert_eq!(
        wired(|controller, maps| controller.reconciles(maps).reconciles(maps)).as_deref(),
        Some(
            "reconciles(ConfigMap) after reconciles(ConfigMap): a controller has one primary kind; \
             use watches(...) for others"
        )
    );
    assert_eq!(wired(|controller, maps| controller.reconciles(maps).owns(maps).co_owns(maps)), None);
}

/// A reconciler that sends the key of each reconcile.
struct Looks(mpsc::UnboundedSender<u32>);

impl Reconciler<Id> for Looks {
    async fn reconcile(&self, key: &Id, _: &Context) -> Outcome {
        self.0.send(key.0).expect("the test listens");
        Ok(Action::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_may_be_keyed_by_anything_and_waits_for_such_a_source_as_for_any() {
    let (looks, mut looked) = mpsc::unbounded_channel();
    let cache = ByHand::listed(&[object("web", "u1", 5)]);
    let stocktaking = async |sink: Sink<Id>, stop: CancellationToken| {
        sink.add(Id(1), Cause::bare(Trigger::Initial));
        sleep(LONG).await;
        sink.synced();
        stop.cancelled().await;
        Ok(())
    };
    let controller = Controller::keyed("test")
        .source(function("stocktaking", stocktaking).syncs_itself())
        .watches(&store(&cache), |_: &Delta<'_>, out: &mut Enqueue<Id>| out.add(Id(2)));
    let bench = Bench::start(controller, Looks(looks));
    bench.notifier.notify(Id(3));
    sleep(LONG / 2).await;
    assert!(looked.try_recv().is_err(), "nothing before the stocktaking is over");
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(looked.recv().await.expect("a run"));
    }
    ids.sort_unstable();
    assert_eq!(ids, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn every_handler_has_seen_the_whole_list_before_the_first_reconcile() {
    const OBJECTS: usize = 1000;
    let objects: Vec<_> = (0..OBJECTS).map(|n| object(&format!("{n}"), &format!("u{n}"), 5)).collect();
    let (small, large) = (ByHand::listed(&objects[..1]), ByHand::listed(&objects));
    let seen = Arc::new(AtomicUsize::new(0));
    let counting = {
        let seen = Arc::clone(&seen);
        move |_: &Delta<'_>, _: &mut Enqueue<NamespacedName>| {
            seen.fetch_add(1, Ordering::SeqCst);
        }
    };
    let (at_first_run, mut first) = mpsc::unbounded_channel();
    let (reconciler, mut runs) = scripted(move |_| {
        at_first_run.send(seen.load(Ordering::SeqCst)).expect("the test listens");
        async { Ok(Action::Done) }
    });
    let controller = Controller::new("test").reconciles(&store(&small)).watches(&store(&large), counting);
    let _bench = Bench::start(controller, reconciler);
    next(&mut runs).await;
    assert_eq!(first.recv().await, Some(OBJECTS));
}

#[tokio::test(start_paused = true)]
async fn two_controllers_of_one_kind_each_see_what_their_own_predicates_admit() {
    let cache = ByHand::listed(&[object("a", "u1", 5), object("b", "u2", 5)]);
    let named = |name: &'static str| {
        move |delta: &Delta<'_>| delta.latest().is_some_and(|view: &View| view.meta().name() == name)
    };
    let mut benches = Vec::new();
    for name in ["a", "b"] {
        let (reconciler, runs) = scripted(async |_| Ok(Action::Done));
        let controller = Controller::new("test").reconciles(store(&cache).when(named(name)));
        benches.push((name, Bench::start(controller, reconciler), runs));
    }
    for (name, _bench, runs) in &mut benches {
        assert_eq!(next(runs).await.0, key(name));
        none(runs, LONG).await;
    }
    cache.changed(&object("a", "u1", 11));
    assert_eq!(next(&mut benches[0].2).await.0, key("a"));
    none(&mut benches[1].2, LONG).await;
}

#[test]
fn a_controller_wired_wrongly_says_what_to_call() {
    let (reconciler, _runs) = scripted(async |_| Ok(Action::Done));
    let unsourced = Controller::new("test").reconciler(reconciler);
    assert_eq!(
        unsourced.problem().expect("refused").to_string(),
        "no source: call reconciles(...), watches(...) or source(...)"
    );
}
