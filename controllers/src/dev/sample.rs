//! The sample: a WaitDeployment and its prerequisite, a port of this machine that nobody listens on at first.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpSocket;
use tokio::time::sleep;

use super::story::Story;

pub(super) const NAMESPACE: &str = "default";
pub(super) const NAME: &str = "hello";

/// How long the prerequisite takes to come up: long enough to watch the gate being closed.
const SLOW_START: Duration = Duration::from_secs(8);

/// A prerequisite that is not up yet.
pub(super) struct Sample {
    address: SocketAddr,
    /// Bound, so that nobody else gets the port, and not listening, so that connections are refused.
    socket: Option<TcpSocket>,
}

// === impl Sample ===

impl Sample {
    /// Takes a free port of loopback.
    pub(super) fn reserve() -> io::Result<Self> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0).into())?;
        Ok(Self { address: socket.local_addr()?, socket: Some(socket) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The WaitDeployment, as a user would write it.
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

    /// Starts to listen after a while and goes on for as long as it is polled.
    pub(super) async fn come_up(&mut self, story: &Story) -> io::Result<Infallible> {
        sleep(SLOW_START).await;
        let Some(socket) = self.socket.take() else { return std::future::pending().await };
        let listener = socket.listen(16)?;
        story.say(&format!("the prerequisite now listens on {}", self.address));
        loop {
            // Whoever connects has seen what it wanted to know.
            drop(listener.accept().await?);
        }
    }
}
