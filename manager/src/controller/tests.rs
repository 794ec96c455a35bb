//! The future of a controller, with a paused clock and sources that call `synced`.

mod limits;
mod outcomes;
mod retries;
mod series;
mod sources;
mod span;
mod standby;
mod steering;
mod switches;
mod terms;
mod wiring;
mod workers;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

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
use crate::watch::{Notifier, Sink, SourceFuture, channel, function};

impl Removal {
    /// Makes a removal that never begins.
    pub(crate) fn never() -> Self {
        Self {
            leave: CancellationToken::new(),
            grace: Arc::new(|| Duration::ZERO),
            stage: watch::Sender::default(),
        }
    }
}

/// Longer than any step of these tests; the clock is paused, so a wait for it takes no time.
const LONG: Duration = Duration::from_hours(1);

/// A controller under test, with the channels that steer it.
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

/// A reconciler that calls a function, and records the time of each call and the largest number of
/// simultaneous calls.
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
    /// Starts the controller on a replica that leads.
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
            term: term.clone(),
            directory: directory.clone(),
            metrics: ControllerMetrics::register(&registry),
            queue_metrics: QueueMetrics::register(&registry),
            stop: stop.clone(),
            removal: Removal::never(),
            observer: None,
        };
        assert!(registration.problem().is_none());
        let (future, port) = registration.open(environment);
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

    /// Returns a snapshot of every key in the controller's queue.
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
    // An ended channel means an ended controller, which starts no runs either.
    let run = timeout(within, runs.recv()).await.ok().flatten();
    assert!(run.is_none(), "no run was expected within {within:?}: {run:?}");
}

fn conflict() -> ReconcileError {
    let status = kube::core::Status::failure("the object has been modified", "Conflict").with_code(409);
    kube::Error::Api(Box::new(status)).into()
}
