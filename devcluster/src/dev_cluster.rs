//! One type for both kinds of cluster, so that a test runs on either.

use std::path::Path;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};

use crate::embedded::{Embedded, EmbeddedError, EmbeddedOptions, GRACE};
use crate::real::{ControlPlane, Options, StartError};
use crate::workloads::Controller;

/// A running Kubernetes cluster on this machine: the embedded server, or the real programs.
///
/// Dropping it ends and removes all of it in the background; [`stop`](Self::stop) waits for that.
#[derive(Debug)]
pub struct DevCluster(Server);

#[derive(Debug)]
enum Server {
    Embedded(Box<Embedded>),
    Real(Box<Real>),
}

#[derive(derive_more::Debug)]
struct Real {
    control_plane: ControlPlane,
    /// The connection of the administrator.
    config: Config,
    #[debug(skip)]
    client: Client,
}

/// The reason why a cluster did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DevClusterError {
    /// The embedded server did not start.
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    /// The real programs did not start.
    #[error(transparent)]
    Real(#[from] StartError),
    /// The kubeconfig of the real cluster could not be read.
    #[error("reading the kubeconfig of the cluster failed")]
    Kubeconfig(#[from] KubeconfigError),
    /// The kubeconfig of the real cluster makes no client.
    #[error("making a client of the cluster failed")]
    Client(#[source] Box<kube::Error>),
}

// === impl DevCluster ===

impl DevCluster {
    /// Starts an embedded server with all its controllers, within milliseconds.
    pub async fn start() -> Result<Self, DevClusterError> {
        let controllers = Controller::ALL.into();
        Self::start_embedded(EmbeddedOptions { controllers, ..EmbeddedOptions::default() }).await
    }

    /// Starts the real programs, within seconds. If they are missing, they are built with Go, within minutes.
    pub async fn real() -> Result<Self, DevClusterError> {
        Self::start_real(Options::default()).await
    }

    /// Starts an embedded server with these options.
    pub async fn start_embedded(options: EmbeddedOptions) -> Result<Self, DevClusterError> {
        Ok(Self(Server::Embedded(Box::new(Embedded::start_with(options).await?))))
    }

    /// Starts the real programs with these options, as [`ControlPlane::start`] does.
    pub async fn start_real(options: Options) -> Result<Self, DevClusterError> {
        let control_plane = ControlPlane::start(options).await?;
        let kubeconfig = Kubeconfig::read_from(control_plane.kubeconfig_path())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        let client =
            Client::try_from(config.clone()).map_err(|error| DevClusterError::Client(error.into()))?;
        Ok(Self(Server::Real(Box::new(Real { control_plane, config, client }))))
    }

    /// Returns the embedded server; `None` for the real programs.
    pub fn as_embedded(&self) -> Option<&Embedded> {
        match &self.0 {
            Server::Embedded(embedded) => Some(embedded),
            Server::Real(_) => None,
        }
    }

    /// Returns the real programs; `None` for the embedded server.
    pub fn as_real(&self) -> Option<&ControlPlane> {
        match &self.0 {
            Server::Embedded(_) => None,
            Server::Real(real) => Some(&real.control_plane),
        }
    }

    /// Returns a client with the rights of an administrator, on the runtime on which the cluster started. One
    /// of the embedded server needs no socket.
    pub fn client(&self) -> Client {
        match &self.0 {
            Server::Embedded(embedded) => embedded.client(),
            Server::Real(real) => real.client.clone(),
        }
    }

    /// Returns a client with the given user name and groups, and the rights that roles give them.
    ///
    /// # Errors
    /// If a name cannot stand in a header of HTTP.
    pub fn client_as<'a>(
        &self,
        user: &str,
        groups: impl IntoIterator<Item = &'a str>,
    ) -> Result<Client, kube::Error> {
        match &self.0 {
            Server::Embedded(embedded) => Ok(embedded.client_as(user, groups)),
            Server::Real(real) => {
                let mut config = real.config.clone();
                config.auth_info.impersonate = Some(user.to_owned());
                config.auth_info.impersonate_groups = Some(groups.into_iter().map(str::to_owned).collect());
                Client::try_from(config)
            }
        }
    }

    /// Returns the path of the administrator's kubeconfig, which is removed with the cluster.
    pub fn kubeconfig_path(&self) -> &Path {
        self.either(Embedded::kubeconfig_path, ControlPlane::kubeconfig_path)
    }

    /// Returns the path of the certificate of the authority that signed the API server's certificate. Its key
    /// is beside it, with the extension `key`.
    pub fn authority_path(&self) -> &Path {
        self.either(Embedded::authority_path, ControlPlane::authority_path)
    }

    /// Returns the path of the folder in which the cluster keeps all its files.
    pub fn folder(&self) -> &Path {
        self.either(Embedded::folder, ControlPlane::folder)
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> String {
        self.either(Embedded::url, ControlPlane::url)
    }

    fn either<'a, T>(
        &'a self,
        embedded: impl FnOnce(&'a Embedded) -> T,
        real: impl FnOnce(&'a ControlPlane) -> T,
    ) -> T {
        match &self.0 {
            Server::Embedded(server) => embedded(server),
            Server::Real(server) => real(&server.control_plane),
        }
    }

    /// Stops the API server, with two seconds for open requests, and returns when it is gone. Its objects
    /// stay, and clients of the embedded server that need no socket remain usable.
    pub async fn stop_apiserver(&self) {
        match &self.0 {
            Server::Embedded(embedded) => embedded.close_port(GRACE).await,
            Server::Real(real) => real.control_plane.stop_apiserver().await,
        }
    }

    /// Ends the API server as [`stop_apiserver`](Self::stop_apiserver) does, without time for open requests.
    pub async fn kill_apiserver(&self) {
        match &self.0 {
            Server::Embedded(embedded) => embedded.close_port(Duration::ZERO).await,
            Server::Real(real) => real.control_plane.kill_apiserver().await,
        }
    }

    /// Starts the API server again, on the same address, and returns when it is ready. No effect if it runs.
    pub async fn start_apiserver(&self) -> Result<(), DevClusterError> {
        match &self.0 {
            Server::Embedded(embedded) => Ok(embedded.open_port().await?),
            Server::Real(real) => Ok(real.control_plane.start_apiserver().await?),
        }
    }

    /// Stops and starts the API server.
    pub async fn restart_apiserver(&self) -> Result<(), DevClusterError> {
        self.stop_apiserver().await;
        self.start_apiserver().await
    }

    /// Ends the cluster and returns when nothing of it is left.
    pub async fn stop(self) {
        match self.0 {
            Server::Embedded(embedded) => embedded.stop().await,
            Server::Real(real) => real.control_plane.stop().await,
        }
    }
}

// === impl DevClusterError ===

impl DevClusterError {
    /// Returns whether this machine has no control plane and no means to build one: tests may skip then.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Real(error) if error.is_unavailable())
    }
}
