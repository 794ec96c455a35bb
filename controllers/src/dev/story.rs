//! The narrator: a controller of its own that tells what becomes of one WaitDeployment.
//!
//! It is also the smallest example of one: it reads two stores of the shared cache, needs no Lease, and writes nothing
//! but lines on a terminal.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::apps::v1::Deployment;
use mainstay::cache::{Scope, Store};
use mainstay::controller::{Controller, Registration};
use mainstay::key::{Key as _, NamespacedName};
use mainstay::manager::Manager;
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use mainstay_api::WaitDeployment;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Tells lines with the time since the beginning. Cheap to clone.
#[derive(Clone)]
pub(super) struct Story {
    began: Instant,
}

/// Tells what changed about one object.
struct Narrator {
    story: Story,
    key: NamespacedName,
    objects: Store<WaitDeployment>,
    deployments: Store<Deployment>,
    last: Mutex<Scene>,
    /// Whether the user was told where to look. Relaxed: it guards nothing but a line.
    hinted: AtomicBool,
}

/// What the narrator tells about: as long as it stays the same, there is nothing to tell.
#[derive(Clone, Default, PartialEq)]
struct Scene {
    waiting_for: Option<String>,
    deployment: bool,
    available: i32,
    ready: bool,
}

/// Says on standard error why the command failed.
pub(super) fn complain(problem: &str) {
    // Nothing can be told if standard error is closed.
    drop(writeln!(std::io::stderr(), "error: {problem}"));
}

/// Wires the narrator.
pub(super) fn controller(manager: &Manager, story: &Story, key: NamespacedName) -> Registration {
    let objects = manager.store::<WaitDeployment>(Scope::all());
    let deployments = manager.store::<Deployment>(Scope::all());
    let controller =
        Controller::new("dev-story").reconciles(&objects).owns(&deployments).runs_without_lease();
    let last = Mutex::default();
    controller.reconciler(Narrator {
        story: story.clone(),
        key,
        objects,
        deployments,
        last,
        hinted: AtomicBool::new(false),
    })
}

// === impl Story ===

impl Story {
    pub(super) fn begin() -> Self {
        Self { began: Instant::now() }
    }

    pub(super) fn say(&self, line: &str) {
        let seconds = self.began.elapsed().as_secs_f64();
        // A reader that has gone away has heard enough.
        drop(writeln!(std::io::stdout(), "[{seconds:6.1} s] {line}"));
    }
}

// === impl Narrator ===

impl Reconciler for Narrator {
    async fn reconcile(&self, request: &NamespacedName, _cx: &Context) -> Outcome {
        if *request != self.key {
            return Ok(Action::Done);
        }
        let scene = self.look()?;
        let before = std::mem::replace(&mut *self.last.lock(), scene.clone());
        self.tell(&before, &scene);
        Ok(Action::Done)
    }
}

impl Narrator {
    fn look(&self) -> Result<Scene, mainstay::cache::ReadError> {
        let object = self.objects.get(&self.key)?;
        let status = object.as_deref().and_then(|object| object.status.clone()).unwrap_or_default();
        let ready = |object: &Arc<WaitDeployment>| {
            object.condition("Ready").is_some_and(|ready| ready.status == "True")
        };
        Ok(Scene {
            waiting_for: status.waiting_for.filter(|text| !text.is_empty()),
            deployment: self.deployments.get(&self.key)?.is_some(),
            available: status.available_replicas.unwrap_or_default(),
            ready: object.as_ref().is_some_and(ready),
        })
    }

    fn tell(&self, before: &Scene, now: &Scene) {
        let name = &self.key;
        if now.waiting_for != before.waiting_for
            && let Some(waiting_for) = &now.waiting_for
        {
            self.story.say(&format!("{name} waits for {waiting_for}; there is no Deployment"));
        }
        if now.deployment && !before.deployment {
            self.story.say(&format!("{name}: the Deployment was created"));
        }
        if now.available != before.available {
            self.story.say(&format!("{name}: available replicas: {}", now.available));
        }
        if now.ready && !before.ready {
            self.story.say(&format!("{name} is Ready"));
            // Once: a rollout makes it Ready again, and the hint is known by then.
            if !self.hinted.swap(true, Ordering::Relaxed) {
                self.story.say("have a look, or press Ctrl-C to stop everything:");
                self.story.say("    kubectl get waitdeployments,deployments,pods");
                self.story.say(&format!("    kubectl describe waitdeployment {}", name.name()));
            }
        }
    }
}
