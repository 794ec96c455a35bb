//! A manager in the test's own process, with the shipped rights and configuration.

use std::net::SocketAddr;

use mainstay::client::infer;
use mainstay::config::Overrides;
use mainstay::manager::{Manager, ManagerError, ManagerOptions};
use mainstay::program::Program;
use mainstay_controllers::settings::{PROBE_POLICY, ProbePolicy, WAIT_DEPLOYMENT, WaitDeploymentSettings};
use mainstay_controllers::{Sockets, config_schema};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::cluster::TestCluster;
use crate::dial::Loopback;
use crate::fixtures::lay_over;
use crate::manifests::{Identity, documents_of_base};
use crate::process::{get, is_leading};
use crate::wait::until_so;

/// A running manager with the built-in controllers, for the namespace of one test.
///
/// Dropping it aborts the manager, and fails the test if a probe tried to leave loopback, unless
/// [`LocalManager::start_unleashed`] allows that; [`LocalManager::stop`] stops it in order first.
pub struct LocalManager {
    /// The handle of the manager.
    pub manager: Manager,
    running: JoinSet<Result<(), ManagerError>>,
    _loopback: Option<Loopback>,
}

/// Adds the sections of the shipped configuration to a program, so that it accepts that file.
pub fn with_shipped_sections(program: Program) -> Program {
    program.section::<ProbePolicy>(PROBE_POLICY).section::<WaitDeploymentSettings>(WAIT_DEPLOYMENT)
}

/// Returns the shipped configuration of the manager, with the settings of all tests and then `changes` laid
/// over it.
pub fn configuration_of(cluster: &TestCluster, changes: &Value) -> Value {
    let documents = documents_of_base();
    let shipped = documents.iter().find(|document| document["kind"] == "ConfigMap");
    let shipped = shipped.and_then(|map| map["data"]["manager.yaml"].as_str());
    let Some(shipped) = shipped else { panic!("deploy/base ships no configuration") };
    let mut configuration: Value =
        serde_saphyr::from_str(shipped).unwrap_or_else(|error| panic!("deploy/base: {error}"));
    let for_tests = json!({
        // The shipped roles allow no other one, whatever the name of the program.
        "leaderElection": {"leaseName": "mainstay", "namespace": cluster.namespace()},
        "health": {"bindAddress": "127.0.0.1:0"},
        "metrics": {"bindAddress": "127.0.0.1:0"},
        "inspect": {"bindAddress": ""},
        "cache": {"namespaces": [cluster.namespace()]},
        "shutdown": {"gracePeriod": "10s"},
        "probePolicy": {"mode": "Any", "allowLoopback": true, "minPeriod": "1s"},
    });
    lay_over(&mut configuration, &for_tests);
    lay_over(&mut configuration, changes);
    configuration
}

// === impl LocalManager ===

impl LocalManager {
    /// Starts a manager with the rights of this identity, with the shipped configuration and these changes
    /// laid over it.
    pub async fn start(cluster: &TestCluster, identity: &Identity, changes: &Value) -> Self {
        Self::start_with(cluster, identity, changes, |_| {}).await
    }

    /// Starts a manager as [`LocalManager::start`] does; `more` is called before the manager runs, to
    /// register more with it.
    pub async fn start_with(
        cluster: &TestCluster,
        identity: &Identity,
        changes: &Value,
        more: impl FnOnce(&Manager),
    ) -> Self {
        let options = ManagerOptions { signals: false, ..ManagerOptions::replica("mainstay") };
        Self::start_as(options, cluster, identity, changes, more).await
    }

    /// Starts a manager as [`LocalManager::start`] does, with probes of every address that the policy allows:
    /// for a [network](crate::network::Network) of the test's own.
    pub async fn start_unleashed(cluster: &TestCluster, identity: &Identity, changes: &Value) -> Self {
        let options = ManagerOptions { signals: false, ..ManagerOptions::replica("mainstay") };
        Self::begin(options, cluster, identity, changes, None, |_| {}).await
    }

    /// Starts a manager as [`LocalManager::start_with`] does, with other options.
    pub async fn start_as(
        options: ManagerOptions,
        cluster: &TestCluster,
        identity: &Identity,
        changes: &Value,
        more: impl FnOnce(&Manager),
    ) -> Self {
        Self::begin(options, cluster, identity, changes, Some(Loopback::new()), more).await
    }

    async fn begin(
        options: ManagerOptions,
        cluster: &TestCluster,
        identity: &Identity,
        changes: &Value,
        loopback: Option<Loopback>,
        more: impl FnOnce(&Manager),
    ) -> Self {
        let text = configuration_of(cluster, changes).to_string();
        let configuration = config_schema().parse(&text, "test", &Overrides::default());
        let configuration = configuration.unwrap_or_else(|error| panic!("{}", error.lines().join("\n")));
        let connection = infer(Some(&identity.kubeconfig), None).await;
        let connection = connection.unwrap_or_else(|error| panic!("no connection: {error}"));
        let manager = Manager::new(options, configuration, connection);
        let manager = manager.unwrap_or_else(|error| panic!("no manager: {:#}", anyhow::Error::from(error)));
        let sockets = loopback.as_ref().map_or_else(Sockets::default, |loopback| loopback.dial().into());
        if let Err(error) = mainstay_controllers::register(&manager, sockets) {
            panic!("the controllers cannot be registered: {error}");
        }
        more(&manager);
        let mut running = JoinSet::new();
        let to_run = manager.clone();
        running.spawn(async move { to_run.run().await });
        Self { manager, running, _loopback: loopback }
    }

    /// Returns the address of the manager's server for health probes.
    pub fn probes(&self) -> SocketAddr {
        self.manager.probes_addr().unwrap_or_else(|| panic!("probes are served under test"))
    }

    /// Returns the address of the manager's metrics server.
    pub fn metrics(&self) -> SocketAddr {
        self.manager.metrics_addr().unwrap_or_else(|| panic!("metrics are served under test"))
    }

    /// Returns the metrics that the manager serves now, as text.
    pub async fn metrics_text(&self) -> String {
        get(self.metrics(), "/metrics").await.1
    }

    /// Waits until this manager is the leader, by its metrics.
    pub async fn leads(&self) {
        until_so("this replica to lead", async || is_leading(&self.metrics_text().await)).await;
    }

    /// Stops the manager in order and returns its result.
    pub async fn stop(mut self) -> Result<(), ManagerError> {
        self.manager.stop();
        self.stopped().await
    }

    /// Waits until the manager has stopped and returns its result.
    pub async fn stopped(&mut self) -> Result<(), ManagerError> {
        let ended = self.running.join_next().await;
        match ended {
            Some(Ok(result)) => result,
            other => panic!("the manager's task was lost: {other:?}"),
        }
    }
}

impl std::fmt::Debug for LocalManager {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalManager").field("manager", &self.manager).finish_non_exhaustive()
    }
}
