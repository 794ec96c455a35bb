//! Prints the steps of one WaitDeployment on the terminal.
//!
//! The printer is a small example of a controller: it reads two stores of the shared cache, needs no Lease,
//! and writes no object.

use std::io::Write as _;
use std::sync::Once;

use k8s_openapi::api::apps::v1::Deployment;
use mainstay::cache::{ReadError, Scope, Store};
use mainstay::controller::{Controller, Registration};
use mainstay::key::{Key as _, NamespacedName};
use mainstay::manager::Manager;
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use mainstay_api::WaitDeployment;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::conditions::is_true;
use crate::reasons::condition;

/// Prints lines on the terminal with the time since the start of the command. Cheap to clone.
#[derive(Clone)]
pub(super) struct Steps {
    began: Instant,
}

/// Prints the changes of one WaitDeployment on the terminal.
struct StepPrinter {
    steps: Steps,
    key: NamespacedName,
    objects: Store<WaitDeployment>,
    deployments: Store<Deployment>,
    last: Mutex<Snapshot>,
    /// Lets the hint about kubectl be printed only once: after a rollout the object is Ready again.
    hint: Once,
}

/// The printed part of a WaitDeployment's state: a line is printed only when it changes.
#[derive(Clone, Default, PartialEq)]
struct Snapshot {
    waiting_for: Option<String>,
    deployment: bool,
    available: i32,
    ready: bool,
}

/// Prints the error of `mainstay dev` on standard error.
pub(super) fn print_error(problem: &str) {
    // If standard error is closed, there is no other place for the error.
    drop(writeln!(std::io::stderr(), "error: {problem}"));
}

/// Returns the controller that prints the steps of the WaitDeployment `key` on the terminal.
pub(super) fn controller(manager: &Manager, steps: &Steps, key: NamespacedName) -> Registration {
    let objects = manager.store::<WaitDeployment>(Scope::all());
    let deployments = manager.store::<Deployment>(Scope::all());
    let controller =
        Controller::new("dev-steps").reconciles(&objects).owns(&deployments).runs_without_lease();
    controller.reconciler(StepPrinter {
        steps: steps.clone(),
        key,
        objects,
        deployments,
        last: Mutex::default(),
        hint: Once::new(),
    })
}

// === impl Steps ===

impl Steps {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now() }
    }

    pub(super) fn print(&self, line: &str) {
        let seconds = self.began.elapsed().as_secs_f64();
        // A closed standard output does not stop the command.
        drop(writeln!(std::io::stdout(), "[{seconds:6.1} s] {line}"));
    }
}

// === impl StepPrinter ===

impl Reconciler for StepPrinter {
    async fn reconcile(&self, request: &NamespacedName, _cx: &Context) -> Outcome {
        if *request != self.key {
            return Ok(Action::Done);
        }
        let now = self.snapshot()?;
        let before = std::mem::replace(&mut *self.last.lock(), now.clone());
        self.print_changes(&before, &now);
        Ok(Action::Done)
    }
}

impl StepPrinter {
    fn snapshot(&self) -> Result<Snapshot, ReadError> {
        let object = self.objects.get(&self.key)?.unwrap_or_default();
        let status = object.status.clone().unwrap_or_default();
        Ok(Snapshot {
            waiting_for: status.waiting_for.filter(|text| !text.is_empty()),
            deployment: self.deployments.get(&self.key)?.is_some(),
            available: status.available_replicas.unwrap_or_default(),
            ready: is_true(object.condition(condition::READY)),
        })
    }

    fn print_changes(&self, before: &Snapshot, now: &Snapshot) {
        let (name, steps) = (&self.key, &self.steps);
        if now.waiting_for != before.waiting_for
            && let Some(waiting_for) = &now.waiting_for
        {
            steps.print(&format!("{name} waits for {waiting_for}; there is no Deployment"));
        }
        if now.deployment && !before.deployment {
            steps.print(&format!("{name}: the Deployment was created"));
        }
        if now.available != before.available {
            steps.print(&format!("{name}: available replicas: {}", now.available));
        }
        if now.ready && !before.ready {
            steps.print(&format!("{name} is Ready"));
            self.hint.call_once(|| {
                steps.print("inspect it with these commands, or press Ctrl-C to stop everything:");
                steps.print("    kubectl get waitdeployments,deployments,pods");
                steps.print(&format!("    kubectl describe waitdeployment {}", name.name()));
            });
        }
    }
}
