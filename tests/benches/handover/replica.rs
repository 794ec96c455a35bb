//! The processes under measurement: programs as a user writes them.

use std::env;
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service, ServiceAccount};
use kube::core::{NamespaceResourceScope, Resource};
use mainstay::cache::{Scope, Store};
use mainstay::controller::Controller;
use mainstay::key::NamespacedName;
use mainstay::manager::{Manager, RegisterError};
use mainstay::program::Program;
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use mainstay_controllers::CONTROLLERS;
use mainstay_tests::cluster::TestCluster;
use mainstay_tests::manager::with_shipped_sections;
use mainstay_tests::manifests::Identity;
use mainstay_tests::process::ManagerProcess;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::sleep;
use tracing::{debug, info};

/// Says to a process which replica it is.
const VARIABLE: &str = "MAINSTAY_HANDOVER_REPLICA";

/// The controllers of [`Task::Idle`], two for each kind.
const IDLE: [[&str; 2]; 10] = [
    ["configmap", "configmap-too"],
    ["cronjob", "cronjob-too"],
    ["daemonset", "daemonset-too"],
    ["deployment", "deployment-too"],
    ["job", "job-too"],
    ["pod", "pod-too"],
    ["replicaset", "replicaset-too"],
    ["service", "service-too"],
    ["serviceaccount", "serviceaccount-too"],
    ["statefulset", "statefulset-too"],
];

/// The controller of [`Task::Busy`].
const BUSY: &str = "busy";
/// Reconciles at the same time.
const WORKERS: usize = 4;
/// How long each takes, and how long after it the same object is due again: with more objects than workers, each worker is
/// at one at any moment.
const WORK: Duration = Duration::from_millis(100);

/// What the log says, with the time by the clock that all processes read, in microseconds as `at`.
const BEGAN: &str = "the first reconcile began";
const ENDED: &str = "a reconcile ended";

/// What a replica has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// Nothing: 20 controllers over 10 kinds that nobody changes.
    Idle,
    /// To go through every `ConfigMap` again and again, 100 ms each.
    Busy,
}

/// A running replica.
pub(crate) struct Replica {
    pub(crate) process: ManagerProcess,
    task: Task,
}

/// Reads its object, waits, and writes nothing.
struct Walker {
    maps: Store<ConfigMap>,
    began: AtomicBool,
}

/// Reads its object.
struct Reader<K>(Store<K>);

/// Returns the program of a replica if the environment says that this process is one.
pub(crate) fn program() -> Option<Program> {
    let task = env::var(VARIABLE).ok()?;
    let names = CONTROLLERS.into_iter().chain(IDLE.into_iter().flatten()).chain([BUSY]);
    let program = Program::new("handover", env!("CARGO_PKG_VERSION"), "A replica under measurement");
    let program = with_shipped_sections(program).controllers(names);
    Some(if task == Task::Idle.name() {
        program.setup(|manager| Ok(register_idle(manager)?))
    } else {
        program.setup(|manager| {
            let maps = manager.store::<ConfigMap>(Scope::all());
            let controller = Controller::new(BUSY).reconciles(&maps).workers(WORKERS);
            manager.register(controller.reconciler(Walker { maps, began: AtomicBool::new(false) }))?;
            Ok(())
        })
    })
}

fn register_idle(manager: &Manager) -> Result<(), RegisterError> {
    let [maps, crons, daemons, deployments, jobs, pods, replicas, services, accounts, sets] = IDLE;
    register::<ConfigMap>(manager, maps)?;
    register::<CronJob>(manager, crons)?;
    register::<DaemonSet>(manager, daemons)?;
    register::<Deployment>(manager, deployments)?;
    register::<Job>(manager, jobs)?;
    register::<Pod>(manager, pods)?;
    register::<ReplicaSet>(manager, replicas)?;
    register::<Service>(manager, services)?;
    register::<ServiceAccount>(manager, accounts)?;
    register::<StatefulSet>(manager, sets)
}

fn register<K>(manager: &Manager, names: [&'static str; 2]) -> Result<(), RegisterError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    K: Debug + DeserializeOwned + Send + Sync + 'static,
{
    let store = manager.store::<K>(Scope::all());
    for name in names {
        manager.register(Controller::new(name).reconciles(&store).reconciler(Reader(store.clone())))?;
    }
    Ok(())
}

fn now() -> i64 {
    Timestamp::now().as_microsecond()
}

// === impl Task ===

impl Task {
    fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Busy => BUSY,
        }
    }

    fn controllers(self) -> usize {
        match self {
            Self::Idle => IDLE.as_flattened().len(),
            Self::Busy => 1,
        }
    }
}

// === impl Replica ===

impl Replica {
    /// Starts one with these changes to the configuration that we ship.
    pub(crate) fn start(
        cluster: &TestCluster,
        task: Task,
        name: &str,
        changes: &Value,
    ) -> anyhow::Result<Self> {
        let program = env::current_exe()?;
        let identity =
            Identity { service_account: String::new(), kubeconfig: cluster.kubeconfig_path().to_owned() };
        let environment = [(VARIABLE, task.name())];
        let program = program.to_string_lossy();
        let process = ManagerProcess::start_with(&program, cluster, &identity, name, changes, &environment);
        Ok(Self { process, task })
    }

    /// Waits until it leads.
    pub(crate) async fn leads(&self) {
        self.logged("became leader").await;
    }

    /// Waits until its caches and queues are full and it knows who leads, itself or another one.
    pub(crate) async fn is_warm(&self) {
        self.logged("new leader").await;
        let synced = "every source has synced";
        self.process.logged_times(synced, self.task.controllers(), |line| line["msg"] == synced).await;
    }

    /// Waits for its first reconcile and returns when that began.
    pub(crate) async fn began(&self) -> Timestamp {
        at(&self.logged(BEGAN).await)
    }

    /// Returns when its last reconcile ended so far.
    pub(crate) fn ended(&self) -> Option<Timestamp> {
        self.process.log().iter().filter(|line| line["msg"] == ENDED).map(at).max()
    }

    async fn logged(&self, message: &str) -> Value {
        self.process.logged(message, |line| line["msg"] == message).await
    }
}

fn at(line: &Value) -> Timestamp {
    let at = line["at"].as_i64().unwrap_or_default();
    Timestamp::from_microsecond(at).unwrap_or_default()
}

// === the reconcilers ===

impl Reconciler for Walker {
    async fn reconcile(&self, request: &NamespacedName, _: &Context) -> Outcome {
        if !self.began.swap(true, Ordering::Relaxed) {
            info!(at = now(), "{BEGAN}");
        }
        self.maps.get(request)?;
        sleep(WORK).await;
        // Not info: of a line that comes this often some would be left out.
        debug!(at = now(), "{ENDED}");
        Ok(Action::RequeueAfter(WORK))
    }
}

impl<K> Reconciler for Reader<K>
where
    K: Resource<DynamicType = ()> + Debug + DeserializeOwned + Send + Sync + 'static,
{
    async fn reconcile(&self, request: &NamespacedName, _: &Context) -> Outcome {
        self.0.get(request)?;
        Ok(Action::Done)
    }
}
