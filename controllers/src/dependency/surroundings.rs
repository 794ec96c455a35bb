//! The cluster around the manager, as probes have to know it: who owns an address, which namespaces are restricted, and
//! which authorities a `ConfigMap` lists.
//!
//! Namespaces and `ConfigMaps` are read one by one when they are asked for, and remembered for a while: watching all of
//! them would need the right to read all, and memory for all, for the sake of a few.
//!
//! # Invariants
//! 1. Of one namespace or key at most one request is made in `FRESH`, or in `UNANSWERED` after a failure, unless more are
//!    asked for than are remembered.
//! 2. What is remembered is bounded in number and size.

mod api_server;
mod own;
mod remembered;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use mainstay::client::live;
use mainstay::key::{KindId, NamespacedName};
use mainstay::reconcile::Context;
use mainstay_api::wait_for::ConfigMapKey;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::dependency::probe::{Authorities, NoAuthorities, Owner, Surroundings, authorities};
use api_server::ApiServer;
use own::OwnAddresses;
use remembered::Remembered;

/// How long what was read counts: a certificate authority or a Pod Security level changes rarely, and a minute later is
/// no harm.
const FRESH: Duration = Duration::from_secs(30);
/// How long nothing is asked again after a failure.
const UNANSWERED: Duration = Duration::from_secs(5);
/// How long probes wait at the begin of a term for a look at the addresses of the API server, before those that need them
/// fail instead.
const FIRST_LOOK: Duration = Duration::from_secs(5);
/// Most namespaces that are remembered.
const MAX_NAMESPACES: usize = 1000;
/// Most keys of `ConfigMaps` that are remembered.
const MAX_KEYS: usize = 64;
/// Says which Pod Security level a namespace enforces.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Reads the cluster that the manager is in.
#[derive(Debug)]
pub struct ClusterSurroundings {
    api_server: ApiServer,
    own: OwnAddresses,
    /// What is read with; none before the manager runs.
    context: Mutex<Option<Context>>,
    restricted: Remembered<(), Result<bool, String>>,
    /// By `ConfigMap` and key.
    authorities: Remembered<(String, String), Authorities>,
}

#[derive(Debug, Deserialize)]
struct NamespaceView {
    metadata: MetadataView,
}

#[derive(Debug, Deserialize)]
struct MetadataView {
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct ConfigMapView {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

// === impl ClusterSurroundings ===

impl ClusterSurroundings {
    /// Takes the address under which the manager knows the API server.
    pub fn new(server: &http::Uri) -> Self {
        Self {
            api_server: ApiServer::new(server),
            own: OwnAddresses::default(),
            context: Mutex::new(None),
            restricted: Remembered::new(MAX_NAMESPACES),
            authorities: Remembered::new(MAX_KEYS),
        }
    }

    /// Begins to read with this; before it nothing can be read.
    pub fn begin(&self, context: Context) {
        *self.context.lock() = Some(context);
    }

    /// Keeps the addresses of the API server known until it is dropped.
    pub async fn follow(&self) {
        let context = self.context.lock().clone();
        if let Some(context) = context {
            self.api_server.follow(&context).await;
        }
    }

    /// Waits until the addresses of the API server were looked at in this term, and no longer than is sensible.
    pub async fn looked(&self) {
        // Those who need them are told so after it.
        drop(tokio::time::timeout(FIRST_LOOK, self.api_server.looked()).await);
    }

    /// Ends a term: by the next one there may be other addresses, and other rights to read them.
    pub fn end_term(&self) {
        self.api_server.end_term();
    }

    async fn read<V: for<'de> Deserialize<'de>>(
        &self,
        kind: &KindId,
        request: &NamespacedName,
        allowed_by: &str,
    ) -> Result<Option<V>, String> {
        let Some(context) = self.context.lock().clone() else {
            return Err("the manager does not run yet".to_owned());
        };
        let found = live(&context, kind, request).await.map_err(|error| {
            let hint = if error.is_forbidden() { format!("; {allowed_by} allows it") } else { String::new() };
            format!("{error}{hint}")
        })?;
        found.map(|live| live.decode::<V>().map_err(|error| error.to_string())).transpose()
    }

    async fn read_authorities(&self, request: &NamespacedName, key: &str) -> Authorities {
        let allowed_by = "deploy/components/tls-authorities";
        let found = self.read::<ConfigMapView>(&KindId::of::<ConfigMap>(), request, allowed_by).await;
        let text = found.map_err(NoAuthorities::Unknown)?.and_then(|mut map| map.data.remove(key));
        let text = text.ok_or(NoAuthorities::Missing)?;
        let read = tokio::task::spawn_blocking(move || authorities(&text)).await;
        read.unwrap_or_else(|error| Err(NoAuthorities::Unknown(error.to_string())))
    }
}

impl Surroundings for ClusterSurroundings {
    fn owner(&self, address: SocketAddr) -> Result<Option<Owner>, String> {
        // An address that is known to be somebody's is, whatever else is not known.
        let is_api_server = self.api_server.is_at(address);
        if is_api_server == Ok(true) {
            return Ok(Some(Owner::ApiServer));
        }
        if self.own.contains(address.ip())? {
            return Ok(Some(Owner::Manager));
        }
        is_api_server.map(|_| None)
    }

    fn is_restricted<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let read = async {
                let request = NamespacedName::cluster(namespace);
                let kind = KindId::of::<Namespace>();
                let found = self.read::<NamespaceView>(&kind, &request, "deploy/base").await?;
                let found = found.ok_or_else(|| "it is not there".to_owned())?;
                let level = found.metadata.labels.get(ENFORCE);
                Ok(level.is_some_and(|level| level != "privileged"))
            };
            self.restricted.get_or(namespace, (), read, lasting).await
        })
    }

    fn authorities<'a>(&'a self, namespace: &'a str, key: &'a ConfigMapKey) -> BoxFuture<'a, Authorities> {
        Box::pin(async move {
            let question = (key.name.clone(), key.key.clone().unwrap_or_default());
            let request = NamespacedName::namespaced(namespace, key.name.as_str());
            let read = self.read_authorities(&request, key.key.as_deref().unwrap_or_default());
            self.authorities.get_or(namespace, question, read, lasting).await
        })
    }
}

/// How long an answer counts.
fn lasting<T, E>(answer: &Result<T, E>) -> Duration {
    if answer.is_ok() { FRESH } else { UNANSWERED }
}
