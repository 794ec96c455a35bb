//! A Kubernetes API server inside this process: the API, its HTTP service, and a listener on loopback.
//!
//! It runs only the controllers that `EmbeddedOptions::controllers` names: without them Pods stay pending.

#[cfg(feature = "http")]
mod loopback;

#[cfg(feature = "workloads")]
use std::collections::BTreeSet;
#[cfg(feature = "http")]
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::Client;
use serde_json::Value;
#[cfg(feature = "workloads")]
use tokio::task::JoinSet;

#[cfg(all(feature = "http", feature = "workloads"))]
pub(crate) use self::loopback::GRACE;
#[cfg(feature = "http")]
use self::loopback::Loopback;
use crate::api::{Api, ApiOptions, PatchType, Request, Status, Target, User, Verb};
#[cfg(feature = "http")]
use crate::server::IdentityError;
use crate::server::{ApiService, Faults};
#[cfg(feature = "http")]
use crate::store::FileError;
use crate::store::Shift;
#[cfg(feature = "workloads")]
use crate::workloads::{self, Controller, Time};

/// The default namespace of clients.
const DEFAULT_NAMESPACE: &str = "default";

/// The settings of an embedded server.
#[derive(Debug)]
pub struct EmbeddedOptions {
    /// The settings of the API, among them whether users need [rights](ApiOptions::rbac).
    pub api: ApiOptions,
    /// Bearer tokens and their users; empty by default.
    pub tokens: Vec<(String, User)>,
    /// The controllers that run beside the API server. None by default, so that objects are only stored.
    #[cfg(feature = "workloads")]
    pub controllers: BTreeSet<Controller>,
    /// CustomResourceDefinitions that exist from the start, in place of those of the same names in a file.
    pub crds: Vec<Value>,
    /// The file with the objects, the certificates and the port of a cluster that goes on after its process:
    /// the next server with the file has the same kubeconfig. `None` for objects in memory only.
    #[cfg(feature = "http")]
    pub data: Option<PathBuf>,
    /// The port on loopback; `None` for that of the file, if it is free, else for any free one.
    #[cfg(feature = "http")]
    pub port: Option<u16>,
    /// Whether each write of a ServiceAccount is appended to the file `audit.log` in the
    /// [folder](Embedded::folder), as a line of the audit log of kube-apiserver. Off by default.
    #[cfg(feature = "http")]
    pub audit: bool,
}

/// A running Kubernetes API server inside this process.
///
/// Dropping it closes its port; [`stop`](Self::stop) also waits until its connections are closed.
#[derive(Debug)]
pub struct Embedded {
    api: Api,
    service: ApiService,
    shift: Shift,
    /// The task of the controllers; dropping it ends the task.
    #[cfg(feature = "workloads")]
    controllers: JoinSet<()>,
    /// Lets time pass for the controllers; `None` without them.
    #[cfg(feature = "workloads")]
    time: Option<Time>,
    #[cfg(feature = "http")]
    loopback: Loopback,
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
    #[cfg(feature = "http")]
    #[error("binding a port of loopback failed")]
    Bind(#[source] std::io::Error),
    /// The folder of the server, or a file in it, could not be made.
    #[cfg(feature = "http")]
    #[error("preparing the server's temporary folder failed")]
    Folder(#[source] std::io::Error),
    /// The file with the objects cannot be used.
    #[cfg(feature = "http")]
    #[error(transparent)]
    Data(#[from] FileError),
    /// A CustomResourceDefinition of the options was refused.
    #[error("the CustomResourceDefinition {name:?} was refused: {}", .status.message())]
    Definition {
        /// The `metadata.name` of the definition; empty if it has none.
        name: String,
        /// The response of the server.
        status: Status,
    },
}

// === impl EmbeddedOptions ===

impl Default for EmbeddedOptions {
    fn default() -> Self {
        Self {
            api: ApiOptions::new(Arc::new(Timestamp::now)),
            tokens: Vec::new(),
            #[cfg(feature = "workloads")]
            controllers: BTreeSet::new(),
            crds: Vec::new(),
            #[cfg(feature = "http")]
            data: None,
            #[cfg(feature = "http")]
            port: None,
            #[cfg(feature = "http")]
            audit: false,
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
    pub async fn start_with(mut options: EmbeddedOptions) -> Result<Self, EmbeddedError> {
        let seed = options.api.seed;
        let shift = Shift::default();
        options.api.clock = shift.over(options.api.clock);
        #[cfg(feature = "workloads")]
        let clock = Arc::clone(&options.api.clock);
        #[cfg(feature = "http")]
        let api = match &options.data {
            Some(path) => Api::open(path, options.api).await?,
            None => Api::new(options.api).await,
        };
        #[cfg(not(feature = "http"))]
        let api = Api::new(options.api).await;
        for definition in options.crds {
            define(&api, definition).await?;
        }
        let service = ApiService::new(api.clone(), options.tokens, seed);
        #[cfg(feature = "http")]
        let (loopback, service) = Loopback::start(service, api.store(), options.port, options.audit).await?;
        #[cfg(feature = "workloads")]
        let (controllers, time) = {
            #[cfg(feature = "http")]
            let root_ca = loopback.authority();
            #[cfg(not(feature = "http"))]
            let root_ca = "";
            let settings = workloads::Options {
                controllers: options.controllers,
                ..workloads::Options::new(root_ca, clock)
            };
            let (mut task, mut time) = (JoinSet::new(), None);
            if !settings.controllers.is_empty() {
                let (handle, controllers) = workloads::prepare(api.clone(), settings, shift.clone());
                task.spawn(controllers);
                time = Some(handle);
            }
            (task, time)
        };
        Ok(Self {
            api,
            service,
            shift,
            #[cfg(feature = "workloads")]
            controllers,
            #[cfg(feature = "workloads")]
            time,
            #[cfg(feature = "http")]
            loopback,
        })
    }

    /// Returns a client with the rights of an administrator. It calls the server without a socket.
    pub fn client(&self) -> Client {
        Client::new(self.service.as_user(User::admin()), DEFAULT_NAMESPACE)
    }

    /// Returns a client with the given user name and groups, and the rights that roles give them. It calls
    /// the server without a socket.
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

    /// Moves the clock of the server forward. The controllers reconcile everything that becomes due in that
    /// time, in order and each at its own time, as if the time had passed. When this returns, they are idle.
    ///
    /// Times in objects, the deadlines of controllers and the expiry of tokens follow this clock. Watches,
    /// connections and injected delays do not.
    ///
    /// # Examples
    ///
    /// An hour of a `CronJob` that starts a Job every twenty minutes:
    ///
    /// ```
    /// # #[cfg(feature = "workloads")]
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    ///
    /// use k8s_openapi::api::batch::v1::{CronJob, Job};
    /// use kube::api::{Api, ListParams, PostParams};
    /// use mainstay_devcluster::workloads::Controller;
    /// use mainstay_devcluster::{Embedded, EmbeddedOptions};
    ///
    /// let controllers = Controller::ALL.into();
    /// let cluster = Embedded::start_with(EmbeddedOptions { controllers, ..Default::default() }).await?;
    /// let (cron_jobs, jobs): (Api<CronJob>, Api<Job>) =
    ///     (Api::default_namespaced(cluster.client()), Api::default_namespaced(cluster.client()));
    /// let report = serde_json::from_value(serde_json::json!({
    ///     "metadata": {"name": "report"},
    ///     "spec": {
    ///         "schedule": "*/20 * * * *",
    ///         "jobTemplate": {"spec": {"template": {"spec": {
    ///             "restartPolicy": "Never",
    ///             "containers": [{"name": "main", "image": "example.invalid/report:1"}],
    ///         }}}},
    ///     },
    /// }))?;
    /// cron_jobs.create(&PostParams::default(), &report).await?;
    ///
    /// cluster.advance(Duration::from_secs(3600)).await;
    /// let jobs = jobs.list(&ListParams::default()).await?;
    /// let completed =
    ///     |job: &&Job| job.status.as_ref().is_some_and(|status| status.completion_time.is_some());
    /// assert_eq!(jobs.iter().filter(completed).count(), 3);
    /// # cluster.stop().await;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "workloads"))]
    /// # fn main() {}
    /// ```
    #[cfg_attr(not(feature = "workloads"), expect(clippy::unused_async, reason = "no controller is awaited"))]
    pub async fn advance(&self, by: Duration) {
        #[cfg(feature = "workloads")]
        if let Some(time) = &self.time {
            return time.advance(by).await;
        }
        self.shift.advance(by);
    }

    /// Returns the URL of the server on loopback.
    #[cfg(feature = "http")]
    pub fn url(&self) -> String {
        self.loopback.url()
    }

    /// Returns the kubeconfig of the administrator as YAML, with the certificates inline.
    #[cfg(feature = "http")]
    pub fn kubeconfig(&self) -> &str {
        self.loopback.kubeconfig()
    }

    /// Returns the path of a file with [`kubeconfig`](Self::kubeconfig).
    #[cfg(feature = "http")]
    pub fn kubeconfig_path(&self) -> &Path {
        self.loopback.kubeconfig_path()
    }

    /// Returns the path of the certificate of the authority that signed the server's certificate. Its key is
    /// beside it, with the extension `key`.
    #[cfg(feature = "http")]
    pub fn authority_path(&self) -> &Path {
        self.loopback.authority_path()
    }

    /// Returns the path of the temporary folder of this server, which is removed with the server. It stays if
    /// this process is killed.
    #[cfg(feature = "http")]
    pub fn folder(&self) -> &Path {
        self.loopback.folder()
    }

    /// Closes the port, as if the API server had ended, and returns when no connection is left. Open requests
    /// have `grace` to complete. Objects, controllers and clients without a socket stay. No effect if the
    /// port is closed.
    #[cfg(feature = "http")]
    pub async fn close_port(&self, grace: Duration) {
        self.loopback.close(grace).await;
    }

    /// Opens the port again after [`close_port`](Self::close_port), with the same certificates. No effect if
    /// it is open.
    #[cfg(feature = "http")]
    pub async fn open_port(&self) -> Result<(), EmbeddedError> {
        self.loopback.open(&self.service).await
    }

    /// Ends all controllers, open watches and connections, and returns when no task, no socket and no file is
    /// left.
    ///
    /// Clients without a socket remain usable after that.
    pub async fn stop(self) {
        #[cfg(feature = "workloads")]
        {
            let mut controllers = self.controllers;
            controllers.shutdown().await;
        }
        self.service.faults().cut_watches();
        #[cfg(feature = "http")]
        self.loopback.stop().await;
        self.api.store().close().await;
    }
}

/// Creates a `CustomResourceDefinition`; its kind is served when this returns.
async fn define(api: &Api, definition: Value) -> Result<(), EmbeddedError> {
    let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let target = Target::new("apiextensions.k8s.io", "v1", "customresourcedefinitions");
    let create = Request::new(Verb::Create, target.clone()).with_body(definition.clone());
    let defined = match api.call(create).await {
        // A file has an earlier version of it.
        Err(status) if status.reason() == "AlreadyExists" => {
            let apply = Request::new(Verb::Patch(PatchType::Apply), target.name(&name));
            let apply = apply.with("fieldManager", "mainstay-devcluster").with("force", "true");
            api.call(apply.with_body(definition)).await
        }
        defined => defined,
    };
    match defined {
        Ok(_) => Ok(()),
        Err(status) => Err(EmbeddedError::Definition { name, status }),
    }
}

#[cfg(test)]
mod tests;
