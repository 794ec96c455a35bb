//! Controllers that come and go while their manager runs, with a paused clock and no API server.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::mpsc;
use tokio::task::yield_now;
use tokio::time::{Duration, Instant, sleep};

use super::*;
use crate::cache::tests::fixtures::{ByHand, object};
use crate::cache::{Delta, Scope, Store};
use crate::controller::{Controller, Registration};
use crate::key::{Cause, Trigger};
use crate::manager::lifecycle::tests::{manager, run};
use crate::manager::{Manager, RegisterError};
use crate::metrics::Format;
use crate::reconcile::{Action, Context, Outcome, Reconciler};
use crate::watch::{Enqueue, Sink, Source, function};

/// The grace period of the managers in these tests.
const GRACE: Duration = Duration::from_secs(30);
/// Longer than any step of these tests; the clock is paused, so a wait for it takes no time.
const LONG: Duration = Duration::from_hours(1);

/// A source that has synced from the start and adds no keys. It holds `held` for as long as it runs.
fn quiet(held: Arc<()>) -> impl Source<NamespacedName> {
    function("quiet", async move |_, stop: CancellationToken| {
        stop.cancelled().await;
        drop(held);
        Ok(())
    })
}

/// A reconciler that sends the key and trigger of each run, which then takes this long.
struct Tells {
    runs: mpsc::UnboundedSender<(String, Trigger)>,
    takes: Duration,
}

impl Reconciler for Tells {
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        self.runs.send((request.to_string(), cx.cause().trigger)).expect("the test listens");
        sleep(self.takes).await;
        Ok(Action::Done)
    }
}

type Runs = mpsc::UnboundedReceiver<(String, Trigger)>;

fn controller(takes: Duration) -> (Registration, Runs) {
    let (runs, seen) = mpsc::unbounded_channel();
    let controller = Controller::new("web").runs_without_lease().source(quiet(Arc::default()));
    (controller.reconciler(Tells { runs, takes }), seen)
}

fn web() -> NamespacedName {
    NamespacedName::namespaced("shop", "web")
}

/// Waits until every task that can continue has done so.
async fn settle() {
    sleep(Duration::from_millis(1)).await;
    for _ in 0..10 {
        yield_now().await;
    }
}

fn series(manager: &Manager) -> usize {
    let text = manager.registry().encode(Format::Text).unwrap();
    text.lines().filter(|line| line.contains(r#"controller="web""#)).count()
}

#[tokio::test(start_paused = true)]
async fn a_thousand_controllers_that_came_and_went_leave_nothing() {
    let manager = manager("");
    let _running = run(&manager);
    let cache = ByHand::listed(&[object("web", "u1", 5)]);
    let store: Store = Store::new(Arc::clone(&cache.store));
    settle().await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let held = Arc::new(());
    for _ in 0..1000 {
        let (runs, mut seen) = mpsc::unbounded_channel();
        let controller = Controller::new("web")
            .runs_without_lease()
            .source(quiet(Arc::clone(&held)))
            .watches(&store, |_: &Delta<'_>, _: &mut Enqueue<NamespacedName>| panic!("no"));
        let handle = manager
            .register(controller.reconciler(Tells { runs, takes: Duration::ZERO }))
            .expect("the name is free");
        handle.trigger(web()).unwrap();
        assert_eq!(seen.recv().await.unwrap(), ("shop/web".to_owned(), Trigger::Manual));
        let panics = cache.store.status().handlers.into_values().map(|trouble| trouble.panics);
        assert_eq!(panics.collect::<Vec<_>>(), [1], "of this one, and of none before it");
        assert!(series(&manager) > 0 && manager.shared.directory.find("web").is_some(), "it is there");
        handle.remove().await.unwrap();
        assert_eq!(series(&manager), 0, "its series are gone");
        assert!(manager.shared.directory.find("web").is_none(), "it is listed no more");
        assert!(handle.status().is_none());
    }
    settle().await;
    assert_eq!(tasks(), before, "tasks");
    assert!(cache.store.status().handlers.is_empty(), "what its handlers did");
    assert_eq!(Arc::strong_count(&held), 1, "sources");
}

#[tokio::test(start_paused = true)]
async fn a_kind_is_watched_until_its_last_controller_is_removed() {
    let manager = manager("");
    let _running = run(&manager);
    let store = manager.store::<ConfigMap>(Scope::all());
    let register = |name| {
        let (runs, _) = mpsc::unbounded_channel();
        let controller = Controller::new(name).runs_without_lease().reconciles(&store);
        manager.register(controller.reconciler(Tells { runs, takes: Duration::ZERO })).unwrap()
    };
    let (first, second) = (register("first"), register("second"));
    drop(store);
    let kinds = || manager.shared.clusters.own().cache().kinds().len();
    let series = || {
        let text = manager.registry().encode(Format::Text).unwrap();
        text.lines().filter(|line| line.contains(r#"kind="ConfigMap""#)).count()
    };
    settle().await;
    first.remove().await.unwrap();
    assert!(kinds() == 1 && series() > 0, "the second needs it");
    second.remove().await.unwrap();
    settle().await;
    assert_eq!((kinds(), series()), (0, 0), "no list, no watch, no check and no metric is left");
}

#[tokio::test(start_paused = true)]
async fn a_controller_removed_before_the_manager_runs_never_does_and_frees_its_name() {
    let manager = manager("");
    let (first, mut seen) = controller(Duration::ZERO);
    let handle = manager.register(first).unwrap();
    handle.trigger(web()).unwrap();
    let (second, _runs) = controller(Duration::ZERO);
    let taken = manager.register(second).unwrap_err();
    assert!(matches!(&taken, RegisterError::DuplicateName { name, .. } if **name == *"web"), "{taken}");
    handle.remove().await.unwrap();
    let (third, _runs) = controller(Duration::ZERO);
    let next = manager.register(third).expect("the name is free");
    handle.remove().await.expect("a second time is the same as once");
    let _running = run(&manager);
    settle().await;
    assert!(next.status().is_some(), "the handle of a former holder of the name removes nobody else");
    assert!(seen.recv().await.is_none(), "the reconciler is gone and never ran");
    assert_eq!(handle.trigger(web()), Err(ControllerGone { name: "web".into() }));
}

#[tokio::test(start_paused = true)]
async fn a_removal_waits_for_the_run_and_however_many_ask_for_it() {
    let manager = manager("");
    let _running = run(&manager);
    let (registration, mut runs) = controller(Duration::from_secs(20));
    let handle = manager.register(registration).unwrap();
    handle.trigger(web()).unwrap();
    runs.recv().await.unwrap();
    let began = Instant::now();
    let (once, twice) = tokio::join!(handle.remove(), handle.clone().remove());
    once.and(twice).unwrap();
    assert!(began.elapsed() >= Duration::from_secs(19), "it was waited for: {:?}", began.elapsed());
    handle.remove().await.unwrap();
}

/// A reconciler that runs until the controller, or the manager, begins to stop.
struct Heeds(mpsc::UnboundedSender<()>);

impl Reconciler for Heeds {
    async fn reconcile(&self, _: &NamespacedName, cx: &Context) -> Outcome {
        self.0.send(()).expect("the test listens");
        cx.stopping().cancelled().await;
        Ok(Action::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_is_told_that_its_controller_is_being_removed_and_no_other_is() {
    let manager = manager("");
    let mut running = run(&manager);
    let start = |name| {
        let (runs, mut seen) = mpsc::unbounded_channel();
        let controller = Controller::new(name).runs_without_lease().source(quiet(Arc::default()));
        let handle = manager.register(controller.reconciler(Heeds(runs))).unwrap();
        handle.trigger(web()).unwrap();
        async move { (seen.recv().await.unwrap(), handle).1 }
    };
    let (leaving, staying) = tokio::join!(start("leaving"), start("staying"));
    let began = Instant::now();
    leaving.remove().await.expect("its run has ended early");
    assert_eq!(began.elapsed(), Duration::ZERO);
    sleep(GRACE).await;
    assert_eq!(staying.status().expect("it is there").counts.running, 1);
    manager.stop();
    running.join_next().await.unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_that_never_ends_is_dropped_after_the_grace_period_and_named() {
    let manager = manager("");
    let _running = run(&manager);
    let (registration, mut runs) = controller(LONG);
    let handle = manager.register(registration).unwrap();
    handle.trigger(web()).unwrap();
    runs.recv().await.unwrap();
    let began = Instant::now();
    let late = handle.remove().await.unwrap_err();
    assert_eq!(
        late.to_string(),
        r#"controller "web" is removed; dropped after shutdown.gracePeriod 30s: shop/web"#
    );
    assert!((GRACE..GRACE + OWN_TURN).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!(runs.recv().await.is_none(), "the reconciler is gone");
    assert_eq!(series(&manager), 0);
    let (registration, _runs) = controller(Duration::ZERO);
    manager.register(registration).expect("the name is free");
}

/// A reconciler that blocks the thread of its first run until the test releases it.
struct Blocks {
    runs: mpsc::UnboundedSender<()>,
    go_on: std::sync::Mutex<std::sync::mpsc::Receiver<()>>,
}

impl Reconciler for Blocks {
    async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Outcome {
        self.runs.send(()).expect("the test listens");
        self.go_on.lock().unwrap().recv().expect("the test lets it go");
        Ok(Action::Done)
    }
}

#[test]
fn a_run_that_blocks_its_thread_keeps_the_name_until_it_ends() {
    let work = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let (runs, mut seen) = mpsc::unbounded_channel();
    let (go, go_on) = std::sync::mpsc::channel();
    let web = || Controller::new("web").runs_without_lease().source(quiet(Arc::default()));
    let (manager, running, handle) = work.block_on(async {
        let manager = manager("");
        let running = run(&manager);
        let handle = manager.register(web().reconciler(Blocks { runs, go_on: go_on.into() })).unwrap();
        handle.trigger(self::web()).unwrap();
        seen.recv().await.unwrap();
        (manager, running, handle)
    });
    // Waited for where the clock is paused: the period is over at once there, and never where the run blocks.
    let waits =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (waited, outcome) = waits.block_on(async {
        let began = Instant::now();
        let outcome = handle.remove().await;
        (began.elapsed(), outcome)
    });
    let error = outcome.unwrap_err();
    assert!(
        matches!(&error, RemoveError::StillRunning { name, grace: GRACE, .. } if **name == *"web"),
        "{error}"
    );
    assert!(waited >= GRACE + OWN_TURN, "{waited:?}");
    assert!(handle.trigger(self::web()).is_err(), "it takes nothing more");
    let (registration, _runs) = controller(Duration::ZERO);
    let taken = manager.register(registration).unwrap_err();
    assert!(matches!(&taken, RegisterError::DuplicateName { name, .. } if **name == *"web"), "{taken}");
    go.send(()).unwrap();
    work.block_on(async {
        handle.remove().await.expect("it ends by itself after all");
        let (registration, _runs) = controller(Duration::ZERO);
        manager.register(registration).expect("the name is free");
    });
    drop(running);
}

#[tokio::test(start_paused = true)]
async fn a_removal_that_leaves_something_running_says_what() {
    let manager = manager("");
    let (registration, _runs) = controller(Duration::ZERO);
    let mut handle = manager.register(registration).unwrap();
    // In the place of a life that cannot end.
    let stage = watch::Sender::new(Stage { living: true, late: vec!["shop/web".to_owned()] });
    handle.stage = stage.subscribe();
    let began = Instant::now();
    let error = handle.remove().await.unwrap_err();
    assert_eq!(began.elapsed(), GRACE + OWN_TURN);
    assert_eq!(
        error.to_string(),
        "controller \"web\" is still there after shutdown.gracePeriod 30s: shop/web blocks its thread; \
         use awaits or spawn_blocking"
    );
    stage.send_modify(|stage| stage.late.clear());
    let error = handle.remove().await.unwrap_err();
    assert!(error.to_string().contains("30s: something blocks its thread"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_removal_and_a_stop_at_the_same_time_both_end() {
    let manager = manager("");
    let mut running = run(&manager);
    let (registration, mut runs) = controller(Duration::from_secs(20));
    let handle = manager.register(registration).unwrap();
    handle.trigger(web()).unwrap();
    runs.recv().await.unwrap();
    let removal = handle.remove();
    manager.stop();
    removal.await.unwrap();
    running.join_next().await.unwrap().unwrap().unwrap();
    let (registration, _runs) = controller(Duration::ZERO);
    let late = manager.register(registration).unwrap_err();
    assert!(matches!(&late, RegisterError::Stopped { name } if **name == *"web"), "{late}");
    handle.remove().await.expect("of a manager that has ended");
}

#[tokio::test(start_paused = true)]
async fn a_registered_controller_that_never_starts_has_no_task() {
    let manager = manager("");
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let (registration, _runs) = controller(Duration::ZERO);
    let handle = manager.register(registration).unwrap();
    assert_eq!(tasks(), before);
    drop(manager);
    assert!(handle.status().is_none(), "a handle keeps nothing");
    handle.remove().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_manager_that_has_stopped_leaves_no_task_of_its_controllers() {
    let manager = manager("");
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let mut running = run(&manager);
    let (registration, mut runs) = controller(Duration::ZERO);
    let handle = manager.register(registration).unwrap();
    handle.trigger(web()).unwrap();
    runs.recv().await.unwrap();
    manager.stop();
    running.join_next().await.unwrap().unwrap().unwrap();
    settle().await;
    assert_eq!(tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn a_source_may_be_added_while_the_controller_runs() {
    let feeds = async |sink: Sink<NamespacedName>, stop: CancellationToken| {
        sink.add(NamespacedName::cluster("fed"), Cause::bare(Trigger::Generic));
        // Not synced yet: a controller that runs does not wait for it.
        sleep(LONG).await;
        sink.synced();
        stop.cancelled().await;
        Ok(())
    };
    let manager = manager("");
    let _running = run(&manager);
    let (registration, mut runs) = controller(Duration::ZERO);
    let handle = manager.register(registration).unwrap();
    handle.trigger(web()).unwrap();
    runs.recv().await.unwrap();
    handle.add_source(function("feeds", feeds).syncs_itself()).unwrap();
    assert_eq!(runs.recv().await.unwrap(), ("fed".to_owned(), Trigger::Generic));
    let late = handle.remove().await.unwrap_err().to_string();
    assert!(late.ends_with("function feeds"), "{late}");
    assert!(handle.add_source(function("feeds", feeds).syncs_itself()).is_err(), "it takes nothing any more");
}
