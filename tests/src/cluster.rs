//! An API server for a test: the binary's shared one, with a namespace per test, or an exclusive one. It is
//! embedded in this process or real, as the module `server` decides.
//!
//! # Invariants
//! 1. The shared cluster lives on a thread and runtime of its own: it survives the runtime of the test that
//!    happened to start it.
//! 2. The shared cluster is never stopped: its programs and its folder go when this process does, however it
//!    ends (mainstay-devcluster).
//! 3. Two tests never share a namespace, and no test waits for the deletion of its namespace.

mod missing;
mod server;
mod shared;

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ListParams, ObjectMeta, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{NamespaceResourceScope, Resource};
use kube::{Api, Client, Config};
use mainstay::client::infer;
use mainstay_devcluster::workloads::Controller;
use mainstay_devcluster::{ControlPlane, DevCluster, DevClusterError, EmbeddedOptions, Options, Progress};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{OnceCell, Semaphore, SemaphorePermit, mpsc};

use self::missing::{Failure, say};
use self::server::Server;
use self::shared::shared;
use crate::audit::{self, Detail};
use crate::manifests::Cleanup;

pub(crate) use self::missing::skip_or_fail;

/// The path of kubectl, once [`TestCluster::has_kubectl`] has found it.
static KUBECTL: OnceCell<PathBuf> = OnceCell::const_new();

/// A cluster as one test uses it, with a namespace for this test alone.
pub struct TestCluster {
    backing: Backing,
    admin: Client,
    namespace: String,
    /// Objects outside the test's namespace, to delete after the test.
    leftovers: Mutex<Vec<Cleanup>>,
}

enum Backing {
    /// The shared cluster, with the sender of cleanups to its thread. Unbounded: at most a few entries per
    /// test.
    Shared(Arc<DevCluster>, mpsc::UnboundedSender<Cleanup>),
    /// A cluster for this test alone; if it is a real one, with the permit that keeps other tests of the
    /// binary from starting a second one.
    Exclusive(Box<DevCluster>, Option<SemaphorePermit<'static>>),
    /// No cluster any more: left behind by `stop`, for the destructor.
    Stopped,
}

// === impl Backing ===

impl Backing {
    fn cluster(&self) -> &DevCluster {
        match self {
            Self::Shared(cluster, _) => cluster,
            Self::Exclusive(cluster, _) => cluster,
            Self::Stopped => panic!("the cluster was stopped"),
        }
    }
}

// === impl TestCluster ===

impl TestCluster {
    /// Returns the cluster that all tests of this binary share, with a new namespace in it.
    ///
    /// Returns None, after a printed notice, if the test needs the real programs and the machine has neither
    /// them nor Go to build them; the test then returns. In CI it fails the test instead.
    pub async fn shared() -> Option<Self> {
        let mut state = shared(Server::of_this_test());
        let started = state.wait_for(Option::is_some).await.map(|state| state.clone());
        match started {
            Ok(Some(Ok((cluster, cleanups)))) => Some(Self::attach(Backing::Shared(cluster, cleanups)).await),
            Ok(Some(Err(failure))) => failure.skip_or_fail(),
            Ok(None) | Err(_) => panic!("the thread of the shared cluster panicked while starting it"),
        }
    }

    /// Returns a cluster for this test alone, for tests that restart the server, delete CRDs or take away
    /// rights. Of the real programs one at a time: each takes most of a gigabyte. None as for
    /// [`TestCluster::shared`].
    pub async fn exclusive() -> Option<Self> {
        Self::exclusive_with(Server::of_this_test(), options()).await
    }

    /// Returns a cluster as [`TestCluster::exclusive`] does, without the CRDs of mainstay.
    pub async fn exclusive_without_crds() -> Option<Self> {
        Self::exclusive_with(Server::of_this_test(), Options { crds: Vec::new(), ..options() }).await
    }

    /// Returns a cluster as [`TestCluster::exclusive`] does, without CRDs and controllers: a second cluster
    /// beside another one.
    pub async fn another() -> Option<Self> {
        let options = Options { crds: Vec::new(), bare: true, ..options() };
        Self::exclusive_with(Server::of_this_test(), options).await
    }

    /// Returns a real cluster as [`TestCluster::exclusive`] does, with a log of every request, for
    /// [`TestCluster::usage`]. Its server also checks `blockOwnerDeletion`: the writer of such an owner
    /// reference needs the right to set finalizers on the owner.
    pub async fn observed() -> Option<Self> {
        let mut options = Options { apiserver_flags: audit::flags(Detail::Requests), ..options() };
        let plugin = "--enable-admission-plugins=OwnerReferencesPermissionEnforcement";
        options.apiserver_flags.push(plugin.to_owned());
        Self::exclusive_with(Server::only_real(), options).await
    }

    /// Returns a real cluster as [`TestCluster::another`] does, with the CRDs of mainstay; its API server
    /// advertises this address.
    pub async fn advertised(address: &str) -> Option<Self> {
        let mut options = Options { bare: true, ..options() };
        options.apiserver_flags.push(format!("--advertise-address={address}"));
        options.apiserver_flags.push("--endpoint-reconciler-type=lease".to_owned());
        Self::exclusive_with(Server::only_real(), options).await
    }

    /// Returns a real cluster as [`TestCluster::another`] does, with the CRDs of mainstay; its API server
    /// gets these additional flags.
    pub async fn flagged(flags: Vec<String>) -> Option<Self> {
        let mut options = Options { bare: true, ..options() };
        options.apiserver_flags.extend(flags);
        Self::exclusive_with(Server::only_real(), options).await
    }

    /// Waits until no other test of this binary has a control plane of its own. Until the permit is dropped
    /// no other test can start one: for a test whose subject starts a control plane.
    pub async fn turn() -> SemaphorePermit<'static> {
        static TURN: Semaphore = Semaphore::const_new(1);
        TURN.acquire().await.unwrap_or_else(|_closed| panic!("the semaphore is never closed"))
    }

    async fn exclusive_with(server: Server, options: Options) -> Option<Self> {
        let turn = match server {
            Server::Embedded => None,
            Server::Real => Some(Self::turn().await),
        };
        match start(server, options).await {
            Ok(cluster) => Some(Self::attach(Backing::Exclusive(Box::new(cluster), turn)).await),
            Err(error) => Failure::from(error).skip_or_fail(),
        }
    }

    async fn attach(backing: Backing) -> Self {
        let admin = client_of(backing.cluster().kubeconfig_path()).await;
        let namespace = new_namespace(&admin).await;
        Self { backing, admin, namespace, leftovers: Mutex::default() }
    }

    fn cluster(&self) -> &DevCluster {
        self.backing.cluster()
    }

    /// Returns a client of the API server with all rights.
    pub fn client(&self) -> Client {
        self.admin.clone()
    }

    /// Returns the name of the namespace that belongs to this test alone.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Returns the API of the objects of one kind in this test's namespace, with all rights.
    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType: Default>,
    {
        Api::namespaced(self.client(), &self.namespace)
    }

    /// Returns the path of the kubeconfig of the administrator.
    pub fn kubeconfig_path(&self) -> &Path {
        self.cluster().kubeconfig_path()
    }

    /// Returns the client configuration of the administrator.
    pub async fn connection(&self) -> Config {
        let connection = infer(Some(self.kubeconfig_path()), None).await;
        connection.unwrap_or_else(|error| panic!("no connection: {error}"))
    }

    /// Returns the URL of the API server.
    pub fn url(&self) -> String {
        self.cluster().url()
    }

    /// Returns the address of the API server as a socket address.
    pub fn address(&self) -> SocketAddr {
        let url = self.url();
        let address = url.trim_start_matches("https://").trim_end_matches('/').parse();
        address.unwrap_or_else(|error| panic!("{url} is no address: {error}"))
    }

    /// Returns the path of the file with the certificate authority of the API server.
    pub fn authority_path(&self) -> &Path {
        self.cluster().authority_path()
    }

    /// Returns the path of the private key of the API server's certificate authority.
    pub fn authority_key_path(&self) -> PathBuf {
        self.cluster().authority_path().with_extension("key")
    }

    /// Returns the folder in which the cluster's programs run.
    pub(crate) fn folder(&self) -> &Path {
        self.cluster().folder()
    }

    /// Returns a path for this test alone, in a folder that is deleted with the cluster.
    pub fn scratch(&self, name: &str) -> PathBuf {
        self.cluster().folder().join(format!("{}-{name}", self.namespace))
    }

    /// Returns a path beside the logs of the control plane, which are kept if the test fails.
    pub fn log_path(&self, name: &str) -> PathBuf {
        self.cluster().folder().join("logs").join(name)
    }

    /// Finds kubectl, which is built with the real programs. Returns false, after a printed notice, if the
    /// machine has neither it nor Go to build it; the test then returns. In CI it fails the test instead.
    pub async fn has_kubectl(&self) -> bool {
        if self.cluster().as_real().is_some() {
            return true;
        }
        match KUBECTL.get_or_try_init(|| ControlPlane::find_kubectl(Progress::new(say))).await {
            Ok(_) => true,
            Err(error) => Failure::from(DevClusterError::from(error)).skip_or_fail::<()>().is_some(),
        }
    }

    /// Runs kubectl in this test's namespace, asserts success and returns its standard output.
    pub async fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments).await;
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments:?}: {}: {errors}", output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs kubectl in this test's namespace and returns its output, also if it fails.
    ///
    /// # Panics
    /// Panics on the embedded server if no test has called [`TestCluster::has_kubectl`] before.
    pub async fn try_kubectl(&self, arguments: &[&str]) -> Output {
        let cluster = self.cluster();
        let path = match cluster.as_real() {
            Some(programs) => programs.kubectl(),
            None => KUBECTL.get().cloned().unwrap_or_else(|| panic!("`has_kubectl` comes before kubectl")),
        };
        let run = tokio::process::Command::new(path)
            .args(["--namespace", &self.namespace])
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", cluster.kubeconfig_path())
            // The discovery cache of kubectl is written there and deleted with the cluster.
            .env("HOME", cluster.folder())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        run.await.unwrap_or_else(|error| panic!("kubectl cannot be started: {error}"))
    }

    /// Returns the path of client-go's elector, which `tests/controlplane/build` puts beside the servers.
    /// None, after a printed notice, if the servers come from elsewhere; in CI that fails the test instead.
    pub(crate) fn elector(&self) -> Option<PathBuf> {
        let path = self.programs().kubectl().with_file_name("elector");
        if path.is_file() {
            return Some(path);
        }
        skip_or_fail(&format!("no {}; build it with tests/controlplane/build", path.display()))
    }

    /// Returns the programs of a real cluster.
    ///
    /// # Panics
    /// Panics on the embedded server: the test has to be in `tests/real.txt`.
    pub fn programs(&self) -> &ControlPlane {
        let programs = self.cluster().as_real();
        programs.unwrap_or_else(|| panic!("a test that needs the real programs has to be in tests/real.txt"))
    }

    /// Returns an exclusive cluster, to stop and start its API server.
    ///
    /// # Panics
    /// Panics on the shared cluster, which must keep running for the other tests.
    pub fn control_plane(&self) -> &DevCluster {
        match &self.backing {
            Backing::Exclusive(cluster, _) => cluster,
            Backing::Shared(..) | Backing::Stopped => {
                panic!("only TestCluster::exclusive() may be tampered with")
            }
        }
    }

    /// Discards the history of all objects, as the API server does by itself every few minutes. Does nothing
    /// while the server is down.
    ///
    /// # Panics
    /// Panics on the shared cluster, and if etcd refuses.
    pub async fn compact(&self) {
        if let Some(embedded) = self.control_plane().as_embedded() {
            return embedded.compact();
        }
        let socket = self.programs().etcd_socket();
        let Ok(list) = self.api::<ConfigMap>().list_metadata(&ListParams::default().limit(1)).await else {
            return;
        };
        let revision = list.metadata.resource_version.unwrap_or_default();
        let body = format!(r#"{{"revision":"{revision}"}}"#);
        let answer = async {
            let mut etcd = UnixStream::connect(&socket).await?;
            let request = format!(
                "POST /v3/kv/compaction HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\
                 Content-Length: {}\r\n\r\n{body}",
                body.len()
            );
            etcd.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            etcd.read_to_string(&mut answer).await?;
            std::io::Result::Ok(answer)
        };
        let answer = answer.await.unwrap_or_else(|error| panic!("{}: {error}", socket.display()));
        // A revision that is compacted already is fine.
        assert!(answer.starts_with("HTTP/1.1 200") || answer.contains("compacted"), "{answer}");
    }

    /// Ends an exclusive cluster and waits until all of it is gone; dropping it does the same without
    /// waiting. On the shared cluster only this test's namespace is deleted.
    pub async fn stop(mut self) {
        if let Backing::Exclusive(cluster, _turn) = std::mem::replace(&mut self.backing, Backing::Stopped) {
            cluster.stop().await;
        }
    }

    /// Deletes a namespace that the test has created, some time after this test.
    pub fn leave_namespace(&self, name: &str) {
        self.leave(Cleanup::Namespace(name.to_owned()));
    }

    /// Queues the deletion of an object outside the test's namespace, to run some time after this test.
    pub(crate) fn leave(&self, cleanup: Cleanup) {
        self.leftovers.lock().push(cleanup);
    }
}

impl std::fmt::Debug for TestCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TestCluster").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Drop for TestCluster {
    fn drop(&mut self) {
        let stopped = matches!(self.backing, Backing::Stopped);
        if std::thread::panicking()
            && !stopped
            && let Some(programs) = self.cluster().as_real()
        {
            match programs.keep_logs() {
                Ok(kept) => {
                    say(&format!("{}: logs of the control plane kept in {}", self.namespace, kept.display()));
                }
                Err(error) => {
                    say(&format!("{}: logs of the control plane are lost: {error}", self.namespace));
                }
            }
        }
        // An exclusive cluster is deleted as a whole.
        if let Backing::Shared(_, cleanups) = &self.backing {
            let own = Cleanup::Namespace(self.namespace.clone());
            for cleanup in self.leftovers.get_mut().drain(..).chain([own]) {
                // Fails only when the thread is gone, and then the process is ending.
                drop(cleanups.send(cleanup));
            }
        }
    }
}

// === private functions ===

fn options() -> Options {
    let definition = serde_json::to_value(mainstay_api::crd::crd());
    let definition = definition.unwrap_or_else(|error| panic!("the definition is not JSON: {error}"));
    Options {
        crds: vec![definition],
        apiserver_flags: audit::flags(Detail::Writes),
        progress: Progress::new(say),
        ..Options::default()
    }
}

/// Starts a cluster. Of `options`, the embedded server has the definitions and whether there are controllers;
/// it always keeps the audit log.
async fn start(server: Server, options: Options) -> Result<DevCluster, DevClusterError> {
    match server {
        Server::Real => DevCluster::start_real(options).await,
        Server::Embedded => {
            let options = EmbeddedOptions {
                controllers: if options.bare { BTreeSet::new() } else { Controller::ALL.into() },
                crds: options.crds,
                audit: true,
                ..EmbeddedOptions::default()
            };
            DevCluster::start_embedded(options).await
        }
    }
}

/// Returns a client for the kubeconfig at this path.
pub async fn client_of(kubeconfig: &Path) -> Client {
    let client = async {
        let kubeconfig = Kubeconfig::read_from(kubeconfig)?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        anyhow::Ok(Client::try_from(config)?)
    };
    client.await.unwrap_or_else(|error| panic!("{} makes no client: {error:#}", kubeconfig.display()))
}

async fn new_namespace(admin: &Client) -> String {
    // The process number keeps apart two binaries that use one cluster; the count keeps apart the tests of a
    // binary.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("test-{}-{count}", std::process::id());
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    match Api::<Namespace>::all(admin.clone()).create(&PostParams::default(), &namespace).await {
        Ok(_) => name,
        Err(error) => panic!("namespace {name} cannot be created: {error}"),
    }
}

pub(crate) async fn delete_namespace(admin: &Client, name: &str) -> Result<(), kube::Error> {
    Api::<Namespace>::all(admin.clone()).delete(name, &DeleteParams::background()).await.map(drop)
}
