//! Reconciles that do not end in time, to test the shutdown order and the control thread.

use std::time::Duration;

use mainstay::controller::Controller;
use mainstay::key::NamespacedName;
use mainstay::manager::{Manager, RegisterError};
use mainstay::program::Program;
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use mainstay::watch::channel;
use mainstay_controllers::CONTROLLERS;
use parking_lot::{Condvar, Mutex};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::manager::with_shipped_sections;

/// The name of the slow controller in logs, metrics and errors.
pub const NAME: &str = "slow";

/// The environment variable with the seconds for which each reconcile blocks its thread; setting it turns the
/// binary under test into [`program`].
pub const VARIABLE: &str = "MAINSTAY_UNDER_TEST_SLOW";

/// The log message at the start of a reconcile; its field `count` is the number of reconciles begun.
pub const BEGAN: &str = "a slow reconcile began";

/// The behaviour of each reconcile of the slow controller.
#[derive(Clone, Debug)]
pub enum Task {
    /// Waits at an await until the token is cancelled, as a reconcile should.
    Wait(CancellationToken),
    /// Blocks its thread for this time, as a reconcile should not.
    Block(Duration),
}

/// Numbers of reconciles of the slow controller that have begun and that have ended.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Number of reconciles begun.
    pub began: watch::Receiver<usize>,
    /// Number of reconciles that returned; a cancelled one does not count.
    pub ended: watch::Receiver<usize>,
}

struct Slow {
    task: Task,
    began: watch::Sender<usize>,
    ended: watch::Sender<usize>,
}

// === impl Slow ===

impl Reconciler for Slow {
    async fn reconcile(&self, _request: &NamespacedName, _cx: &Context) -> Outcome {
        let mut count = 0;
        self.began.send_modify(|began| {
            *began += 1;
            count = *began;
        });
        info!(count, "{BEGAN}");
        match &self.task {
            Task::Wait(token) => token.cancelled().await,
            Task::Block(duration) => block(*duration),
        }
        self.ended.send_modify(|ended| *ended += 1);
        Ok(Action::Done)
    }
}

/// Registers the slow controller with a manager; it reconciles `keys` keys once each.
///
/// # Errors
/// Fails as [`Manager::register`] does.
pub fn register(manager: &Manager, task: Task, keys: usize) -> Result<Progress, RegisterError> {
    let (notifier, source) = channel();
    for number in 0..keys {
        notifier.notify(NamespacedName::new(None, &format!("key-{number}")));
    }
    let (began, ended) = (watch::Sender::new(0), watch::Sender::new(0));
    let progress = Progress { began: began.subscribe(), ended: ended.subscribe() };
    manager.register(Controller::new(NAME).source(source).reconciler(Slow { task, began, ended }))?;
    Ok(progress)
}

/// Returns the number of worker threads of a program's runtime: this many blocking reconciles leave none
/// free.
pub fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).max(2)
}

/// Returns a program with the slow controller alone, if the environment requests it.
pub fn program() -> Option<Program> {
    let seconds = std::env::var(VARIABLE).ok()?.parse().ok()?;
    let task = Task::Block(Duration::from_secs(seconds));
    let program = Program::new(NAME, env!("CARGO_PKG_VERSION"), "A manager that is slow on purpose");
    Some(with_shipped_sections(program).controllers(CONTROLLERS).setup(move |manager| {
        register(manager, task, threads())?;
        Ok(())
    }))
}

fn block(duration: Duration) {
    let (never, lock) = (Condvar::new(), Mutex::new(()));
    let waited = never.wait_for(&mut lock.lock(), duration);
    assert!(waited.timed_out(), "never notified");
}
