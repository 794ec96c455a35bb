//! A reconciler that reports each run to a test, and runs the test's code.
//!
//! To show that an event does not wake a key, a test adds another key later: with one worker, a key woken by
//! mistake would run before it. So the test changes a second object, and reads the runs up to that object's
//! run.

use mainstay::key::{Key as _, NamespacedName};
use mainstay::reconcile::{Context, Outcome, Reconciler};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::wait::PATIENCE;

/// One run of the witness reconciler, sent to the test when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The name of the object that is reconciled.
    pub name: String,
    /// The number of the attempt to reconcile the object, from 1.
    pub attempt: u32,
    /// The cause of the run, as logs show it.
    pub cause: String,
}

/// A reconciler that reports each run to a test. Made by [`witness`].
#[derive(Debug)]
pub struct Witness<F> {
    sender: mpsc::UnboundedSender<Run>,
    act: F,
}

/// The runs of one [`Witness`], in the order in which they began.
#[derive(Debug)]
pub struct Runs {
    receiver: mpsc::UnboundedReceiver<Run>,
}

/// Makes a reconciler that reports its runs and calls `act` in each, and the receiver of these runs.
pub fn witness<F, R>(act: F) -> (Witness<F>, Runs)
where
    F: Fn(NamespacedName, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send,
{
    // Unbounded: a test has tens of runs.
    let (sender, runs) = mpsc::unbounded_channel();
    (Witness { sender, act }, Runs { receiver: runs })
}

// === impl Witness ===

impl<F, R> Reconciler for Witness<F>
where
    F: Fn(NamespacedName, Context) -> R + Send + Sync + 'static,
    R: Future<Output = Outcome> + Send,
{
    async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
        let (name, cause) = (request.name().to_owned(), cx.cause().to_string());
        // Fails once the test has dropped its receiver.
        drop(self.sender.send(Run { name, attempt: cx.attempt(), cause }));
        (self.act)(request.clone(), cx.clone()).await
    }
}

// === impl Runs ===

impl Runs {
    /// Waits for the next run of the reconciler, and returns it.
    pub async fn next(&mut self) -> Run {
        match timeout(PATIENCE, self.receiver.recv()).await {
            Ok(Some(run)) => run,
            Ok(None) => panic!("the controller is gone, no run will follow"),
            Err(elapsed) => panic!("waited {PATIENCE:?} for a run: {elapsed}"),
        }
    }

    /// Waits for the next run for the object of this name, and returns the names of the objects of the runs
    /// before it.
    pub async fn before(&mut self, name: &str) -> Vec<String> {
        let mut before = Vec::new();
        loop {
            match self.next().await.name {
                it if it == name => return before,
                other => before.push(other),
            }
        }
    }

    /// Waits until the reconciler is dropped, and returns the names of the objects of the runs until then.
    pub async fn to_the_end(mut self) -> Vec<String> {
        let mut rest = Vec::new();
        let all = async {
            while let Some(run) = self.receiver.recv().await {
                rest.push(run.name);
            }
        };
        let ended = timeout(PATIENCE, all).await.is_ok();
        assert!(ended, "waited {PATIENCE:?} for the reconciler to be dropped; ran meanwhile: {rest:?}");
        rest
    }
}
