//! One connection stack per role, so that a slow request of one role cannot delay the requests of another.
//!
//! A stack is, from the caller inwards: the role's own guard (fence or deadline), the write observer, the log
//! of the server's warnings (not for the Lease), the request metrics, kube's base-URI and header layers, the
//! current credentials with kube's authorisation layer, hyper's pool, TLS, a proxy's tunnel if there is one,
//! and the TCP connector of `tcp`. It is built here and not by kube because kube's default retries any
//! request with a cloneable body for minutes, which would delay a Lease renewal past its deadline and a
//! leader's write past its term.
//!
//! # Invariants
//! 1. No two roles share a pool, and no two calls of [`Connections::client`] do.
//! 2. No stack retries: each request is sent at most once.
//! 3. A connection of [`Role::Writes`] serves one term of its fence; a new term opens new connections.

mod count;
mod credentials;
mod deadline;
mod fenced;
mod fetch;
#[cfg(feature = "testing")]
mod guard;
mod metrics;
mod plugin;
mod proxy;
mod tcp;
mod warnings;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector};
use kube::client::{Body, ConfigExt as _};
use rustls::pki_types::ServerName;
use tower::util::{BoxCloneService, BoxCloneSyncService};
use tower::{BoxError, Layer as _, ServiceExt as _};

use crate::client::observe::{ObserverSlot, WriteObserver, observed};
use crate::key::Fence;
use crate::metrics::Registry;

use count::counted;
use credentials::{Credentials, FetchLimits, identified};
use deadline::{connect_deadline, deadlined};
use fenced::{guarded, transport};
use metrics::RequestMetrics;
use proxy::{Proxy, proxied};
use warnings::Warnings;

pub(super) use tcp::port_of;

pub use super::infer::infer;
pub use deadline::DeadlineExceeded;
#[cfg(feature = "testing")]
pub(crate) use deadline::is_watch;
pub use fenced::Fenced;
#[cfg(feature = "testing")]
pub(crate) use guard::RequestGuard;

/// Default time limit for opening a connection, TLS included, as in client-go.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// The body of an HTTP response in every layer of a client's connection stack.
pub(super) type ResponseBody = UnsyncBoxBody<Bytes, BoxError>;

/// An HTTP service: one layer of a client's connection stack together with all layers inside it. Every layer
/// is always ready, so no layer polls the readiness of the next.
pub(super) type Stack = BoxCloneService<Request<Body>, Response<ResponseBody>, BoxError>;

/// A service that opens connections to the host and port of a URI. Every connector is always ready.
type Connector<S> = BoxCloneSyncService<Uri, S, BoxError>;

/// The purpose of a client of the API server: reads, leader-only writes or the Lease. Each client has its own
/// connections.
#[derive(Clone, Debug)]
pub enum Role {
    /// Lists, watches and all other requests that any replica may send. They have no deadline, because a
    /// watch has none.
    Watches,
    /// Requests of leader-only work, stopped once this fence is closed: reads included, since writes depend
    /// on their results.
    Writes(Fence),
    /// Requests that read, watch or write the Lease, each with a time limit.
    Lease {
        /// Time limit of one request for the Lease, from the call to the last byte of the response; a watch
        /// only has to begin within it.
        request_timeout: Duration,
    },
}

/// Makes the clients of one API server. They share credentials, request metrics, the log of warnings and the
/// write observer, but no connections.
// Only the server is shown: the rest of the configuration may hold the password of a proxy.
#[derive(Clone, derive_more::Debug)]
#[debug("Connections {{ server: {}, .. }}", self.config.cluster_url)]
pub struct Connections {
    config: kube::Config,
    proxy: Option<Proxy>,
    credentials: Credentials,
    metrics: RequestMetrics,
    warnings: Warnings,
    observer: ObserverSlot,
    #[cfg(feature = "testing")]
    guard: guard::GuardSlot,
}

/// The reason why no API server is known, or no connection to it can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No source of configuration (flag, `KUBECONFIG`, service account, home kubeconfig) names an API server.
    #[error(
        "no API server is configured; tried {}; give --kubeconfig FILE or set KUBECONFIG", .tried.join("; ")
    )]
    NotConfigured {
        /// The sources that were tried, in order, each with the reason why it gave no API server.
        tried: Vec<String>,
    },
    /// A kubeconfig cannot be read, or its context cannot be used.
    #[error("kubeconfig {files} cannot be used")]
    Kubeconfig {
        /// The kubeconfig file or files, with the flag or variable that names them, if any.
        files: String,
        /// The error of the kubeconfig file that cannot be read, or of the context.
        #[source]
        source: Box<kube::config::KubeconfigError>,
    },
    /// The kubeconfig or the environment names a proxy that cannot be used. The text leaves out the proxy's
    /// address, which may hold a password.
    #[error(
        "the proxy for {server} cannot be used; expected http://, https:// or socks5:// with HOST:PORT in \
         proxy-url or HTTPS_PROXY"
    )]
    Proxy {
        /// The URL of the API server.
        server: Box<Uri>,
    },
    /// The credentials or certificates for the API server cannot be used.
    #[error("credentials or certificates for {server} cannot be used")]
    Credentials {
        /// The URL of the API server.
        server: Box<Uri>,
        /// The reason why the credentials or certificates cannot be used, such as a file that cannot be read.
        #[source]
        source: BoxError,
    },
}

// === impl Role ===

impl Role {
    /// Returns the name of the role. It ends the user agent, by which audit logs and flow schemas distinguish
    /// the roles.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Watches => "watches",
            Self::Writes(_) => "writes",
            Self::Lease { .. } => "lease",
        }
    }
}

// === impl Connections ===

impl Connections {
    /// Prepares connections to the API server of `config` and registers the request metrics. Opens no
    /// connection yet.
    ///
    /// # Errors
    /// Fails if the configuration names a proxy that cannot be used.
    pub fn new(config: kube::Config, registry: &Registry) -> Result<Self, ConnectError> {
        Self::with_metrics(config, RequestMetrics::register(registry))
    }

    /// Returns a `Connections` for another API server. Both count requests in the same metrics, with the host
    /// as a label; credentials, write observer, logged warnings and connections are separate.
    ///
    /// # Errors
    /// As [`Connections::new`].
    pub fn beside(&self, config: kube::Config) -> Result<Self, ConnectError> {
        Self::with_metrics(config, self.metrics.clone())
    }

    fn with_metrics(config: kube::Config, metrics: RequestMetrics) -> Result<Self, ConnectError> {
        install_crypto_provider();
        let proxy = config.proxy_url.as_ref().map(|url| Proxy::new(url, &config.cluster_url)).transpose()?;
        let credentials = Credentials::new(config.clone(), FetchLimits::default());
        let (warnings, observer) = (Warnings::new(), ObserverSlot::default());
        Ok(Self {
            config,
            proxy,
            credentials,
            metrics,
            warnings,
            observer,
            #[cfg(feature = "testing")]
            guard: guard::GuardSlot::default(),
        })
    }

    /// Sets the observer to which all clients of [`Role::Writes`], existing ones too, report their successful
    /// writes.
    pub fn observe(&self, observer: Arc<dyn WriteObserver>) {
        *self.observer.write() = Some(observer);
    }

    /// Sets the guard that all clients, existing ones too, ask about each request; `None` for no guard.
    #[cfg(feature = "testing")]
    pub(crate) fn guard(&self, guard: Option<Arc<dyn RequestGuard>>) {
        *self.guard.write() = guard;
    }

    /// Returns the kube configuration, with the address of the API server and the default namespace.
    pub fn config(&self) -> &kube::Config {
        &self.config
    }

    /// Makes a client of this role with its own connection pool; clones of the client share that pool.
    ///
    /// Its connections run on the runtime that polls their first request; its one task runs on the runtime in
    /// whose context this is called. Call it inside the runtime that will use the client.
    ///
    /// # Errors
    /// Fails if certificates or a token cannot be read. A credential plug-in runs at the first request, so
    /// its errors are returned by requests.
    pub fn client(&self, role: Role) -> Result<kube::Client, ConnectError> {
        self.build(role).map_err(|source| ConnectError::Credentials {
            server: Box::new(self.config.cluster_url.clone()),
            source,
        })
    }

    fn build(&self, role: Role) -> Result<kube::Client, BoxError> {
        let mut config = self.config.clone();
        set_user_agent(&mut config, &role);
        let fence = match &role {
            Role::Writes(fence) => fence.clone(),
            // A fence with one term that never ends.
            Role::Watches | Role::Lease { .. } => Fence::open(),
        };
        let timeout = config.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        let (proxy, metrics) = (self.proxy.clone(), self.metrics.clone());
        let open = move |identity: &kube::Config| {
            let tcp = tcp::connector(fence.clone(), timeout, metrics.clone());
            let tls = Arc::new(identity.rustls_client_config()?);
            let hop = Connector::new(HttpsConnector::from((tcp, Arc::clone(&tls))));
            let server = proxied(hop, proxy.clone());
            let https = match identity.tls_server_name.clone() {
                Some(name) => {
                    let name = FixedServerNameResolver::new(ServerName::try_from(name)?);
                    HttpsConnector::new(server, tls, false, Arc::new(name))
                }
                None => HttpsConnector::from((server, tls)),
            };
            Ok(transport(connect_deadline(Connector::new(https), timeout), fence.clone()))
        };

        let service = identified(&self.credentials, open)?;
        let service = config.extra_headers_layer()?.layer(service);
        let service = Stack::new(config.base_uri_layer().layer(service).map_err(Into::into));
        let service = counted(service, &self.metrics, &config.cluster_url);
        #[cfg(feature = "testing")]
        let service = guard::guarded_in_test(service, Arc::clone(&self.guard));
        let service = match role {
            Role::Watches => self.warnings.of(service),
            Role::Writes(fence) => {
                guarded(observed(self.warnings.of(service), Arc::clone(&self.observer)), fence)
            }
            Role::Lease { request_timeout } => deadlined(service, request_timeout),
        };
        Ok(kube::Client::new(service, config.default_namespace))
    }
}

/// Makes a response body of bytes that have all arrived.
pub(super) fn whole(body: Bytes) -> ResponseBody {
    Full::new(body).map_err(|never| match never {}).boxed_unsync()
}

/// Installs ring as the process's default crypto provider of rustls, which needs a default when two are
/// compiled in. A provider that the application has installed is kept.
fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread has set the default in the meantime.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

/// Adds a `User-Agent` header with the version and the role to the configuration, unless it has one.
fn set_user_agent(config: &mut kube::Config, role: &Role) {
    let given = config.headers.iter().any(|(name, _)| name == header::USER_AGENT);
    let agent = format!("mainstay/{} {}", env!("CARGO_PKG_VERSION"), role.as_str());
    if let (false, Ok(agent)) = (given, HeaderValue::try_from(agent)) {
        config.headers.push((header::USER_AGENT, agent));
    }
}

#[cfg(test)]
mod tests;
