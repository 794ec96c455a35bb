//! The processes under measurement, written like a program of a user.

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

/// Environment variable that makes a process a replica; its value is the name of the [`Task`].
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
/// Number of concurrent reconciles.
const WORKERS: usize = 4;
/// Duration of a reconcile, and delay until the same object is requeued. As there are more objects than
/// workers, every worker is always busy.
const WORK: Duration = Duration::from_millis(100);

/// Messages of the log. Their field `at` is the time in microseconds, by the clock that all processes share.
const BEGAN: &str = "the first reconcile began";
const ENDED: &str = "a reconcile ended";

/// The work of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Task {
    /// None: 20 controllers over 10 kinds, and no object changes.
    Idle,
    /// Reconciles every `ConfigMap` again and again, 100 ms each.
    Busy,
}

/// A running replica.
pub(crate) struct Replica {
    pub(crate) process: ManagerProcess,
    task: Task,
}

/// Reconciler that reads its object, sleeps, and writes nothing.
struct Walker {
    maps: Store<ConfigMap>,
    began: AtomicBool,
}

/// Reconciler that reads its object.
struct Reader<K>(Store<K>);

/// Returns the program of a replica if the environment makes this process one.
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
    /// Starts a replica with these changes to the shipped configuration.
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

    /// Waits until this replica leads.
    pub(crate) async fn leads(&self) {
        self.logged("became leader").await;
    }

    /// Waits until the caches have synced, the queues are filled, and the replica has read the leader from
    /// the Lease.
    pub(crate) async fn is_warm(&self) {
        self.logged("new leader").await;
        let synced = "every source has synced";
        self.process.logged_times(synced, self.task.controllers(), |line| line["msg"] == synced).await;
    }

    /// Waits for the first reconcile and returns the time of its begin.
    pub(crate) async fn began(&self) -> Timestamp {
        at(&self.logged(BEGAN).await)
    }

    /// Returns the time at which the latest finished reconcile ended.
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
        // At debug, because the log drops some lines that repeat this often at info.
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
