//! Start, readiness and end of one cluster.
//!
//! # Invariants
//! 1. When `start` returns, a Deployment created at once gets ready Pods: every server and the one Node are
//!    ready. A bare cluster has neither Node nor controllers.
//! 2. After every end of a cluster (`stop`, drop, a failed or cancelled start, this process killed) no
//!    program and no folder of it remains. Only `stop` waits for that. (If this process is killed, programs
//!    that are not from tests/controlplane survive: they ignore the end of their standard input.)
//! 3. The address, the identities and the data stay the same across restarts of the API server.

mod beside;
mod error;
mod shell;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Mutex;

use crate::real::command_line;
use crate::real::process::Process;
use crate::real::programs::Programs;
use crate::real::progress::Progress;

pub use beside::ApiServer;
pub use error::StartError;
use shell::Shell;

/// Time between SIGTERM and SIGKILL for an API server: after SIGTERM it refuses new connections but waits
/// for its watches.
const APISERVER_GRACE: Duration = Duration::from_secs(2);

/// File name of the program that runs the controllers of the cluster.
const CONTROLLERS: &str = "kube-controller-manager";

/// The settings of a private cluster for development and tests.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The folder with the programs of the control plane; `None` for `KUBEBUILDER_ASSETS`, else for those of
    /// tests/controlplane.
    pub assets: Option<PathBuf>,
    /// CustomResourceDefinitions that exist before the controllers start. The garbage collector discovers new
    /// kinds only every 30 seconds, but all kinds of its start at once.
    pub crds: Vec<Value>,
    /// Whether only etcd and the API server run: objects are stored but no controller acts on them, there is
    /// no Node, and a deleted namespace stays. Takes a third of the memory.
    pub bare: bool,
    /// Flags appended to the API server's command line.
    pub apiserver_flags: Vec<String>,
    /// Receives the output of the build of the programs, line by line.
    pub progress: Progress,
}

/// A running control plane with one Node.
#[derive(Debug)]
pub struct ControlPlane {
    // Fields are dropped in this order: clients before servers, the folder last. Each lock is held over a
    // whole stop or start, so that two callers take turns.
    clients: Vec<Process>,
    /// The processes of kube-controller-manager and kwok; empty in a bare cluster, and after a restart that
    /// failed.
    controllers: Mutex<Vec<Process>>,
    /// The process of the API server; `None` while a test has stopped it.
    apiserver: Mutex<Option<Process>>,
    /// The process of etcd; `None` while a test has stopped it.
    etcd: Mutex<Option<Process>>,
    shell: Shell,
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Finds or builds the programs of the control plane, starts them and returns once they work together:
    /// seconds, or about nine minutes where they must be built without a warm cache.
    ///
    /// # Errors
    /// Programs that have started are killed. If a program fails, the logs are kept and the error has their
    /// folder.
    ///
    /// # Cancel safety
    /// Dropping the future kills the programs that have started.
    pub async fn start(options: Options) -> Result<Self, StartError> {
        let programs = Programs::find(options.assets.clone(), &options.progress).await?;
        let shell = Shell::new(programs, options)?;
        let mut etcd = start_etcd(&shell).await?;
        let mut apiserver = shell.spawn_first_apiserver()?;
        shell.until("kube-apiserver", &mut [&mut etcd, &mut apiserver], || shell.apiserver_ready()).await?;
        for crd in &shell.options.crds {
            let watched = &mut [&mut etcd, &mut apiserver];
            shell.until("a CustomResourceDefinition", watched, || shell.crd_served(crd)).await?;
        }

        if shell.options.bare {
            return Ok(Self::of(Vec::new(), Vec::new(), apiserver, etcd, shell));
        }

        let mut controllers = spawn_controllers(&shell)?;
        let port = shell.scheduler_port.number();
        let flags = command_line::scheduler(port, &shell.certificates, &shell.kubeconfig);
        let mut scheduler = shell.spawn("kube-scheduler", &flags)?;
        let mut kwok = spawn_kwok(&shell)?;
        {
            let watched = &mut [&mut etcd, &mut apiserver, &mut controllers, &mut scheduler, &mut kwok];
            shell.until(CONTROLLERS, watched, || shell.controllers_ready()).await?;
            let port = shell.scheduler_port.number();
            shell.until("kube-scheduler", watched, || shell.ready(port, "/readyz")).await?;
            shell.until("the Node", watched, || shell.node_ready()).await?;
        }
        Ok(Self::of(vec![scheduler], vec![kwok, controllers], apiserver, etcd, shell))
    }

    fn of(
        clients: Vec<Process>,
        controllers: Vec<Process>,
        apiserver: Process,
        etcd: Process,
        shell: Shell,
    ) -> Self {
        let (apiserver, etcd) = (Mutex::new(Some(apiserver)), Mutex::new(Some(etcd)));
        Self { clients, controllers: Mutex::new(controllers), apiserver, etcd, shell }
    }

    /// Returns the path of the administrator's kubeconfig. It refers to files beside it, and is removed with
    /// the cluster.
    pub fn kubeconfig_path(&self) -> &Path {
        &self.shell.kubeconfig
    }

    /// Finds or builds the programs of a control plane, as [`start`](Self::start) does, and returns the path
    /// of their kubectl.
    pub async fn find_kubectl(progress: Progress) -> Result<PathBuf, StartError> {
        Ok(Programs::find(None, &progress).await?.path("kubectl"))
    }

    /// Returns the path of the kubectl that has the version of the servers.
    pub fn kubectl(&self) -> PathBuf {
        self.shell.programs.path("kubectl")
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> String {
        self.shell.url()
    }

    /// Returns the path of the certificate of the authority that signed the servers' certificates.
    pub fn authority_path(&self) -> &Path {
        &self.shell.certificates.authority
    }

    /// Returns the path of the folder in which the cluster keeps all its files.
    pub fn folder(&self) -> &Path {
        self.shell.folder.path()
    }

    /// Returns the path of etcd's Unix socket, which takes gRPC and plain HTTP.
    pub fn etcd_socket(&self) -> PathBuf {
        self.folder().join(command_line::ETCD_SOCKET)
    }

    /// Copies the programs' logs to a folder that outlives the cluster, and returns that folder.
    pub fn keep_logs(&self) -> io::Result<PathBuf> {
        self.shell.folder.keep_logs()
    }

    /// Returns the process ids of the running programs of the cluster.
    pub async fn process_ids(&self) -> Vec<u32> {
        let (controllers, etcd) = (self.controllers.lock().await, self.etcd.lock().await);
        let apiserver = self.apiserver.lock().await;
        let servers = [&etcd, &apiserver].into_iter().filter_map(|process| process.as_ref());
        self.clients.iter().chain(controllers.iter()).chain(servers).filter_map(Process::id).collect()
    }

    /// Sends SIGTERM to the API server, kills it after two seconds, and returns when it is gone. Its data
    /// stay.
    pub async fn stop_apiserver(&self) {
        end(&mut *self.apiserver.lock().await, APISERVER_GRACE).await;
    }

    /// Kills the API server without a graceful end of its connections. Its data stay.
    pub async fn kill_apiserver(&self) {
        end(&mut *self.apiserver.lock().await, Duration::ZERO).await;
    }

    /// Starts the API server again, on the same address, and returns when it is ready. No effect if it
    /// runs.
    pub async fn start_apiserver(&self) -> Result<(), StartError> {
        let mut apiserver = self.apiserver.lock().await;
        if apiserver.is_none() {
            let mut process = self.shell.spawn_first_apiserver()?;
            self.shell.until("kube-apiserver", &mut [&mut process], || self.shell.apiserver_ready()).await?;
            *apiserver = Some(process);
        }
        Ok(())
    }

    /// Stops and starts the API server.
    pub async fn restart_apiserver(&self) -> Result<(), StartError> {
        self.stop_apiserver().await;
        self.start_apiserver().await
    }

    /// Kills etcd. Its data stay, and the API server keeps running without it.
    pub async fn kill_etcd(&self) {
        end(&mut *self.etcd.lock().await, Duration::ZERO).await;
    }

    /// Starts etcd again on its data and returns when it accepts connections. No effect if it runs.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn start_etcd(&self) -> Result<(), StartError> {
        let mut etcd = self.etcd.lock().await;
        if etcd.is_none() {
            *etcd = Some(start_etcd(&self.shell).await?);
        }
        Ok(())
    }

    /// Kills kube-controller-manager and kwok, starts them anew and returns when the former is ready. A new
    /// kwok reconciles every Pod; the old one does not repeat a write that failed. No effect in a bare
    /// cluster.
    ///
    /// # Errors
    /// If one of them cannot be started.
    pub async fn restart_controllers(&self) -> Result<(), StartError> {
        if self.shell.options.bare {
            return Ok(());
        }
        let mut running = self.controllers.lock().await;
        for process in running.drain(..) {
            process.stop(Duration::ZERO).await;
        }
        let mut controllers = spawn_controllers(&self.shell)?;
        let mut kwok = spawn_kwok(&self.shell)?;
        let watched = &mut [&mut controllers, &mut kwok];
        self.shell.until(CONTROLLERS, watched, || self.shell.controllers_ready()).await?;
        running.extend([kwok, controllers]);
        Ok(())
    }

    /// Ends every program of the cluster and removes its folder, and returns when that is done.
    pub async fn stop(self) {
        // A graceful end would save no data: the folder is removed next.
        let servers = [self.apiserver, self.etcd].into_iter().filter_map(Mutex::into_inner);
        for process in self.clients.into_iter().chain(self.controllers.into_inner()).chain(servers) {
            process.stop(Duration::ZERO).await;
        }
        self.shell.folder.remove().await;
    }
}

/// Takes the process out of `process`, stops it with this grace period, and returns when it is gone.
async fn end(process: &mut Option<Process>, grace: Duration) {
    if let Some(process) = process.take() {
        process.stop(grace).await;
    }
}

async fn start_etcd(shell: &Shell) -> Result<Process, StartError> {
    let mut etcd = shell.spawn("etcd", &command_line::etcd())?;
    shell.until("etcd", &mut [&mut etcd], || shell.etcd_answers()).await?;
    Ok(etcd)
}

fn spawn_controllers(shell: &Shell) -> Result<Process, StartError> {
    let port = shell.controller_manager_port.number();
    shell.spawn(CONTROLLERS, &command_line::controller_manager(port, &shell.certificates, &shell.kubeconfig))
}

fn spawn_kwok(shell: &Shell) -> Result<Process, StartError> {
    let stages = shell.folder.path().join("stages.yaml");
    shell.spawn("kwok", &command_line::kwok(&shell.kubeconfig, &stages))
}

#[cfg(test)]
mod tests;
