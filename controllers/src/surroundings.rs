//! The cluster around the manager, as probes have to know it: who owns an address, which namespaces are restricted, and
//! what a `ConfigMap` says.
//!
//! Namespaces and `ConfigMaps` are read one by one when they are asked for, and remembered for a while: watching all of
//! them would need the right to read all, and memory for all, for the sake of a few.
//!
//! # Invariants
//! 1. Of one namespace or key at most one request is made in `FRESH`, or in `UNANSWERED` after a failure.
//! 2. What is remembered is bounded in number and size.

mod own;
mod remembered;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use mainstay::client::live;
use mainstay::key::{KindId, Request};
use mainstay::reconcile::Context;
use mainstay_api::wait_for::ConfigMapKey;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::time::Instant;

use crate::probe::{NoText, Owner, Resolve, Services, Surroundings};
use own::OwnAddresses;
use remembered::Remembered;

/// How long what was read counts: a certificate authority or a Pod Security level changes rarely, and a minute later is
/// no harm.
const FRESH: Duration = Duration::from_secs(30);
/// How long addresses count that the cache was asked for.
const KNOWN: Duration = Duration::from_secs(1);
/// How long nothing is asked again after a failure.
const UNANSWERED: Duration = Duration::from_secs(5);
/// Most namespaces that are remembered.
const MAX_NAMESPACES: usize = 1000;
/// Most keys of `ConfigMaps` that are remembered.
const MAX_KEYS: usize = 64;
/// Longest text of a key in bytes: twice what all authorities of the web take.
const MAX_TEXT: usize = 512 * 1024;
/// The Service that stands for the API server.
const API_SERVICE: (&str, &str) = ("default", "kubernetes");
/// Says which Pod Security level a namespace enforces.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Reads the cluster that the manager is in.
pub struct ClusterSurroundings {
    services: Arc<dyn Services>,
    /// Where the manager itself reaches the API server; replaced when its name has been looked up.
    api_server: Mutex<Vec<SocketAddr>>,
    /// Its name and port, where it is reached by a name.
    name: Option<(String, u16)>,
    /// Those of the Service, with the time until which they count.
    api_service: Mutex<(Instant, Vec<IpAddr>)>,
    /// What is read with; none before the manager runs.
    context: Mutex<Option<Context>>,
    own: OwnAddresses,
    restricted: Remembered<String, Result<bool, String>>,
    texts: Remembered<(Request, String), Result<String, NoText>>,
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
    pub fn new(server: &http::Uri, services: Arc<dyn Services>) -> Self {
        let port = server.port_u16().unwrap_or(if server.scheme_str() == Some("http") { 80 } else { 443 });
        let host = server.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let (api_server, name) = match host.parse::<IpAddr>() {
            Ok(ip) => (vec![SocketAddr::new(ip.to_canonical(), port)], None),
            Err(_) => (Vec::new(), Some((host.to_owned(), port))),
        };
        Self {
            services,
            api_server: Mutex::new(api_server),
            name,
            api_service: Mutex::new((Instant::now(), Vec::new())),
            own: OwnAddresses::default(),
            context: Mutex::new(None),
            restricted: Remembered::new(MAX_NAMESPACES),
            texts: Remembered::new(MAX_KEYS),
        }
    }

    /// Begins to read with this; before it nothing can be read.
    pub fn begin(&self, context: Context) {
        *self.context.lock() = Some(context);
    }

    /// Looks the name of the API server up again, where it has one. What was found before stays if nothing is found now.
    pub async fn find_api_server(&self, resolve: &dyn Resolve) {
        let Some((name, port)) = &self.name else { return };
        match resolve.resolve(name).await {
            Ok(found) => {
                let found = found.into_iter().map(|ip| SocketAddr::new(ip.to_canonical(), *port));
                *self.api_server.lock() = found.collect();
            }
            Err(error) => tracing::debug!(%name, %error, "the API server's name was not found"),
        }
    }

    /// Returns the addresses of the Service that stands for the API server, and of all that is behind it.
    fn api_service(&self) -> Vec<IpAddr> {
        let (namespace, name) = API_SERVICE;
        let mut found = self.services.cluster_addresses(namespace, name);
        let behind = self.services.endpoints(namespace, name).unwrap_or_default();
        found.extend(behind.into_iter().map(|endpoint| endpoint.ip.to_canonical()));
        found
    }

    fn is_api_server(&self, address: SocketAddr) -> bool {
        // Everything on its machine, but on loopback, which a developer's prerequisites share with it.
        let is_it = |known: &SocketAddr| {
            if address.ip().is_loopback() { *known == address } else { known.ip() == address.ip() }
        };
        if self.api_server.lock().iter().any(is_it) {
            return true;
        }
        // A Service with a thousand endpoints is checked address by address: the cache is not read for each.
        let mut known = self.api_service.lock();
        let now = Instant::now();
        if known.0 <= now {
            *known = (now + KNOWN, self.api_service());
        }
        known.1.contains(&address.ip())
    }

    async fn read<V: for<'de> Deserialize<'de>>(
        &self,
        kind: &KindId,
        request: &Request,
    ) -> Result<Option<V>, String> {
        let Some(context) = self.context.lock().clone() else {
            return Err("the manager does not run yet".to_owned());
        };
        let found = live(&context, kind, request).await.map_err(|error| error.to_string())?;
        found.map(|live| live.decode::<V>().map_err(|error| error.to_string())).transpose()
    }

    async fn read_text(&self, request: &Request, key: &str) -> Result<String, NoText> {
        let found = self.read::<ConfigMapView>(&KindId::of::<ConfigMap>(), request).await;
        let text = found.map_err(NoText::Unknown)?.and_then(|mut map| map.data.remove(key));
        let text = text.ok_or(NoText::Missing)?;
        if text.len() > MAX_TEXT {
            return Err(NoText::Unknown(format!("it is longer than {} KiB", MAX_TEXT / 1024)));
        }
        Ok(text)
    }
}

impl Surroundings for ClusterSurroundings {
    fn owner(&self, address: SocketAddr) -> Option<Owner> {
        if self.is_api_server(address) {
            return Some(Owner::ApiServer);
        }
        self.own.contains(address.ip()).then_some(Owner::Manager)
    }

    fn is_restricted<'a>(&'a self, namespace: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let key = namespace.to_owned();
            let read = async {
                let request = Request::cluster(namespace);
                let found = self.read::<NamespaceView>(&KindId::of::<Namespace>(), &request).await?;
                let found = found.ok_or_else(|| "it is not there".to_owned())?;
                let level = found.metadata.labels.get(ENFORCE);
                Ok(level.is_some_and(|level| level != "privileged"))
            };
            self.restricted.get_or(key, read, |answer| if answer.is_ok() { FRESH } else { UNANSWERED }).await
        })
    }

    fn config_map<'a>(
        &'a self,
        namespace: &'a str,
        key: &'a ConfigMapKey,
    ) -> BoxFuture<'a, Result<String, NoText>> {
        Box::pin(async move {
            let request = Request::new(Some(namespace), &key.name);
            let name = key.key.clone().unwrap_or_default();
            let read = self.read_text(&request, &name);
            let lasting = |answer: &Result<_, _>| if answer.is_ok() { FRESH } else { UNANSWERED };
            self.texts.get_or((request.clone(), name.clone()), read, lasting).await
        })
    }
}

impl std::fmt::Debug for ClusterSurroundings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClusterSurroundings").field("api_server", &self.api_server).finish_non_exhaustive()
    }
}
