//! A manager for one part of the example: without a Lease, and with only the `/debug` pages, on a free
//! loopback port.

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{Api, ObjectMeta, PostParams};
use mainstay::cache::{Scope, Store};
use mainstay::config::{ConfigSchema, Overrides};
use mainstay::controller::Controller;
use mainstay::manager::{Manager, ManagerError, ManagerOptions};
use mainstay::reconcile::Reconciler;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The label of all objects here; the cache holds no others.
pub(crate) const LABEL: &str = "retry-storm";

/// A manager with one controller over the labelled `ConfigMap`s of one namespace.
pub(crate) struct Site {
    manager: Manager,
    name: &'static str,
    running: JoinSet<Result<(), ManagerError>>,
}

// === impl Site ===

impl Site {
    /// Starts the controller `name` with these settings; `make` gets the store and returns the reconciler.
    pub(crate) fn start<R: Reconciler>(
        connection: &kube::Config,
        namespace: &str,
        name: &'static str,
        settings: &Value,
        make: impl FnOnce(Store<ConfigMap>) -> R,
    ) -> anyhow::Result<Self> {
        let configuration = json!({
            "apiVersion": "config.mainstay.dev/v1alpha1",
            "kind": "ManagerConfiguration",
            "leaderElection": {"enabled": false},
            "health": {"bindAddress": ""},
            "metrics": {"bindAddress": ""},
            "inspect": {"bindAddress": "127.0.0.1:0"},
            "controllers": {name: settings},
        });
        let schema = ConfigSchema::new().controllers([name]);
        let configuration = schema.parse(&configuration.to_string(), name, &Overrides::default())?;
        let options = ManagerOptions { signals: false, ..ManagerOptions::replica("retry-storm") };
        let manager = Manager::new(options, configuration, connection.clone())?;
        let maps = manager.store::<ConfigMap>(Scope::namespace(namespace).labels(LABEL.parse()?));
        let controller = Controller::new(name).reconciles(&maps);
        manager.register(controller.reconciler(make(maps)))?;
        let mut running = JoinSet::new();
        let to_run = manager.clone();
        running.spawn(async move { to_run.run().await });
        Ok(Self { manager, name, running })
    }

    /// Returns the URL of the queue's debug page.
    pub(crate) fn queue_url(&self) -> Option<String> {
        let address = self.manager.inspect_addr()?;
        Some(format!("http://{address}/debug/controllers/{}/queue", self.name))
    }

    /// Awaits `work` while the manager runs; fails if the manager ends before.
    pub(crate) async fn meanwhile<T>(
        &mut self,
        work: impl Future<Output = anyhow::Result<T>>,
    ) -> anyhow::Result<T> {
        // Biased: without a manager the work would wait for ever.
        tokio::select! {
            biased;
            ended = self.running.join_next() => {
                ended.context("no manager")???;
                anyhow::bail!("the manager ended early")
            }
            result = work => result,
        }
    }

    /// Stops the manager gracefully.
    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        self.manager.stop();
        Ok(self.running.join_next().await.context("no manager")???)
    }
}

/// Creates a namespace.
pub(crate) async fn create_namespace(client: &kube::Client, name: &str) -> anyhow::Result<()> {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let namespace = Namespace { metadata, ..Namespace::default() };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
    Ok(())
}

/// Creates a labelled `ConfigMap`.
pub(crate) async fn create_map(maps: &Api<ConfigMap>, name: &str) -> anyhow::Result<()> {
    let labels = [(LABEL.to_owned(), String::new())].into();
    let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
    let map = ConfigMap { metadata, ..ConfigMap::default() };
    maps.create(&PostParams::default(), &map).await?;
    Ok(())
}
