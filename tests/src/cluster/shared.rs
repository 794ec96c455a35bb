//! The cluster that all tests of a binary share, on a thread of its own.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, OnceLock};

use mainstay_devcluster::DevCluster;
use tokio::sync::{mpsc, watch};

use super::missing::Failure;
use super::server::Server;
use super::{client_of, options};
use crate::manifests::Cleanup;

/// The shared cluster, and the sender of cleanups to its thread; None while it starts.
pub(super) type Shared = Option<Result<(Arc<DevCluster>, mpsc::UnboundedSender<Cleanup>), Failure>>;

/// Returns a receiver of the shared cluster on this server, which the first call starts.
pub(super) fn shared(server: Server) -> watch::Receiver<Shared> {
    static EMBEDDED: OnceLock<watch::Receiver<Shared>> = OnceLock::new();
    static REAL: OnceLock<watch::Receiver<Shared>> = OnceLock::new();
    let shared = match server {
        Server::Embedded => &EMBEDDED,
        Server::Real => &REAL,
    };
    shared.get_or_init(|| start(server)).clone()
}

fn start(server: Server) -> watch::Receiver<Shared> {
    let (state, started) = watch::channel(None);
    let thread = std::thread::Builder::new().name("shared-cluster".to_owned());
    // Detached on purpose: invariant 2 of `cluster`.
    if let Err(error) = thread.spawn(move || run(server, &state)) {
        panic!("no thread for the shared cluster: {error}");
    }
    started
}

fn run(server: Server, state: &watch::Sender<Shared>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("no runtime for the shared cluster: {error}"));
    runtime.block_on(async {
        match super::start(server, options()).await {
            Err(error) => {
                state.send_replace(Some(Err(error.into())));
            }
            Ok(cluster) => {
                // Until the process ends, because this task does.
                let _remover = matches!(server, Server::Embedded).then(|| remove_at_end(&cluster));
                let cluster = Arc::new(cluster);
                let admin = client_of(cluster.kubeconfig_path()).await;
                let (cleanups, mut left) = mpsc::unbounded_channel();
                state.send_replace(Some(Ok((cluster, cleanups))));
                // Ends only with the process: the static keeps a sender.
                while let Some(cleanup) = left.recv().await {
                    cleanup.run(&admin).await;
                }
            }
        }
    });
}

/// Starts a process that removes the folder of an embedded cluster when this process ends: no destructor of a
/// static runs then. A real cluster has such a process by itself.
fn remove_at_end(cluster: &DevCluster) -> Child {
    let folder = cluster.kubeconfig_path().parent().unwrap_or_else(|| panic!("the kubeconfig has a folder"));
    Command::new("sh")
        .args(["-c", r#"cat >/dev/null; rm -rf -- "$1""#, "sh"])
        .arg(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("no process to remove {}: {error}", folder.display()))
}
