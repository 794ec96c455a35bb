//! Proxies on loopback between a test and its API server: HTTP CONNECT and SOCKS5.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::ByteString;
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// A proxy that relays every connection to one server, whichever name is requested. Dropping it cuts them
/// all.
#[derive(Debug)]
pub struct Proxy {
    /// The address that the proxy listens on.
    pub address: SocketAddr,
    targets: Arc<Mutex<Vec<String>>>,
    _serving: JoinSet<()>,
}

/// The protocol of a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The proxy accepts HTTP CONNECT requests.
    Connect,
    /// The proxy accepts SOCKS5 requests.
    Socks,
}

impl Proxy {
    /// Starts a proxy to `server` that requires this user and password, or none.
    pub async fn before(
        server: SocketAddr,
        speaks: Protocol,
        user: Option<(&'static str, &'static str)>,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.unwrap_or_else(|error| panic!("a port of loopback: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("a listener has one: {error}"));
        let targets = Arc::<Mutex<Vec<String>>>::default();
        let mut serving = JoinSet::new();
        let names = Arc::clone(&targets);
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                let names = Arc::clone(&names);
                connections.spawn(async move {
                    let wanted = match speaks {
                        Protocol::Connect => connect(&mut client, user).await,
                        Protocol::Socks => socks(&mut client, user).await,
                    };
                    // A refused connection ends here, as does one that its client closed.
                    if let Ok(Some(wanted)) = wanted
                        && let Ok(mut server) = TcpStream::connect(server).await
                    {
                        names.lock().push(wanted);
                        drop(copy_bidirectional(&mut client, &mut server).await);
                    }
                });
            }
        });
        Self { address, targets, _serving: serving }
    }

    /// Returns the host names and ports that clients of the proxy requested so far, one for each connection.
    pub fn targets(&self) -> Vec<String> {
        self.targets.lock().clone()
    }
}

/// Reads the CONNECT request of the client and returns the server it names; `None` if the client is refused.
async fn connect(client: &mut TcpStream, user: Option<(&str, &str)>) -> io::Result<Option<String>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        head.push(client.read_u8().await?.into());
    }
    let allowed = user.is_none_or(|(user, password)| {
        let pair = json!(ByteString(format!("{user}:{password}").into_bytes()));
        head.contains(&format!("Proxy-Authorization: Basic {}\r\n", pair.as_str().unwrap_or_default()))
    });
    let answer = if allowed { "200 OK" } else { "407 Proxy Authentication Required" };
    client.write_all(format!("HTTP/1.1 {answer}\r\n\r\n").as_bytes()).await?;
    let wanted = head.strip_prefix("CONNECT ").and_then(|rest| rest.split_once(' '));
    Ok(wanted.filter(|_| allowed).map(|(wanted, _)| wanted.to_owned()))
}

/// Reads the SOCKS5 request of the client (RFC 1928 and 1929) and returns the server it names; `None` if the
/// client is refused.
async fn socks(client: &mut TcpStream, user: Option<(&str, &str)>) -> io::Result<Option<String>> {
    let _version = client.read_u8().await?;
    let _methods = short(client).await?;
    client.write_all(&[5, if user.is_some() { 2 } else { 0 }]).await?;
    if let Some((user, password)) = user {
        let _version = client.read_u8().await?;
        let allowed = (short(client).await?, short(client).await?) == (user.into(), password.into());
        client.write_all(&[1, u8::from(!allowed)]).await?;
        if !allowed {
            return Ok(None);
        }
    }
    let mut request = [0; 4];
    client.read_exact(&mut request).await?;
    let host = match request {
        [5, 1, _, 1] => Ipv4Addr::from(client.read_u32().await?).to_string(),
        [5, 1, _, 3] => String::from_utf8_lossy(&short(client).await?).into_owned(),
        other => panic!("a request that no test makes: {other:?}"),
    };
    let port = client.read_u16().await?;
    client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    Ok(Some(format!("{host}:{port}")))
}

/// Reads a byte string with its length, one byte, in front.
async fn short(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; client.read_u8().await?.into()];
    client.read_exact(&mut bytes).await?;
    Ok(bytes)
}
