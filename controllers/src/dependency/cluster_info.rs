//! Facts about the cluster that probes need: the addresses of the API server and of the manager, the Pod
//! Security level of namespaces, and certificate authorities in `ConfigMaps`.
//!
//! Namespaces and `ConfigMaps` are read one by one when a probe needs them, and cached for a while. Watches
//! would need the right to read all of them, and memory for all, while few are needed.
//!
//! # Invariants
//! 1. A namespace or key is read at most once in `FRESH`, or in `RETRY` after a failure, unless more are
//!    in use than the cache holds.
//! 2. The caches are bounded in number and size.

mod api_server;
mod own_addresses;
mod ttl_cache;

use std::net::SocketAddr;
use std::sync::OnceLock;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::ResourceExt as _;
use mainstay::client::live;
use mainstay::key::{KindId, NamespacedName};
use mainstay::reconcile::Context;
use mainstay_api::wait_for::ConfigMapKey;
use serde::de::DeserializeOwned;

use crate::dependency::probe::{AddressOwner, Authorities, ClusterInfo, NoAuthorities, authorities};
use api_server::ApiServer;
use own_addresses::OwnAddresses;
use ttl_cache::TtlCache;

/// How long a Pod Security level or certificate authorities from the API server stay cached. They change
/// rarely, and half a minute of delay does no harm.
const FRESH: Duration = Duration::from_secs(30);
/// How long a failed read of a namespace or `ConfigMap` is cached before the next request for it.
const RETRY: Duration = Duration::from_secs(5);
/// How long a term of leadership waits for the first lookup of the API server's addresses before it starts
/// probes. Later, probes of raw addresses fail until the lookup succeeds.
const FIRST_LOOKUP: Duration = Duration::from_secs(5);
/// Maximum number of namespaces in the cache of Pod Security levels.
const MAX_NAMESPACES: usize = 1000;
/// Maximum number of `ConfigMap` keys in the cache of certificate authorities.
const MAX_KEYS: usize = 64;
/// The label of a namespace with the Pod Security level that the namespace enforces as its value.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Reads facts about the cluster that probes need, such as the addresses of the API server and certificate
/// authorities in `ConfigMaps`, and caches them.
#[derive(Debug)]
pub struct LiveClusterInfo {
    api_server: ApiServer,
    own: OwnAddresses,
    /// The context with the client for requests to the API server; not set before the manager runs.
    context: OnceLock<Context>,
    /// Cache by namespace: whether it enforces a Pod Security level other than privileged, or the reason why
    /// it cannot be read.
    restricted: TtlCache<(), Result<bool, String>>,
    /// Cache of certificate authorities, by namespace and by name and key of their `ConfigMap`.
    authorities: TtlCache<(String, String), Authorities>,
}

// === impl LiveClusterInfo ===

impl LiveClusterInfo {
    /// Makes a reader without a client yet; `server` is the address by which the manager reaches the API
    /// server.
    pub fn new(server: &http::Uri) -> Self {
        Self {
            api_server: ApiServer::new(server),
            own: OwnAddresses::default(),
            context: OnceLock::new(),
            restricted: TtlCache::new(MAX_NAMESPACES),
            authorities: TtlCache::new(MAX_KEYS),
        }
    }

    /// Sets the context with the client for requests to the API server. Reads of objects fail before.
    pub fn set_context(&self, context: Context) {
        // Set once, when the manager starts.
        drop(self.context.set(context));
    }

    /// Looks up the addresses of the API server periodically, for as long as the future is polled.
    pub async fn follow_api_server(&self) {
        if let Some(context) = self.context.get() {
            self.api_server.follow(context).await;
        }
    }

    /// Waits until the first lookup of the API server's addresses in this term of leadership has ended, for
    /// at most five seconds.
    pub async fn wait_for_api_server_addresses(&self) {
        // After a timeout, probes that need the addresses fail with the cause.
        drop(tokio::time::timeout(FIRST_LOOKUP, self.api_server.first_lookup()).await);
    }

    /// Ends a term of leadership. The next term looks up the API server's addresses again: they, and the
    /// right to read them, may have changed.
    pub fn end_term(&self) {
        self.api_server.end_term();
    }

    /// Reads an object from the API server; `None` if it does not exist. The error of a forbidden request
    /// names `allowed_by`, the part of the deployment manifests that grants the right to read the object.
    async fn read<K: DeserializeOwned>(
        &self,
        kind: &KindId,
        request: &NamespacedName,
        allowed_by: &str,
    ) -> Result<Option<K>, String> {
        let context = self.context.get().ok_or("the manager does not run yet")?;
        let found = live(context, kind, request).await.map_err(|error| {
            let hint = if error.is_forbidden() { format!("; {allowed_by} allows it") } else { String::new() };
            format!("{error}{hint}")
        })?;
        found.map(|live| live.decode::<K>().map_err(|error| error.to_string())).transpose()
    }

    async fn read_authorities(&self, request: &NamespacedName, key: &str) -> Authorities {
        let allowed_by = "deploy/components/tls-authorities";
        let found = self.read::<ConfigMap>(&KindId::of::<ConfigMap>(), request, allowed_by).await;
        let text = found
            .map_err(NoAuthorities::Unknown)?
            .and_then(|map| map.data?.remove(key))
            .ok_or(NoAuthorities::Missing)?;
        let read = tokio::task::spawn_blocking(move || authorities(&text)).await;
        read.unwrap_or_else(|error| Err(NoAuthorities::Unknown(error.to_string())))
    }
}

impl ClusterInfo for LiveClusterInfo {
    fn owner(&self, address: SocketAddr) -> Result<Option<AddressOwner>, String> {
        // A known owner counts even while other addresses are unknown, so the error is returned last.
        let is_api_server = self.api_server.is_at(address);
        if is_api_server == Ok(true) {
            return Ok(Some(AddressOwner::ApiServer));
        }
        if self.own.contains(address.ip())? {
            return Ok(Some(AddressOwner::Manager));
        }
        is_api_server.map(|_| None)
    }

    fn is_restricted<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let read = async {
                let (kind, request) = (KindId::of::<Namespace>(), NamespacedName::cluster(namespace));
                let found = self.read::<Namespace>(&kind, &request, "deploy/base").await?;
                let found = found.ok_or_else(|| "it does not exist".to_owned())?;
                Ok(found.labels().get(ENFORCE).is_some_and(|level| level != "privileged"))
            };
            self.restricted.get_or_fetch(namespace, (), read, ttl).await
        })
    }

    fn authorities<'a>(&'a self, namespace: &'a str, key: &'a ConfigMapKey) -> BoxFuture<'a, Authorities> {
        Box::pin(async move {
            let question = (key.name.clone(), key.key.clone().unwrap_or_default());
            let request = NamespacedName::namespaced(namespace, key.name.as_str());
            let read = self.read_authorities(&request, key.key.as_deref().unwrap_or_default());
            self.authorities.get_or_fetch(namespace, question, read, ttl).await
        })
    }
}

/// Returns how long an answer of the API server is cached: 30 seconds, or 5 seconds for a failure.
fn ttl<T, E>(answer: &Result<T, E>) -> Duration {
    if answer.is_ok() { FRESH } else { RETRY }
}
