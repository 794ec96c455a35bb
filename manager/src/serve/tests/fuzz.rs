//! A connection in memory, for fuzz targets.

use std::net::{IpAddr, Ipv4Addr};

use axum::Router;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::peers::Peers;
use super::{Limits, Server};

/// Sends these bytes in pieces and returns the answers.
pub(crate) async fn converse(limits: Limits, router: Router, bytes: &[u8], piece: usize) -> Vec<u8> {
    let server = Server { limits, tls: None, router, stop: CancellationToken::new() };
    let peer = Peers::default().join(IpAddr::V4(Ipv4Addr::LOCALHOST));
    // Answers are read after all bytes were sent, so the buffer must hold them.
    let (mut ours, theirs) = tokio::io::duplex(16 * 1024 * 1024);
    let client = async {
        for piece in bytes.chunks(piece) {
            // The server may have closed the connection.
            let _sent = ours.write_all(piece).await;
            tokio::task::yield_now().await;
        }
        let _closed = ours.shutdown().await;
        let mut answers = Vec::new();
        let _read = ours.read_to_end(&mut answers).await;
        answers
    };
    tokio::join!(client, Connection { server, peer }.serve_http(theirs)).0
}
