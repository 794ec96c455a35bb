//! One HTTP/1.1 connection over TLS: as little client as possible, since it shares the processors with the
//! server.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::Request;
use http::header::{CONTENT_TYPE, HOST};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kube::Config;
use kube::client::ConfigExt as _;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

/// An open connection.
pub(crate) struct Connection {
    sender: SendRequest<Full<Bytes>>,
    host: String,
    /// The task that moves the bytes.
    _driver: JoinSet<()>,
}

// === impl Connection ===

impl Connection {
    /// Connects to the server of a kubeconfig with its client certificate.
    pub(crate) async fn open(config: &Config) -> anyhow::Result<Self> {
        let url = &config.cluster_url;
        let host = url.authority().context("a URL with a host")?.to_string();
        let stream = TcpStream::connect(&host).await?;
        stream.set_nodelay(true)?;
        let tls = TlsConnector::from(Arc::new(config.rustls_client_config()?));
        let name = ServerName::try_from(url.host().unwrap_or_default().to_owned())?;
        let (sender, connection) = handshake(TokioIo::new(tls.connect(name, stream).await?)).await?;
        let mut driver = JoinSet::new();
        driver.spawn(async move {
            // The request in flight reports the error.
            drop(connection.await);
        });
        Ok(Self { sender, host, _driver: driver })
    }

    /// Posts JSON.
    pub(crate) async fn post(&mut self, path: &str, body: String) -> anyhow::Result<()> {
        let request = Request::post(path).header(CONTENT_TYPE, "application/json");
        let answer = self.send(request, body).await?;
        answer.collect().await?;
        Ok(())
    }

    /// Sends a GET and returns the body of the answer as it arrives.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<Incoming> {
        self.send(Request::get(path), String::new()).await
    }

    async fn send(&mut self, request: http::request::Builder, body: String) -> anyhow::Result<Incoming> {
        let request = request.header(HOST, &self.host).body(Full::from(body))?;
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let status = response.status();
        ensure!(status.is_success(), "the server answered {status}");
        Ok(response.into_body())
    }
}
