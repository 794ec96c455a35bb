//! The port of an embedded server on loopback, and its files: kubeconfig, authority, audit log.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::Mutex;

use super::EmbeddedError;
use crate::port::Port;
use crate::server::{ApiService, Audit, Identity, Listener};

/// Longest wait of a stop for open requests.
pub(crate) const GRACE: Duration = Duration::from_secs(2);

/// The port and the files of a server.
#[derive(Debug)]
pub(super) struct Loopback {
    /// `None` while the port is closed. The lock is held for the whole of a close or open.
    listener: Mutex<Option<Listener>>,
    identity: Identity,
    port: Port,
    kubeconfig: String,
    kubeconfig_path: PathBuf,
    authority_path: PathBuf,
    folder: TempDir,
}

// === impl Loopback ===

impl Loopback {
    /// Starts to serve on a free port. Returns the service with the audit log, if one is kept.
    pub(super) async fn start(
        mut service: ApiService,
        audit: bool,
    ) -> Result<(Self, ApiService), EmbeddedError> {
        let identity = Identity::generate()?;
        let port = Port::reserve().map_err(EmbeddedError::Bind)?;
        let kubeconfig = identity.kubeconfig(&url(&port));
        let folder = tempfile::Builder::new().prefix("mainstay-devcluster-").tempdir();
        let folder = folder.map_err(EmbeddedError::Folder)?;
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).map(|()| path).map_err(EmbeddedError::Folder)
        };
        let kubeconfig_path = write("kubeconfig", &kubeconfig)?;
        let authority_path = write("ca.crt", identity.authority())?;
        write("ca.key", identity.authority_key())?;
        if audit {
            let path = folder.path().join("audit.log");
            let file = OpenOptions::new().create(true).append(true).open(path);
            service = service.audited(Audit::new(file.map_err(EmbeddedError::Folder)?));
        }
        let listener = Mutex::new(None);
        let loopback = Self { listener, identity, port, kubeconfig, kubeconfig_path, authority_path, folder };
        loopback.open(&service).await?;
        Ok((loopback, service))
    }

    pub(super) async fn open(&self, service: &ApiService) -> Result<(), EmbeddedError> {
        let mut listener = self.listener.lock().await;
        if listener.is_none() {
            let opened = Listener::start(service.clone(), &self.identity, &self.port);
            *listener = Some(opened.map_err(EmbeddedError::Bind)?);
        }
        Ok(())
    }

    pub(super) async fn close(&self, grace: Duration) {
        if let Some(listener) = self.listener.lock().await.take() {
            listener.stop(grace).await;
        }
    }

    pub(super) async fn stop(self) {
        self.close(GRACE).await;
        // A failed removal leaves the folder behind, and there is no better remedy.
        drop(self.folder.close());
    }

    pub(super) fn url(&self) -> String {
        url(&self.port)
    }

    pub(super) fn kubeconfig(&self) -> &str {
        &self.kubeconfig
    }

    pub(super) fn kubeconfig_path(&self) -> &Path {
        &self.kubeconfig_path
    }

    /// Returns the certificate of the authority in PEM.
    #[cfg(feature = "workloads")]
    pub(super) fn authority(&self) -> &str {
        self.identity.authority()
    }

    pub(super) fn authority_path(&self) -> &Path {
        &self.authority_path
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder.path()
    }
}

fn url(port: &Port) -> String {
    format!("https://127.0.0.1:{}", port.number())
}
