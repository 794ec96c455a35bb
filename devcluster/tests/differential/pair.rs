//! The two servers.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use mainstay_devcluster::api::User;
use mainstay_devcluster::workloads::Controller;
use mainstay_devcluster::{ControlPlane, Embedded, EmbeddedOptions, Options};
use serde_json::Value;

use super::hooks::{Hooks, Identity};
use super::side::{self, Side};
use super::{print, run, script};

/// An embedded and a real server with the shared definitions.
pub(crate) struct Pair {
    embedded_server: Embedded,
    real_server: ControlPlane,
    pub(crate) embedded: Client,
    pub(crate) real: Client,
    /// Whether controllers run on both sides. Then only the outcome is compared.
    pub(crate) controllers: bool,
    /// The webhooks that each server calls.
    embedded_hooks: Arc<Hooks>,
    real_hooks: Arc<Hooks>,
}

// === impl Pair ===

impl Pair {
    /// Starts both, with or without controllers; returns None as [`real`] does.
    pub(crate) async fn start(controllers: bool) -> Option<Self> {
        let real_server = real(Options { bare: !controllers, ..Options::default() }).await?;
        let mut options = EmbeddedOptions::default();
        if controllers {
            options.controllers = Controller::ALL.into();
        }
        let embedded_server = Embedded::start_with(options).await.expect("the embedded server starts");
        let service = embedded_server.service().as_user(User::admin());
        let identity = Identity::generate();
        let pair = Self {
            embedded: Client::new(service, "default"),
            real: real_client(&real_server).await,
            controllers,
            embedded_server,
            real_server,
            embedded_hooks: Hooks::start(&identity).await,
            real_hooks: Hooks::start(&identity).await,
        };
        if !controllers {
            pair.define().await;
        }
        Some(pair)
    }

    /// Creates the shared definitions. The real server takes creates of their objects at once only two
    /// seconds after they are established.
    async fn define(&self) {
        let [setup] = script::parse(include_str!("scenarios/shared.txt")).try_into().expect("one scenario");
        let found = run::differences(self, &setup, "default").await;
        assert!(found.iter().all(|it| !it.path.ends_with(".status")), "definitions differ: {found:?}");
        tokio::time::sleep(Duration::from_millis(2_200)).await;
    }

    /// Creates a namespace on both.
    pub(crate) async fn namespace(&self, name: &str) {
        let body = serde_json::json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        for client in [&self.embedded, &self.real] {
            let created: (u16, Value) = side::post(client, "/api/v1/namespaces", &body).await;
            assert_eq!(created.0, 201, "a namespace is created: {}", created.1);
        }
    }

    /// Returns both sides of a run.
    pub(crate) fn sides(&self, namespace: &str) -> (Side, Side) {
        let side = |client: &Client, hooks| Side::new(client.clone(), namespace, Arc::clone(hooks));
        (side(&self.embedded, &self.embedded_hooks), side(&self.real, &self.real_hooks))
    }

    /// Stops both.
    pub(crate) async fn stop(self) {
        drop((self.embedded, self.real));
        self.embedded_server.stop().await;
        self.real_server.stop().await;
    }
}

/// Starts the real programs; returns None after a notice if this machine lacks them. In CI that is a failure.
pub(crate) async fn real(options: Options) -> Option<ControlPlane> {
    match ControlPlane::start(options).await {
        Ok(server) => Some(server),
        Err(error) => {
            let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
            assert!(error.is_unavailable() && !ci, "{error}: {error:?}");
            print(&format!("skipped: {error}"));
            None
        }
    }
}

/// Returns the settings of a client with the administrator's certificate.
pub(crate) async fn config(kubeconfig: &Path) -> Config {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.expect("a complete kubeconfig")
}

/// Returns a client of the real server that reports every answer.
pub(crate) async fn real_client(server: &ControlPlane) -> Client {
    let mut config = config(server.kubeconfig_path()).await;
    // An answer that asks for a retry is an answer to compare.
    config.default_retry = false;
    Client::try_from(config).expect("a client")
}
