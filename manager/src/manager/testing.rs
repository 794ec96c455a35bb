//! A manager for tests on a cluster.

use std::ops::Deref;
use std::sync::Arc;

use tokio::task::JoinSet;

use super::{Manager, ManagerError, ManagerOptions};
use crate::client::connect::RequestGuard;
use crate::config::{ConfigSchema, Overrides};
use crate::reconcile::BoxError;

/// The configuration of a manager in a test: it leads without an election and opens no ports, so that many
/// managers run in one process.
const CONFIGURATION: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n\
    leaderElection: {enabled: false}\nhealth: {bindAddress: \"\"}\nmetrics: {bindAddress: \"\"}\n\
    inspect: {bindAddress: \"\"}\n";

/// A manager that runs in the background of a test. Made by [`Manager::for_test`]; lends itself as
/// `&Manager`. Dropping it aborts it, [`RunningManager::stop`] stops it in order.
#[derive(derive_more::Debug)]
#[debug("RunningManager {{ .. }}")]
pub struct RunningManager {
    manager: Manager,
    run: JoinSet<Result<(), ManagerError>>,
}

impl Manager {
    /// Starts a manager for a test on a cluster: `setup` registers the controllers, as in
    /// [`Program::setup`](crate::program::Program::setup), and the manager runs in the background. It leads
    /// without an election and opens no ports. Only with feature `testing`.
    ///
    /// ```no_run
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use kube::api::{Api, ListParams};
    /// use std::time::Duration;
    ///
    /// use mainstay::prelude::*;
    /// use mainstay::testing::{Condition, eventually};
    ///
    /// # async fn test(
    /// #     connection: kube::Config, setup: fn(&Manager) -> Result<(), BoxError>,
    /// #     maps: Api<ConfigMap>, deployments: Api<Deployment>,
    /// # ) -> Result<(), BoxError> {
    /// let manager = Manager::for_test(connection, setup)?;
    /// Condition::is_true("Available").wait(&deployments, "web").await?;
    /// Condition::deleted().within(Duration::from_secs(5)).wait(&maps, "old").await?;
    /// eventually(Duration::from_secs(10), async || {
    ///     let found = maps.list(&ListParams::default()).await.map_err(|error| error.to_string())?;
    ///     if found.items.len() == 3 { Ok(()) } else { Err(format!("{} ConfigMaps", found.items.len())) }
    /// })
    /// .await?;
    /// manager.stop().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Manager::new`] and of `setup`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn for_test(
        connection: kube::Config,
        setup: impl FnOnce(&Self) -> Result<(), BoxError>,
    ) -> Result<RunningManager, BoxError> {
        Self::for_test_of(&ConfigSchema::new(), connection, setup)
    }

    /// Starts a manager as [`for_test`](Self::for_test) does, for a program with sections in its
    /// configuration file: `schema` is that of [`Program::schema`](crate::program::Program::schema). All
    /// sections have their defaults.
    ///
    /// # Errors
    /// As [`for_test`](Self::for_test).
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn for_test_of(
        schema: &ConfigSchema,
        connection: kube::Config,
        setup: impl FnOnce(&Self) -> Result<(), BoxError>,
    ) -> Result<RunningManager, BoxError> {
        Self::start_in(&[], schema, connection, setup)
    }

    /// Starts a manager for a test that serves only these namespaces; all if there are none.
    pub(crate) fn start_in(
        namespaces: &[String],
        schema: &ConfigSchema,
        connection: kube::Config,
        setup: impl FnOnce(&Self) -> Result<(), BoxError>,
    ) -> Result<RunningManager, BoxError> {
        let mut loaded = schema.parse(CONFIGURATION, "test", &Overrides::default())?;
        loaded.configuration.cache.namespaces = namespaces.to_vec();
        let options = ManagerOptions { signals: false, preflight: false, ..ManagerOptions::replica("test") };
        let manager = Self::new(options, loaded, connection)?;
        setup(&manager)?;
        let running = manager.clone();
        let run = JoinSet::from_iter([async move { running.run().await }]);
        Ok(RunningManager { manager, run })
    }
}

impl Manager {
    /// Asks the guard about each request to the manager's own cluster from now on; `None` for no guard.
    pub(crate) fn guard(&self, guard: Option<Arc<dyn RequestGuard>>) {
        self.connections().guard(guard);
    }
}

// === impl RunningManager ===

impl RunningManager {
    /// Stops the manager of the test in order, and waits for its end.
    ///
    /// # Errors
    /// The error that the manager ended with.
    pub async fn stop(mut self) -> Result<(), BoxError> {
        self.manager.stop();
        while let Some(ended) = self.run.join_next().await {
            ended??;
        }
        Ok(())
    }
}

impl Deref for RunningManager {
    type Target = Manager;

    fn deref(&self) -> &Manager {
        &self.manager
    }
}
