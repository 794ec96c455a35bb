//! Every kind of check against real listeners on loopback, well-behaved and not.
//!
//! Checks name a Service, whose results have full detail; one test covers the coarse results of raw
//! addresses. Timeouts only end hanging checks: no test measures speed.

mod dns;
mod grpc;
mod hostile;
mod http;
mod tls;

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use mainstay_api::wait_for::ConfigMapKey;
use mainstay_api::{Address, ProbeCheck};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::dependency::probe::attempt::attempt;
use crate::dependency::probe::{
    AddressOwner, Authorities, Backends, ClusterInfo, Dial, DialFuture, NoAuthorities, ProbeResult, Resolve,
    ResolveFuture, Seams, ServiceAnswer, Services, ServicesFuture, Target, TokioDial, authorities,
};
use crate::settings::{ProbeMode, ProbePolicy};

/// The timeout of a check that ends by itself.
const PATIENT: Duration = Duration::from_secs(30);
/// The timeout of a check that hangs.
const SHORT: Duration = Duration::from_millis(300);

/// A listener on loopback that serves each connection with the same behaviour.
struct Listener {
    port: u16,
    accepted: Arc<AtomicUsize>,
    serving: JoinSet<()>,
}

/// The fake cluster of one check: it has no Service except `db`, with a loopback address as its cluster
/// address.
struct FakeCluster {
    /// The value of the key `ca.crt` in every `ConfigMap`.
    authorities: Option<String>,
    /// Whether the API server never answers a read of a `ConfigMap`.
    is_silent: bool,
}

struct LoopbackService;
struct NoNames;

// === impl Listener ===

impl Listener {
    /// Makes a listener that calls `behave` for each connection.
    async fn serve<F>(behave: impl Fn(TcpStream) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&accepted);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                connections.spawn(behave(stream));
            }
        });
        Self { port, accepted, serving }
    }

    /// Makes a listener that accepts connections and never answers.
    async fn hanging() -> Self {
        Self::serve(|stream| async move {
            let _open = stream;
            std::future::pending::<()>().await;
        })
        .await
    }

    /// Makes a listener that accepts connections and resets them.
    async fn resetting() -> Self {
        Self::serve(|stream| async move {
            // Closing with unread data resets the connection.
            drop(stream.readable().await);
            drop(stream);
        })
        .await
    }

    /// Makes a listener that reads the request, answers with these bytes, and closes the connection.
    async fn answering(answer: &'static [u8]) -> Self {
        Self::serve(move |mut stream| async move {
            let mut request = [0; 4096];
            drop(stream.read(&mut request).await);
            drop(stream.write_all(answer).await);
            // Reads on to the end: closing with unread data would reset the connection, and could lose the
            // answer.
            drop(stream.shutdown().await);
            while stream.read(&mut request).await.is_ok_and(|count| count > 0) {}
        })
        .await
    }

    /// Stops listening; connections are refused when this returns.
    async fn go_down(&mut self) {
        self.serving.shutdown().await;
    }

    fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    fn address(&self) -> Address {
        Address::parse("address", &format!("db:{}", self.port)).unwrap()
    }
}

// === impl FakeCluster ===

impl FakeCluster {
    fn new() -> Self {
        Self::trusting(None)
    }

    fn trusting(authorities: Option<String>) -> Self {
        Self { authorities, is_silent: false }
    }

    async fn check(self, check: ProbeCheck, timeout: Duration) -> ProbeResult {
        let seams = Seams {
            dial: Arc::new(TokioDial),
            resolve: Arc::new(NoNames),
            services: Arc::new(LoopbackService),
            cluster: Arc::new(self),
            random: Arc::new(|| 0.0),
        };
        attempt(&Target::new("shop", check), timeout, &policy(), &seams).await.result
    }
}

impl ClusterInfo for FakeCluster {
    fn owner(&self, _: SocketAddr) -> Result<Option<AddressOwner>, String> {
        Ok(None)
    }

    fn is_restricted<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async { Ok(false) })
    }

    fn authorities<'a>(&'a self, _: &'a str, _: &'a ConfigMapKey) -> BoxFuture<'a, Authorities> {
        if self.is_silent {
            return Box::pin(std::future::pending());
        }
        Box::pin(async { authorities(self.authorities.as_deref().ok_or(NoAuthorities::Missing)?) })
    }
}

impl Services for LoopbackService {
    fn find(&self, namespace: &str, name: &str, _: u16) -> ServiceAnswer {
        assert_eq!((namespace, name), ("shop", "db"));
        ServiceAnswer::Cluster(vec![Ipv4Addr::LOCALHOST.into()])
    }

    fn backends(&self, _: SocketAddr) -> Result<Option<Backends>, String> {
        Ok(Some(Backends::default()))
    }
}

impl Resolve for NoNames {
    fn resolve<'a>(&'a self, _: &'a str) -> ResolveFuture<'a> {
        Box::pin(async { Err(io::ErrorKind::NotFound.into()) })
    }

    fn services<'a>(&'a self, _: &'a str) -> ServicesFuture<'a> {
        Box::pin(async { Err(io::ErrorKind::NotFound.into()) })
    }
}

fn policy() -> ProbePolicy {
    let default = ProbePolicy::default();
    ProbePolicy { mode: ProbeMode::Any, allow_loopback: true, ..default }
}

async fn reason(check: ProbeCheck) -> &'static str {
    FakeCluster::new().check(check, PATIENT).await.reason()
}

#[tokio::test]
async fn a_tcp_check_succeeds_once_the_connection_is_accepted() {
    let (mut hanging, resetting) = (Listener::hanging().await, Listener::resetting().await);
    for listener in [&hanging, &resetting] {
        assert_eq!(reason(ProbeCheck::Tcp(listener.address())).await, "Connected");
    }
    hanging.go_down().await;
    assert_eq!(reason(ProbeCheck::Tcp(hanging.address())).await, "Refused");
}

/// Dialler that connects to loopback addresses; all other addresses never answer.
struct HalfSilent;

impl Dial for HalfSilent {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        if address.ip().is_loopback() { TokioDial.dial(address) } else { Box::pin(std::future::pending()) }
    }
}

struct Endpoints(Vec<IpAddr>);

impl Services for Endpoints {
    fn find(&self, _: &str, _: &str, _: u16) -> ServiceAnswer {
        ServiceAnswer::Headless(self.0.clone())
    }

    fn backends(&self, _: SocketAddr) -> Result<Option<Backends>, String> {
        Ok(None)
    }
}

/// One endpoint never accepts, one hangs once it is connected, and the third one answers.
#[tokio::test]
async fn a_silent_endpoint_does_not_hide_the_others() {
    let hangs_once = {
        let first = AtomicUsize::new(0);
        Listener::serve(move |mut stream| {
            let hangs = first.fetch_add(1, Ordering::Relaxed) == 0;
            async move {
                if hangs {
                    let _open = stream;
                    return std::future::pending().await;
                }
                drop(stream.read(&mut [0; 1024]).await);
                drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await);
            }
        })
        .await
    };
    let endpoints = ["10.1.0.1", "127.0.0.1", "127.0.0.1"].map(|ip| ip.parse().unwrap());
    let seams = Seams {
        dial: Arc::new(HalfSilent),
        resolve: Arc::new(NoNames),
        services: Arc::new(Endpoints(endpoints.to_vec())),
        cluster: Arc::new(FakeCluster::new()),
        random: Arc::new(|| 0.0),
    };
    let target = Target::new("shop", http::get(&hangs_once));
    let timeout = Duration::from_secs(8);
    assert_eq!(attempt(&target, timeout, &policy(), &seams).await.result, ProbeResult::Answered);
    assert_eq!(hangs_once.accepted(), 2, "both loopback endpoints were dialled");
}

#[tokio::test]
async fn all_failures_of_a_raw_address_give_the_same_result() {
    let coarse = |check: ProbeCheck, timeout| {
        let raw =
            |address: &Address| Address::parse("address", &format!("127.0.0.1:{}", address.port)).unwrap();
        let check = match check {
            ProbeCheck::Tcp(address) => ProbeCheck::Tcp(raw(&address)),
            ProbeCheck::Http(mut http) => {
                http.address = raw(&http.address);
                ProbeCheck::Http(http)
            }
            ProbeCheck::Grpc(mut grpc) => {
                grpc.address = raw(&grpc.address);
                ProbeCheck::Grpc(grpc)
            }
            ProbeCheck::Tls(mut tls) => {
                tls.address = raw(&tls.address);
                ProbeCheck::Tls(tls)
            }
            ProbeCheck::Dns(_) => panic!("a dns check has no connection"),
        };
        FakeCluster::trusting(Some(tls::Authority::new().pem())).check(check, timeout)
    };
    let (hanging, resetting) = (Listener::hanging().await, Listener::resetting().await);
    let error = Listener::answering(b"HTTP/1.1 500 secret\r\ncontent-length: 6\r\n\r\nsecret").await;
    let gone = Address::parse("address", "db:1").unwrap();
    let mut results = Vec::new();
    // Patient with listeners that answer: on a slow machine a short timeout would make them silent.
    for (listener, timeout) in [(&hanging, SHORT), (&resetting, PATIENT), (&error, PATIENT)] {
        results.push(coarse(http::get(listener), timeout).await);
        results.push(coarse(grpc::health(listener, ""), timeout).await);
        results.push(coarse(tls::handshake(listener, "db"), timeout).await);
    }
    results.push(coarse(ProbeCheck::Tcp(gone), PATIENT).await);
    for result in &results {
        assert_eq!(result, &results[0]);
    }
    let expected = ("NotReady", "it does not answer as expected");
    assert_eq!((results[0].reason(), results[0].message()), expected);
}
