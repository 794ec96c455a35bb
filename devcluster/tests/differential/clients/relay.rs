//! A port between the clients and the API server, at which the test cuts their connections.

use std::net::Ipv4Addr;
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The time between attempts to reach a server that restarts.
const PAUSE: Duration = Duration::from_millis(50);

/// Relays connections until it is dropped. While the server restarts, new connections wait.
#[derive(Debug)]
pub(crate) struct Relay {
    port: u16,
    cuts: watch::Sender<()>,
    _serving: JoinSet<()>,
}

// === impl Relay ===

impl Relay {
    pub(crate) async fn start(server: &str) -> Self {
        let server = server.rsplit('/').next().expect("an address").to_owned();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port of loopback");
        let port = listener.local_addr().expect("an address").port();
        let (cuts, mut cut) = watch::channel(());
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                // Unbiased: neither starves the other.
                tokio::select! {
                    accepted = listener.accept() => {
                        let (mut client, _) = accepted.expect("a connection");
                        let server = server.clone();
                        connections.spawn(async move {
                            let mut server = loop {
                                match TcpStream::connect(&server).await {
                                    Ok(server) => break server,
                                    Err(_) => tokio::time::sleep(PAUSE).await,
                                }
                            };
                            copy_bidirectional(&mut client, &mut server).await
                        });
                    }
                    cut = cut.changed() => {
                        if cut.is_err() {
                            return;
                        }
                        connections.shutdown().await;
                    }
                }
            }
        });
        Self { port, cuts, _serving: serving }
    }

    pub(crate) fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// Cuts all connections that are open now.
    pub(crate) fn cut(&self) {
        self.cuts.send_replace(());
    }
}
