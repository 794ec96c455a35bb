//! The port of an embedded server on loopback, and its files: kubeconfig, authority, audit log.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use tokio::sync::Mutex;

use super::EmbeddedError;
use crate::port::Port;
use crate::server::{ApiService, Audit, Identity, Listener, Saved};
use crate::store::{GroupResource, Key, Store};

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

/// The part of a server that the file of its cluster keeps, so that a kubeconfig stays valid. The store has
/// it as an object of no served kind.
#[derive(Deserialize, Serialize)]
struct Kept {
    identity: Saved,
    port: u16,
}

// === impl Loopback ===

impl Loopback {
    /// Starts to serve on `port`; `None` for the port in the file of the store, if it is free, else for any
    /// free one. Returns the service with the audit log, if one is kept.
    pub(super) async fn start(
        mut service: ApiService,
        store: &Store,
        port: Option<u16>,
        audit: bool,
    ) -> Result<(Self, ApiService), EmbeddedError> {
        let kept = Kept::read(store);
        let (saved, last) = kept.map(|kept| (kept.identity, kept.port)).unzip();
        let identity = Identity::generate(saved)?;
        let port = match (port, last) {
            (Some(port), _) => Port::reserve_at(port),
            (None, Some(last)) => Port::reserve_at(last).or_else(|_| Port::reserve()),
            (None, None) => Port::reserve(),
        };
        let port = port.map_err(EmbeddedError::Bind)?;
        if store.has_file() {
            Kept { identity: identity.saved().clone(), port: port.number() }.write(store);
            store.written().await?;
        }
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

// === impl Kept ===

impl Kept {
    fn place() -> (GroupResource, Key) {
        (GroupResource::new("devcluster.mainstay.dev", "servers"), Key::new("", "server"))
    }

    fn read(store: &Store) -> Option<Self> {
        let (resource, key) = Self::place();
        serde_json::from_value(store.get(&resource, &key)?.value().clone()).ok()
    }

    fn write(&self, store: &Store) {
        let (resource, key) = Self::place();
        let Ok(value) = serde_json::to_value(self) else { return };
        // It cannot fail: only this function writes the object.
        drop(match store.get(&resource, &key) {
            Some(old) => store.update(&resource, &key, value, old.revision()),
            None => store.create(&resource, key, value),
        });
    }
}

fn url(port: &Port) -> String {
    format!("https://127.0.0.1:{}", port.number())
}
