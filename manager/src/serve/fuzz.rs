//! A connection in memory, for fuzz targets.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::CancellationToken;

use super::connection::Connection;
use super::peers::Peers;
use super::{Limits, Server};

/// A peer that sends its bytes in pieces, closes its sending side, and reads everything.
struct Peer<'a> {
    bytes: &'a [u8],
    piece: usize,
    answers: Arc<Mutex<Vec<u8>>>,
}

/// Serves a peer that sends these bytes, and returns what it was answered.
pub(crate) async fn converse(limits: Limits, router: Router, bytes: &[u8], piece: usize) -> Vec<u8> {
    let server = Server { limits, tls: None, router, stop: CancellationToken::new() };
    let peer = Peers::default().join(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let answers = Arc::new(Mutex::new(Vec::new()));
    Connection { server, peer }.converse(Peer { bytes, piece, answers: Arc::clone(&answers) }).await;
    std::mem::take(&mut *answers.lock())
}

// === impl Peer ===

impl AsyncRead for Peer<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let most = self.piece.min(buf.remaining()).min(self.bytes.len());
        let (piece, rest) = self.bytes.split_at(most);
        buf.put_slice(piece);
        self.bytes = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer<'_> {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.answers.lock().extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
