//! The sample: a WaitDeployment and its prerequisite, a port of this machine that is closed at first.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::time::sleep;

use super::steps::Steps;

pub(super) const NAMESPACE: &str = "default";
pub(super) const NAME: &str = "hello";

/// Time until the prerequisite of the sample WaitDeployment comes up: long enough to see the closed gate.
const SLOW_START: Duration = Duration::from_secs(8);

/// The prerequisite of the sample WaitDeployment: a loopback port that is closed at first.
pub(super) struct Sample {
    pub(super) address: SocketAddr,
    /// The socket of the port: bound, so that no other process gets the port, and not listening yet, so that
    /// connections are refused.
    socket: TcpSocket,
}

// === impl Sample ===

impl Sample {
    /// Binds a free loopback port for the prerequisite of the sample, without listening on it.
    pub(super) fn reserve() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { address: socket.local_addr()?, socket })
    }

    /// Returns the manifest of the sample WaitDeployment, as a user would write it.
    pub(super) fn manifest(&self) -> Value {
        json!({
            "apiVersion": "apps.mainstay.dev/v1alpha1",
            "kind": "WaitDeployment",
            "metadata": {"namespace": NAMESPACE, "name": NAME},
            "waitProbe": {"address": self.address.to_string(), "timeout": "1s", "periodSeconds": 1},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": NAME}},
                "template": {
                    "metadata": {"labels": {"app": NAME}},
                    "spec": {"containers": [{"name": "hello", "image": "hello"}]},
                },
            },
        })
    }

    /// Listens on the port of the prerequisite after a delay, and accepts connections for as long as the
    /// future is polled.
    pub(super) async fn listen_later(self, steps: &Steps) -> io::Result<Infallible> {
        sleep(SLOW_START).await;
        let listener = self.socket.listen(16)?;
        steps.print(&format!("the prerequisite now listens on {}", self.address));
        loop {
            // A connection is all that a probe needs.
            drop(listener.accept().await?);
        }
    }
}
