//! A cluster for unit tests of reconcilers: its API server is that of a test context, in memory.

#![expect(clippy::panic, reason = "a helper of a test fails the test by panicking")]

use std::sync::Arc;

use super::{Cluster, Shared};
use crate::cache::{Cache, CacheSettings};
use crate::client::connect::Connections;
use crate::metrics::Registry;
use crate::rbac::Declarations;
use crate::reconcile::Context;

/// The URL of an API server that does not exist; no request is sent to it.
const NOWHERE: &str = "http://127.0.0.1:1";

impl Cluster {
    /// Makes a further cluster for a unit test. Its [`context`](Cluster::context) sends writes to the API
    /// server of the test context `there`, and records Events there. Only with feature `testing`.
    ///
    /// The test makes the stores of this cluster with
    /// [`Store::from_objects`](crate::cache::Store::from_objects), because a store declared with
    /// [`Cluster::store`] never syncs here.
    ///
    /// ```
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use mainstay::cache::Store;
    /// use mainstay::key::NamespacedName;
    /// use mainstay::manager::Cluster;
    /// use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
    /// use mainstay::testing::reconcile_once;
    /// use kube::api::{Api, DeleteParams};
    ///
    /// /// Deletes a `ConfigMap` of the edge.
    /// struct Sweeper(Cluster);
    ///
    /// impl Reconciler for Sweeper {
    ///     async fn reconcile(&self, request: &NamespacedName, cx: &Context) -> Outcome {
    ///         let maps: Api<ConfigMap> = Api::namespaced(self.0.context(cx).client().clone(), "shop");
    ///         maps.delete("web", &DeleteParams::default()).await?;
    ///         Ok(Action::Done)
    ///     }
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let web = serde_json::json!({"metadata": {"name": "web", "namespace": "shop"}});
    /// let copies = Store::<ConfigMap>::from_objects([serde_json::from_value(web).unwrap()]);
    /// let (here, there) = (Context::for_test(), Context::for_test().with_store(&copies));
    /// let sweeper = Sweeper(Cluster::for_test("edge", &there));
    ///
    /// let run = reconcile_once(&sweeper, &NamespacedName::namespaced("shop", "web"), &here).await;
    /// assert_eq!(run.action(), Action::Done);
    /// assert!(run.writes.is_empty(), "nothing here");
    /// assert_eq!(there.take_writes()[0].to_string(), "delete configmaps shop/web");
    /// # }
    /// ```
    ///
    /// # Panics
    /// Panics outside a tokio runtime, as [`Context::for_test`](crate::reconcile::Context::for_test) does.
    #[must_use]
    pub fn for_test(name: &str, there: &Context) -> Self {
        let registry = Registry::new();
        let connections = Connections::new(kube::Config::new(http::Uri::from_static(NOWHERE)), &registry);
        let connections = connections.unwrap_or_else(|error| panic!("a connection to nowhere: {error}"));
        let client = there.client();
        let shared = Shared {
            name: name.into(),
            connections,
            cache: Cache::new(CacheSettings::default(), client.clone(), &registry),
            leader_client: client.clone(),
            any_client: client.clone(),
            events: there.events().clone(),
            needs: Declarations::default(),
        };
        Self { shared: Arc::new(shared) }
    }
}
