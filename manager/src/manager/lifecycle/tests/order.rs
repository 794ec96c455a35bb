//! Every start and every stop, over all groups, and the error of the manager at the end.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use tokio::sync::Notify;

use super::part::{Diary, Part, Reconciles, Way};
use super::*;
use crate::cache::{Scope, Store};
use crate::manager::RunnableGroup::{LeaderElection, Others, Servers};

/// A manager with one part of each kind, and the record of their events.
struct Lifecycle {
    manager: Manager,
    diary: Diary,
    webhooks: CancellationToken,
    feed: CancellationToken,
    sweep: CancellationToken,
    running: JoinSet<Result<(), ManagerError>>,
    /// A store ends with its last handle, and here the caches are to end it.
    _store: Option<Store<ConfigMap>>,
    /// The API server that records when the caches begin and end; `None` with an empty cache.
    server: Option<Server>,
}

/// An API server that serves one kind.
struct Server {
    /// Cancelled once the kind is watched, which no step waits for but the end can only be seen of.
    watched: CancellationToken,
    _task: JoinSet<()>,
}

impl Lifecycle {
    /// Starts a manager with an empty cache, with a runnable in every group, one that lives this way in
    /// each, and a controller in those that have some. No socket is open, so the clock may be paused.
    fn begin(ways: [Way; 3]) -> Self {
        Self::of(manager(""), Diary::default(), ways, None)
    }

    /// As [`Lifecycle::begin`], with a kind cached, and one more among the others that is ready once all of
    /// them run. Returns once all have started.
    async fn begin_cached(ways: [Way; 3]) -> Self {
        let diary = Diary::default();
        let (server, address) = Server::start(&diary).await;
        let watched = server.watched.clone();
        let manager = manager_of(&address, "");
        let entry = Part::new("entry", Others, Way::ReadyAtCue, &diary);
        let may_go_on = entry.cue.clone();
        manager.add(entry).unwrap();
        let life = Self::of(manager, diary, ways, Some(server));
        life.diary.until("always runs").await;
        life.diary.until("feed starts").await;
        may_go_on.cancel();
        life.diary.until("sweep starts").await;
        life.diary.until("web runs").await;
        watched.cancelled().await;
        life
    }

    fn of(manager: Manager, diary: Diary, [webhooks, feed, sweep]: [Way; 3], server: Option<Server>) -> Self {
        let store = server.as_ref().map(|_| manager.store::<ConfigMap>(Scope::all()));
        for (name, needs_lease) in [("always", false), ("web", true)] {
            let mut controller = Controller::new(name).source(channel().1).reconcile_timeout(Duration::ZERO);
            if let Some(store) = &store {
                controller = controller.reconciles(store);
            }
            if !needs_lease {
                controller = controller.runs_without_lease();
            }
            let handle = manager.register(controller.reconciler(Reconciles(name, diary.clone()))).unwrap();
            handle.trigger(NamespacedName::namespaced("shop", "web")).unwrap();
        }
        // Added in another order than that of the start.
        let parts =
            [("sweep", LeaderElection, sweep), ("feed", Others, feed), ("webhooks", Servers, webhooks)];
        let [sweep, feed, webhooks] = parts.map(|(name, group, way)| {
            let part = Part::new(name, group, way, &diary);
            let cue = part.cue.clone();
            manager.add(part).unwrap();
            cue
        });
        let running = run(&manager);
        Self { manager, diary, webhooks, feed, sweep, running, _store: store, server }
    }

    async fn stop(self) -> (Diary, Result<(), ManagerError>) {
        self.manager.stop();
        self.end().await
    }

    async fn end(self) -> (Diary, Result<(), ManagerError>) {
        let ended = self.running.join_all().await.pop().unwrap();
        if self.server.is_some() {
            self.diary.until("caches end").await;
        }
        (self.diary, ended)
    }
}

impl Server {
    async fn start(diary: &Diary) -> (Self, String) {
        let mark = concat!(
            r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5","#,
            r#""annotations":{"k8s.io/initial-events-end":"true"}}}}"#
        );
        let listed = Answer::ok(&format!("{mark}\n"));
        let watch = Answer::Hold(Arc::new(Notify::new()), 200, String::new());
        let mut server = TestServer::start([listed, watch]).await;
        let address = server.address.to_string();
        let watched = CancellationToken::new();
        let (diary, opened) = (diary.clone(), watched.clone());
        let task = async move {
            server.arrival().await;
            diary.note("caches start");
            server.arrival().await;
            opened.cancel();
            server.ending().await;
            diary.note("caches end");
        };
        (Self { watched, _task: JoinSet::from_iter([task]) }, address)
    }
}

/// The events of the start of all groups, in order.
const START: [&[&str]; 4] = [
    &["webhooks starts"],
    &["caches start"],
    &["feed starts", "entry starts", "always runs"],
    &["sweep starts", "web runs"],
];

/// The events of the start of all groups with an empty cache, in order.
const START_BARE: [&[&str]; 3] =
    [&["webhooks starts"], &["feed starts", "always runs"], &["sweep starts", "web runs"]];

/// The runs that end as soon as the manager stops. A run that needs no Lease may go on; this one hears that
/// the manager stops.
const RUNS: [&str; 2] = ["web has run", "always has run"];

/// The clock is paused: every part that can start has started after this time.
const LONG: Duration = Duration::from_mins(10);

#[tokio::test]
async fn groups_start_one_after_the_other_and_stop_in_the_opposite_order() {
    let life = Lifecycle::begin_cached([Way::AfterCaches, Way::Well, Way::Well]).await;
    let (diary, ended) = life.stop().await;
    ended.unwrap();
    let stop = [
        &[RUNS[0], RUNS[1], "sweep ends"][..],
        &["feed ends", "entry ends"],
        &["caches end"],
        &["webhooks ends"],
    ];
    diary.reads(&[&START[..], &stop].concat());
}

#[tokio::test]
async fn a_slow_runnable_holds_up_the_stop_of_those_behind_it() {
    let life = Lifecycle::begin_cached([Way::AfterCaches, Way::Slow, Way::Slow]).await;
    let (diary, ended) = life.stop().await;
    ended.unwrap();
    let stop =
        [&RUNS[..], &["sweep ends"], &["entry ends"], &["feed ends"], &["caches end"], &["webhooks ends"]];
    diary.reads(&[&START[..], &stop].concat());
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_becomes_ready_lets_those_behind_it_start() {
    let life = Lifecycle::begin([Way::ReadyAtCue, Way::ReadyAtCue, Way::Well]);
    tokio::time::sleep(LONG).await;
    life.diary.reads(&START_BARE[..1]);
    life.webhooks.cancel();
    tokio::time::sleep(LONG).await;
    life.diary.reads(&START_BARE[..2]);
    assert!(!*life.manager.leading().borrow());
    life.feed.cancel();
    tokio::time::sleep(LONG).await;
    life.diary.reads(&START_BARE);
    assert!(*life.manager.leading().borrow());
    let (_, ended) = life.stop().await;
    ended.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_never_ready_holds_up_all_but_the_stop() {
    let life = Lifecycle::begin([Way::NeverReady, Way::Well, Way::Well]);
    tokio::time::sleep(LONG).await;
    let (diary, ended) = life.stop().await;
    ended.unwrap();
    diary.reads(&[&["webhooks starts"], &["webhooks ends"]]);
}

#[tokio::test(start_paused = true)]
async fn a_runnable_that_is_never_ready_holds_up_the_leader_and_nothing_else() {
    let life = Lifecycle::begin([Way::Well, Way::NeverReady, Way::Well]);
    tokio::time::sleep(LONG).await;
    let (diary, ended) = life.stop().await;
    ended.unwrap();
    let stop = [&["always has run", "feed ends"][..], &["webhooks ends"]];
    diary.reads(&[&START_BARE[..2], &stop].concat());
}

#[tokio::test]
async fn a_failure_stops_all_others_in_order_and_is_returned() {
    let life = Lifecycle::begin_cached([Way::AfterCaches, Way::FailsAtCue, Way::Slow]).await;
    life.feed.cancel();
    let (diary, ended) = life.end().await;
    assert_eq!(told(ended), ("feed".to_owned(), "out of paper".to_owned()));
    let stop =
        [&["feed ends"][..], &RUNS, &["sweep ends"], &["entry ends"], &["caches end"], &["webhooks ends"]];
    diary.reads(&[&START[..], &stop].concat());
}

#[tokio::test]
async fn a_panic_stops_all_others_in_order_and_is_returned_with_its_text() {
    let life = Lifecycle::begin_cached([Way::AfterCaches, Way::Slow, Way::PanicsAtCue]).await;
    life.sweep.cancel();
    let (diary, ended) = life.end().await;
    let (name, text) = told(ended);
    assert_eq!(name, "sweep");
    assert!(text.starts_with("panicked: ") && text.contains("as it was told to"), "{text}");
    let stop =
        [&["sweep ends"][..], &RUNS, &["entry ends"], &["feed ends"], &["caches end"], &["webhooks ends"]];
    diary.reads(&[&START[..], &stop].concat());
}

#[tokio::test]
async fn a_server_that_fails_stops_all_others_in_order() {
    let life = Lifecycle::begin_cached([Way::FailsAtCue, Way::Well, Way::Well]).await;
    life.webhooks.cancel();
    let (diary, ended) = life.end().await;
    assert_eq!(told(ended), ("webhooks".to_owned(), "out of paper".to_owned()));
    let stop = [
        &["webhooks ends"][..],
        &[RUNS[0], RUNS[1], "sweep ends"],
        &["feed ends", "entry ends"],
        &["caches end"],
    ];
    diary.reads(&[&START[..], &stop].concat());
}

#[tokio::test]
async fn a_server_that_fails_before_it_is_ready_lets_nobody_start() {
    let life = Lifecycle::begin([Way::FailsUnready, Way::Well, Way::Well]);
    life.diary.until("webhooks starts").await;
    life.webhooks.cancel();
    let (diary, ended) = life.end().await;
    assert_eq!(told(ended), ("webhooks".to_owned(), "out of paper".to_owned()));
    diary.reads(&[&["webhooks starts"], &["webhooks ends"]]);
}

#[tokio::test]
async fn a_manager_told_to_stop_before_it_runs_starts_nobody() {
    let manager = manager("");
    let diary = Diary::default();
    for (name, group) in [("webhooks", Servers), ("feed", Others), ("sweep", LeaderElection)] {
        manager.add(Part::new(name, group, Way::Well, &diary)).unwrap();
    }
    manager.stop();
    manager.run().await.unwrap();
    diary.reads(&[]);
}

#[tokio::test]
async fn a_stop_before_the_caches_have_been_listed_is_in_order_and_at_once() {
    let silent = Answer::Hold(Arc::new(Notify::new()), 200, String::new());
    let mut server = TestServer::start([silent]).await;
    let manager = manager_of(&server.address.to_string(), "");
    let _store = manager.store::<ConfigMap>(Scope::all());
    let diary = Diary::default();
    for (name, group) in [("feed", Others), ("webhooks", Servers)] {
        manager.add(Part::new(name, group, Way::Well, &diary)).unwrap();
    }
    let running = run(&manager);
    server.arrival().await;
    manager.stop();
    running.join_all().await.pop().unwrap().unwrap();
    diary.reads(&[&["webhooks starts"], &["webhooks ends"]]);
}

/// Returns the name of the part that failed, and its error as text.
fn told(ended: Result<(), ManagerError>) -> (String, String) {
    match ended.unwrap_err() {
        ManagerError::Failed { name, source, others } if others.is_empty() => {
            (name.to_string(), source.to_string())
        }
        error => panic!("one failure: {error:?}"),
    }
}
