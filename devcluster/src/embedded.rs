//! A Kubernetes API server inside this process: the API, its HTTP service, and a listener on loopback.
//!
//! It runs only the controllers that `EmbeddedOptions::controllers` names: without them Pods stay pending.

#[cfg(feature = "workloads")]
use std::collections::BTreeSet;
#[cfg(feature = "http")]
use std::io::Write as _;
#[cfg(feature = "http")]
use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;
#[cfg(feature = "workloads")]
use tokio::task::JoinSet;
#[cfg(feature = "workloads")]
use tokio_util::sync::CancellationToken;

use crate::api::{Api, ApiOptions, User};
use crate::server::{ApiService, Faults};
#[cfg(feature = "http")]
use crate::server::{Identity, IdentityError, Listener};
#[cfg(feature = "workloads")]
use crate::workloads::{self, Controller};

/// The default namespace of clients.
const DEFAULT_NAMESPACE: &str = "default";

/// The settings of an embedded server.
#[derive(Debug)]
pub struct EmbeddedOptions {
    /// The settings of the API.
    pub api: ApiOptions,
    /// Bearer tokens and their users; empty by default.
    pub tokens: Vec<(String, User)>,
    /// The controllers that run beside the API server. None by default, so that objects are only stored.
    #[cfg(feature = "workloads")]
    pub controllers: BTreeSet<Controller>,
    /// Whether the server listens on loopback, as by default. Clients in this process need no socket.
    #[cfg(feature = "http")]
    pub listen: bool,
}

/// A running Kubernetes API server inside this process.
///
/// Dropping it closes its port; [`stop`](Self::stop) also waits until its connections are closed.
#[derive(Debug)]
pub struct Embedded {
    api: Api,
    service: ApiService,
    /// The task of the controllers; dropping it ends the task.
    #[cfg(feature = "workloads")]
    controllers: JoinSet<()>,
    #[cfg(feature = "http")]
    http: Option<Http>,
}

/// The listener on loopback, and the kubeconfig of its administrator.
#[cfg(feature = "http")]
#[derive(Debug)]
struct Http {
    listener: Listener,
    kubeconfig: String,
    /// The certificate of the authority in PEM.
    authority: String,
    /// A file with the kubeconfig, readable by this user only and removed with the server.
    file: tempfile::TempPath,
}

/// An error while the server starts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EmbeddedError {
    /// The certificates could not be generated.
    #[cfg(feature = "http")]
    #[error("making the server's certificates failed")]
    Identity(#[from] IdentityError),
    /// The server could not bind a port of loopback.
    #[error("binding a port of loopback failed")]
    Bind(#[from] std::io::Error),
}

// === impl EmbeddedOptions ===

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            api: ApiOptions::new(Arc::new(Timestamp::now)),
            tokens: Vec::new(),
            #[cfg(feature = "workloads")]
            controllers: BTreeSet::new(),
            #[cfg(feature = "http")]
            listen: true,
        }
    }
}

// === impl Embedded ===

impl Embedded {
    /// Starts a server with the default options.
    pub async fn start() -> Result<Self, EmbeddedError> {
        Self::start_with(EmbeddedOptions::default()).await
    }

    /// Starts a server with the given options.
    pub async fn start_with(options: EmbeddedOptions) -> Result<Self, EmbeddedError> {
        let seed = options.api.seed;
        #[cfg(feature = "workloads")]
        let clock = Arc::clone(&options.api.clock);
        let api = Api::new(options.api).await;
        let service = ApiService::new(api.clone(), options.tokens, seed);
        #[cfg(feature = "http")]
        let http = if options.listen { Some(Http::start(&service).await?) } else { None };
        #[cfg(feature = "workloads")]
        let controllers = {
            #[cfg(feature = "http")]
            let root_ca = http.as_ref().map_or("", |http| &http.authority);
            #[cfg(not(feature = "http"))]
            let root_ca = "";
            let settings = workloads::Options {
                controllers: options.controllers,
                ..workloads::Options::new(root_ca, clock)
            };
            let mut task = JoinSet::new();
            if !settings.controllers.is_empty() {
                task.spawn(workloads::run(api.clone(), settings, CancellationToken::new()));
            }
            task
        };
        Ok(Self {
            api,
            service,
            #[cfg(feature = "workloads")]
            controllers,
            #[cfg(feature = "http")]
            http,
        })
    }

    /// Returns a client with the rights of an administrator. It calls the server without a socket.
    pub fn client(&self) -> Client {
        Client::new(self.service.as_user(User::admin()), DEFAULT_NAMESPACE)
    }

    /// Returns a client with the given user name and groups. It calls the server without a socket.
    pub fn client_as<'a>(&self, user: &str, groups: impl IntoIterator<Item = &'a str>) -> Client {
        let groups = groups.into_iter().map(str::to_owned).collect();
        let user = User { name: user.to_owned(), groups, ..User::default() };
        Client::new(self.service.as_user(user), DEFAULT_NAMESPACE)
    }

    /// Returns the API below the HTTP service.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// Returns the HTTP service, which authenticates requests by bearer token.
    pub fn service(&self) -> &ApiService {
        &self.service
    }

    /// Returns the fault rules of this server.
    pub fn faults(&self) -> &Faults {
        self.service.faults()
    }

    /// Discards the history of all objects, so that every older resourceVersion is expired.
    pub fn compact(&self) {
        self.api.store().compact();
    }

    /// Returns the URL of the server on loopback; empty if it does not listen.
    #[cfg(feature = "http")]
    pub fn url(&self) -> String {
        self.http.as_ref().map(Http::url).unwrap_or_default()
    }

    /// Returns the kubeconfig of the administrator as YAML, with the certificates inline; empty if the server
    /// does not listen.
    #[cfg(feature = "http")]
    pub fn kubeconfig(&self) -> &str {
        self.http.as_ref().map_or("", |http| &http.kubeconfig)
    }

    /// Returns the path of a file with [`kubeconfig`](Self::kubeconfig), which is removed with the server;
    /// `None` if the server does not listen.
    #[cfg(feature = "http")]
    pub fn kubeconfig_path(&self) -> Option<&Path> {
        self.http.as_ref().map(|http| &*http.file)
    }

    /// Ends all controllers, open watches and connections, and returns when no task and no socket is left.
    ///
    /// Clients without a socket remain usable after that.
    #[cfg_attr(
        not(any(feature = "http", feature = "workloads")),
        expect(clippy::unused_async, reason = "nothing runs that could be awaited")
    )]
    pub async fn stop(self) {
        #[cfg(feature = "workloads")]
        {
            let mut controllers = self.controllers;
            controllers.shutdown().await;
        }
        self.service.faults().cut_watches();
        #[cfg(feature = "http")]
        if let Some(http) = self.http {
            http.listener.stop().await;
        }
    }
}

// === impl Http ===

#[cfg(feature = "http")]
impl Http {
    async fn start(service: &ApiService) -> Result<Self, EmbeddedError> {
        let identity = Identity::generate()?;
        let listener = Listener::start(service.clone(), &identity).await?;
        let kubeconfig = identity.kubeconfig(&url(&listener));
        let mut file = tempfile::Builder::new().prefix("mainstay-devcluster-").suffix(".yaml").tempfile()?;
        file.write_all(kubeconfig.as_bytes())?;
        let authority = identity.authority().to_owned();
        Ok(Self { listener, kubeconfig, authority, file: file.into_temp_path() })
    }

    fn url(&self) -> String {
        url(&self.listener)
    }
}

#[cfg(feature = "http")]
fn url(listener: &Listener) -> String {
    format!("https://{}", listener.address())
}

#[cfg(test)]
mod tests;
