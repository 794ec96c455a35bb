//! A second API server of a cluster, as a control plane that must not fail has several.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Mutex;

use super::shell::Shell;
use super::{APISERVER_GRACE, ControlPlane, StartError};
use crate::port::Port;
use crate::real::process::Process;

/// Another API server on the data of a cluster, with the same identities, at an address of its own. Dropping
/// this handle kills the server.
pub struct ApiServer<'c> {
    shell: &'c Shell,
    port: Port,
    /// Number of the additional API server, a part of the name of its log.
    number: u32,
    /// The process of the additional API server; `None` while a test has stopped it. The lock is held over a
    /// whole stop or start, so that two callers take turns.
    process: Mutex<Option<Process>>,
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Starts another API server on the same data and returns when it is ready. The programs of the cluster
    /// go on using the first one.
    ///
    /// # Errors
    /// If no port is free, or the API server cannot be started.
    pub async fn another_apiserver(&self) -> Result<ApiServer<'_>, StartError> {
        static COUNT: AtomicU32 = AtomicU32::new(2);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let server = ApiServer {
            shell: &self.shell,
            port: Port::reserve().map_err(StartError::Port)?,
            number,
            process: Mutex::new(None),
        };
        server.start().await?;
        Ok(server)
    }
}

// === impl ApiServer ===

impl ApiServer<'_> {
    /// Returns the URL of this additional API server.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port.number())
    }

    /// Sends SIGTERM to this API server, kills it after two seconds, and returns when it is gone.
    pub async fn stop(&self) {
        if let Some(process) = self.process.lock().await.take() {
            process.stop(APISERVER_GRACE).await;
        }
    }

    /// Starts this API server again, on the same address, and returns when it is ready. No effect if it runs.
    ///
    /// # Errors
    /// If the API server cannot be started.
    pub async fn start(&self) -> Result<(), StartError> {
        let mut running = self.process.lock().await;
        if running.is_none() {
            let port = self.port.number();
            let log = format!("kube-apiserver-{}", self.number);
            let mut process = self.shell.spawn_apiserver(port, &log)?;
            let watched = &mut [&mut process];
            self.shell.until("kube-apiserver", watched, || self.shell.ready(port, "/readyz")).await?;
            *running = Some(process);
        }
        Ok(())
    }
}

impl fmt::Debug for ApiServer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiServer").field("url", &self.url()).finish_non_exhaustive()
    }
}
