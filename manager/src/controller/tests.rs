//! The future of a controller, with a paused clock and sources that say when they have synced.

mod limits;
mod outcomes;
mod retries;
mod series;
mod span;
mod standby;
mod steering;
mod switches;
mod wiring;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::cache::Store;
use crate::client::Recorder;
use crate::key::{Cause, Trigger};
use crate::metrics::{Format, Registry};
use crate::queue::{KeySnapshot, RetryPolicy, State};
use crate::reconcile::{Action, Context, Outcome, ReconcileError};
use crate::watch::{Notifier, Sink, SourceError, channel, function};

impl Removal {
    /// That of a controller nobody takes out.
    pub(crate) fn never() -> Self {
        Self {
            leave: CancellationToken::new(),
            grace: Arc::new(|| Duration::ZERO),
            stage: watch::Sender::default(),
        }
    }
}

/// Longer than anything here takes; the clock is paused, so a wait for it costs nothing.
const LONG: Duration = Duration::from_hours(1);

/// A controller under test, and what it is steered by.
struct Bench<Q: Key = NamespacedName> {
    term: Term,
    settings: watch::Sender<ControllerSettings>,
    registry: Registry,
    directory: Directory,
    port: Weak<ControllerPort<Q>>,
    stop: CancellationToken,
    notifier: Notifier<Q>,
    running: JoinSet<Result<(), ControllerError>>,
}

/// Calls a function and remembers when it was called, and how many calls there were at once.
struct Scripted<F> {
    runs: mpsc::UnboundedSender<(NamespacedName, u32, Instant)>,
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
    run: F,
}

type Runs = mpsc::UnboundedReceiver<(NamespacedName, u32, Instant)>;

impl<F, W> Reconciler for Scripted<F>
where
    F: Fn(u32) -> W + Send + Sync + 'static,
    W: Future<Output = Outcome> + Send,
{
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        let at_once = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(at_once, Ordering::SeqCst);
        let now = Arc::clone(&self.now);
        let _left = on_drop(move || {
            now.fetch_sub(1, Ordering::SeqCst);
        });
        self.runs.send((request.clone(), cx.attempt(), Instant::now())).expect("the test listens");
        (self.run)(cx.attempt()).await
    }
}

/// Runs a function when dropped, also when the run is dropped in the middle.
fn on_drop(leave: impl FnOnce()) -> impl Drop {
    struct Guard<F: FnOnce()>(Option<F>);
    impl<F: FnOnce()> Drop for Guard<F> {
        fn drop(&mut self) {
            if let Some(leave) = self.0.take() {
                leave();
            }
        }
    }
    Guard(Some(leave))
}

fn scripted<F, W>(run: F) -> (Scripted<F>, Runs)
where
    F: Fn(u32) -> W + Send + Sync + 'static,
    W: Future<Output = Outcome> + Send,
{
    let (runs, seen) = mpsc::unbounded_channel();
    (Scripted { runs, now: Arc::default(), most: Arc::default(), run }, seen)
}

fn key(name: &str) -> NamespacedName {
    NamespacedName::namespaced("shop", name)
}

fn settings() -> ControllerSettings {
    let mut settings = ControllerSettings::default();
    settings.queue.retry = RetryPolicy::fixed(Duration::from_secs(1));
    settings
}

impl<Q: Key> Bench<Q> {
    /// On a replica that leads.
    fn start(controller: Controller<Q>, reconciler: impl Reconciler<Q>) -> Self {
        Self::start_in(Term::begun(), controller, reconciler)
    }

    fn start_in(term: Term, controller: Controller<Q>, reconciler: impl Reconciler<Q>) -> Self {
        Self::start_with(settings(), term, controller, reconciler)
    }

    fn start_with(
        settings: ControllerSettings,
        term: Term,
        controller: Controller<Q>,
        reconciler: impl Reconciler<Q>,
    ) -> Self {
        let (notifier, source) = channel();
        let registration = controller.source(source).reconciler(reconciler);
        let registry = Registry::new();
        let refuse = tower::service_fn(|_: http::Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>("no server in this test")
        });
        let client = kube::Client::new(refuse, "default");
        let (events, _writer) = Recorder::new("test", "test", client.clone(), &registry);
        let (directory, stop) = (Directory::default(), CancellationToken::new());
        let (settings, live_settings) = watch::channel(settings);
        let environment = Environment {
            settings: live_settings,
            runs: RunEnvironment::new(client, events, CancellationToken::new()),
            needs_lease: registration.needs_lease,
            term: term.clone(),
            directory: directory.clone(),
            metrics: ControllerMetrics::register(&registry),
            queue_metrics: QueueMetrics::register(&registry),
            stop: stop.clone(),
            removal: Removal::never(),
        };
        let (future, port) = registration.wired.expect("wired").open("test".into(), environment);
        let mut running = JoinSet::new();
        running.spawn(future);
        Self { term, settings, registry, directory, port, stop, notifier, running }
    }

    async fn ended(&mut self) -> Result<(), ControllerError> {
        timeout(LONG, self.running.join_next()).await.expect("ends").expect("ran").expect("did not panic")
    }

    fn status(&self) -> ControllerStatus {
        self.directory.find("test").expect("it runs").status()
    }

    /// Every key the queue holds.
    fn keys(&self) -> Vec<KeySnapshot<KeyText>> {
        let mut keys = Vec::new();
        let controller = self.directory.find("test").expect("it runs");
        controller.visit(&Wanted::default(), &mut |key| keys.push(key));
        keys
    }

    fn counts(&self, family: &str) -> String {
        let text = self.registry.encode(Format::Text).expect("encoded");
        let lines = text.lines().filter(|line| line.starts_with(family) && !line.ends_with(" 0"));
        let mut lines: Vec<_> = lines.map(|line| line.trim_start_matches(family)).collect();
        // The registry writes the series of a family in no order.
        lines.sort_unstable();
        lines.join("\n")
    }
}

async fn next(runs: &mut Runs) -> (NamespacedName, u32, Instant) {
    timeout(LONG, runs.recv()).await.expect("a run").expect("the reconciler is alive")
}

async fn none(runs: &mut Runs, within: Duration) {
    // An ended channel is an ended controller, which runs nothing either.
    let run = timeout(within, runs.recv()).await.ok().flatten();
    assert!(run.is_none(), "no run was expected within {within:?}: {run:?}");
}

/// A source that has one key and syncs when it is told to.
struct Slow {
    go: Arc<Notify>,
}

impl Source<NamespacedName> for Slow {
    fn run(
        self: Box<Self>,
        sink: Sink<NamespacedName>,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async move {
            sink.add(key("listed"), Cause::bare(Trigger::Initial));
            self.go.notified().await;
            sink.synced();
            // Told twice, counted once.
            sink.synced();
            stop.cancelled().await;
            Ok(())
        })
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_reconciled_before_every_source_has_synced() {
    let (reconciler, mut runs) = scripted(async |_| Ok(Action::Done));
    let (first, second) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let controller = Controller::new("test")
        .source(Slow { go: Arc::clone(&first) })
        .source(Slow { go: Arc::clone(&second) });
    let bench = Bench::start(controller, reconciler);
    bench.notifier.notify(key("told"));
    first.notify_one();
    none(&mut runs, LONG).await;
    second.notify_one();
    let mut names = [next(&mut runs).await.0.to_string(), next(&mut runs).await.0.to_string()];
    names.sort();
    assert_eq!(names, ["shop/listed", "shop/told"]);
}

#[tokio::test(start_paused = true)]
async fn each_outcome_is_counted_and_followed_by_what_the_table_says() {
    let outcomes: VecDeque<Outcome> = VecDeque::from([
        Ok(Action::Done),
        Ok(Action::RequeueAfter(Duration::from_secs(7))),
        Err("down".into()),
        Err(ReconcileError::retry_after("busy", Duration::from_secs(30))),
        Err(conflict()),
        Err(ReconcileError::terminal("broken")),
        Ok(Action::Done),
    ]);
    let outcomes = Mutex::new(outcomes);
    let (reconciler, mut runs) = scripted(move |_| {
        let outcome = outcomes.lock().pop_front().expect("no further run");
        async move { outcome }
    });
    let bench = Bench::start(Controller::new("test"), reconciler);
    let mut waits = Vec::new();
    let mut last = None;
    for nudge in [true, true, false, false, false, false] {
        if nudge {
            bench.notifier.notify(key("web"));
        }
        let (_, attempt, at) = next(&mut runs).await;
        waits.push((attempt, last.map_or(0, |last: Instant| (at - last).as_millis() / 100 * 100)));
        last = Some(at);
    }
    none(&mut runs, LONG).await;
    bench.notifier.notify(key("web"));
    next(&mut runs).await;
    // Attempt, and whether it came when it was due: a fixed delay of 1 s, less its jitter of at most a tenth.
    let waits: Vec<(u32, bool)> = waits
        .iter()
        .zip([0, 0, 7000, 1000, 30_000, 1000])
        .map(|((attempt, waited), due)| (*attempt, (due - due / 10..=due).contains(waited)))
        .collect();
    assert_eq!(waits, [(1, true), (1, true), (1, true), (2, true), (3, true), (4, true)]);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(
        bench.counts("controller_runtime_reconcile_total"),
        [
            r#"{controller="test",result="error"} 3"#,
            r#"{controller="test",result="requeue"} 1"#,
            r#"{controller="test",result="requeue_after"} 1"#,
            r#"{controller="test",result="success"} 2"#,
        ]
        .join("\n"),
    );
    assert_eq!(bench.counts("controller_runtime_terminal_reconcile_errors_total"), "{controller=\"test\"} 1");
}

fn conflict() -> ReconcileError {
    let status = kube::core::Status::failure("the object has been modified", "Conflict").with_code(409);
    kube::Error::Api(Box::new(status)).into()
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_its_run_and_nothing_else() {
    let (reconciler, mut runs) = scripted(async |attempt| {
        assert!(attempt > 1, "the first attempt panics");
        Ok(Action::Done)
    });
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    assert_eq!(next(&mut runs).await.1, 1);
    assert_eq!(next(&mut runs).await.1, 2);
    assert_eq!(bench.counts("controller_runtime_reconcile_panics_total"), "{controller=\"test\"} 1");
}

#[tokio::test(start_paused = true)]
async fn a_run_is_dropped_at_its_timeout_and_tried_again() {
    let (reconciler, mut runs) = scripted(async |attempt| {
        if attempt == 1 {
            std::future::pending::<()>().await;
        }
        Ok(Action::Done)
    });
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    let (_, _, began) = next(&mut runs).await;
    let (_, attempt, again) = next(&mut runs).await;
    assert_eq!(attempt, 2);
    assert!(again - began >= DEFAULT_RECONCILE_TIMEOUT, "not before its time: {:?}", again - began);
    assert_eq!(bench.counts("controller_runtime_reconcile_timeouts_total"), "{controller=\"test\"} 1");
}

#[tokio::test(start_paused = true)]
async fn a_lost_term_drops_the_run_and_the_next_term_begins_it_anew() {
    let (reconciler, mut runs) = scripted(async |_| {
        std::future::pending::<()>().await;
        Ok(Action::Done)
    });
    let now = Arc::clone(&reconciler.now);
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    next(&mut runs).await;
    bench.term.lose();
    timeout(LONG, bench.term.ended()).await.expect("the run is dropped");
    assert_eq!(now.load(Ordering::SeqCst), 0);
    none(&mut runs, LONG).await;
    bench.term.begin();
    assert_eq!(next(&mut runs).await.1, 1, "an interrupted run is no failure");
}

/// Tells of which term each run is.
struct TermTeller(mpsc::UnboundedSender<u64>);

impl Reconciler for TermTeller {
    async fn reconcile(&self, _request: &NamespacedName, cx: &Context) -> Outcome {
        self.0.send(cx.term()).expect("the test listens");
        Ok(Action::Done)
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_knows_that_others_may_have_led_since_the_last_one() {
    let (told, mut terms) = mpsc::unbounded_channel();
    let bench = Bench::start(Controller::new("test"), TermTeller(told));
    let mut run = async || {
        bench.notifier.notify(key("web"));
        timeout(LONG, terms.recv()).await.expect("a run").expect("the controller lives")
    };
    let (first, second) = (run().await, run().await);
    assert_eq!(first, second);
    bench.term.lose();
    bench.term.begin();
    assert!(run().await > first, "another term");
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_the_run_finish_and_begins_no_other() {
    let (reconciler, mut runs) = scripted(async |_| {
        sleep(Duration::from_secs(5)).await;
        Ok(Action::Done)
    });
    let mut bench = Bench::start(Controller::new("test"), reconciler);
    bench.settings.send_modify(|settings| settings.workers = 1);
    bench.notifier.notify(key("first"));
    next(&mut runs).await;
    bench.notifier.notify(key("second"));
    bench.term.end();
    bench.stop.cancel();
    bench.ended().await.expect("in order");
    none(&mut runs, LONG).await;
    assert_eq!(
        bench.counts("controller_runtime_reconcile_total"),
        "{controller=\"test\",result=\"success\"} 1",
        "the first has finished"
    );
}

#[tokio::test(start_paused = true)]
async fn the_number_of_workers_changes_while_they_work_and_cancels_none() {
    let (reconciler, mut runs) = scripted(async |_| {
        sleep(Duration::from_secs(10)).await;
        Ok(Action::Done)
    });
    let (now, most) = (Arc::clone(&reconciler.now), Arc::clone(&reconciler.most));
    let bench = Bench::start(Controller::new("test"), reconciler);
    let workers = |workers| bench.settings.send_modify(|settings| settings.workers = workers);
    for number in 0..40 {
        bench.notifier.notify(key(&number.to_string()));
    }
    sleep(Duration::from_secs(1)).await;
    assert_eq!(now.load(Ordering::SeqCst), DEFAULT_WORKERS);
    workers(8);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(now.load(Ordering::SeqCst), 8, "more at once");
    workers(1);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(now.load(Ordering::SeqCst), 8, "those at work finish");
    workers(3);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(now.load(Ordering::SeqCst), 3, "fewer afterwards");
    sleep(Duration::from_secs(1000)).await;
    assert_eq!(most.load(Ordering::SeqCst), 8, "never more than wanted");
    let mut seen = 0;
    while runs.try_recv().is_ok() {
        seen += 1;
    }
    assert_eq!(seen, 40, "each once: nothing was cancelled, nothing lost");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_or_panics_ends_the_controller_and_is_named() {
    let (reconciler, _runs) = scripted(async |_| Ok(Action::Done));
    let broken = function("feed", async |_, _| Err("closed".into()));
    let mut bench = Bench::start(Controller::new("test").source(broken), reconciler);
    let error = ReconcileError::from(bench.ended().await.expect_err("fails"));
    assert_eq!(error.to_string(), "controller test lost a source: source function feed ended: closed");

    let (reconciler, _runs) = scripted(async |_| Ok(Action::Done));
    let panics = function("counter", async |_, _| panic!("oops"));
    let mut bench = Bench::start(Controller::new("test").source(panics), reconciler);
    let error = bench.ended().await.expect_err("fails");
    assert_eq!(error.to_string(), "controller test: source function counter panicked: oops");
}

/// A source that has nothing and forgets to say so.
struct Silent;

impl Source<NamespacedName> for Silent {
    fn run(
        self: Box<Self>,
        _sink: Sink<NamespacedName>,
        _stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), SourceError>> {
        Box::pin(async { Ok(()) })
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_ends_without_having_synced_does_not_leave_its_controller_waiting() {
    let (reconciler, _runs) = scripted(async |_| Ok(Action::Done));
    let mut bench = Bench::start(Controller::new("test").source(Silent), reconciler);
    let error = ReconcileError::from(bench.ended().await.expect_err("fails"));
    let named = "source mainstay::controller::tests::Silent ended before it had synced";
    assert_eq!(error.to_string(), format!("a source of controller test never synced: {named}"));
}

/// An error whose text cannot be had.
#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("no words")
    }
}

impl std::error::Error for Unspeakable {}

#[tokio::test(start_paused = true)]
async fn an_error_that_panics_when_told_costs_no_worker() {
    let (reconciler, mut runs) = scripted(async |_| Err(Unspeakable.into()));
    let bench = Bench::start(Controller::new("test"), reconciler);
    bench.notifier.notify(key("web"));
    for attempt in 1..=2 * u32::try_from(DEFAULT_WORKERS).expect("small") {
        assert_eq!(next(&mut runs).await.1, attempt, "tried again by a worker that is still there");
    }
    bench.term.end();
    timeout(LONG, bench.term.ended()).await.expect("its work has been given back");
}

/// What a panic throws, and what panics once more when it is dropped, after this.
struct Bomb(Arc<dyn Fn() + Send + Sync>);

impl Drop for Bomb {
    fn drop(&mut self) {
        (self.0)();
        panic!("dropped");
    }
}

/// An error that throws a [`Bomb`] when it is told.
struct Armed(Arc<dyn Fn() + Send + Sync>);

impl fmt::Debug for Armed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("armed")
    }
}

impl fmt::Display for Armed {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::panic::panic_any(Bomb(Arc::clone(&self.0)))
    }
}

impl std::error::Error for Armed {}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_ends_its_controller_also_if_the_crew_is_counted_before_that_is_noticed() {
    for busy in [false, true] {
        let port: Arc<Mutex<Option<Weak<ControllerPort<NamespacedName>>>>> = Arc::default();
        let reach = Arc::clone(&port);
        // With a new source at the same moment the controller goes through its pool first.
        let meanwhile: Arc<dyn Fn() + Send + Sync> = Arc::new(move || {
            let port = reach.lock().as_ref().and_then(Weak::upgrade).expect("it lives");
            if busy {
                port.add_source(Box::new(channel().1));
            }
        });
        let (reconciler, _runs) = scripted(move |_| {
            let armed = Armed(Arc::clone(&meanwhile));
            async { Err(armed.into()) }
        });
        let mut bench = Bench::start(Controller::new("test"), reconciler);
        *port.lock() = Some(Weak::clone(&bench.port));
        bench.notifier.notify(key("web"));
        let ended = bench.ended().await;
        assert!(matches!(ended, Err(ControllerError::WorkerPanicked { .. })), "{ended:?}");
    }
}

#[test]
fn a_controller_wired_wrongly_says_what_to_call() {
    let (reconciler, _runs) = scripted(async |_| Ok(Action::Done));
    let unsourced = Controller::new("test").reconciler(reconciler);
    assert_eq!(
        unsourced.wired.err().expect("refused").to_string(),
        "no source: call reconciles(...), watches(...) or source(...)"
    );
}
