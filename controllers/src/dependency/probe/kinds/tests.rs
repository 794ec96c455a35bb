//! Every kind of check against real listeners on loopback that behave, and that do not.
//!
//! What is checked is named as a Service, so that a result tells in full; that raw addresses are told of coarsely has a
//! test of its own. Bounds on time only end what hangs: no test asks how fast something was.

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
    Authorities, Behind, Dial, DialFuture, NoAuthorities, Owner, ProbeResult, Resolve, ResolveFuture, Seams,
    ServiceAnswer, Services, ServicesFuture, Surroundings, Target, TokioDial, authorities,
};
use crate::settings::{ProbeMode, ProbePolicy};

/// For what ends by itself.
const PATIENT: Duration = Duration::from_secs(30);
/// For what never ends.
const SHORT: Duration = Duration::from_millis(300);

/// A listener on loopback, and what it does with each connection.
struct Listener {
    port: u16,
    accepted: Arc<AtomicUsize>,
    serving: JoinSet<()>,
}

/// The world of one check: Service `db` is loopback, and nothing else is there.
struct World {
    /// What the key `ca.crt` of every `ConfigMap` says.
    authorities: Option<String>,
    /// Whether the API server never gets to telling that.
    is_silent: bool,
}

struct LoopbackService;
struct NoNames;

// === impl Listener ===

impl Listener {
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

    /// Accepts, and says nothing for ever.
    async fn hanging() -> Self {
        Self::serve(|stream| async move {
            let _open = stream;
            std::future::pending::<()>().await;
        })
        .await
    }

    /// Accepts, and resets the connection.
    async fn resetting() -> Self {
        Self::serve(|stream| async move {
            // Half a request unread makes of a close a reset.
            drop(stream.readable().await);
            drop(stream);
        })
        .await
    }

    /// Reads what is asked, says these bytes, and closes.
    async fn saying(answer: &'static [u8]) -> Self {
        Self::serve(move |mut stream| async move {
            let mut asked = [0; 4096];
            drop(stream.read(&mut asked).await);
            drop(stream.write_all(answer).await);
            // What the other side still has to say is waited for: a reset could overtake the answer.
            drop(stream.shutdown().await);
            while stream.read(&mut asked).await.is_ok_and(|count| count > 0) {}
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

// === impl World ===

impl World {
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
            surroundings: Arc::new(self),
            random: Arc::new(|| 0.0),
        };
        attempt(&Target::new("shop", check), timeout, &policy(), &seams).await.result
    }
}

impl Surroundings for World {
    fn owner(&self, _: SocketAddr) -> Result<Option<Owner>, String> {
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

    fn behind(&self, _: SocketAddr) -> Result<Option<Behind>, String> {
        Ok(Some(Behind::default()))
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
    World::new().check(check, PATIENT).await.reason()
}

#[tokio::test]
async fn a_tcp_check_holds_as_soon_as_somebody_accepts() {
    let (mut hanging, resetting) = (Listener::hanging().await, Listener::resetting().await);
    for listener in [&hanging, &resetting] {
        assert_eq!(reason(ProbeCheck::Tcp(listener.address())).await, "Connected");
    }
    hanging.go_down().await;
    assert_eq!(reason(ProbeCheck::Tcp(hanging.address())).await, "Refused");
}

/// Dials addresses by what they are: loopback as it is, `10.1.0.1` never answers.
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

    fn behind(&self, _: SocketAddr) -> Result<Option<Behind>, String> {
        Ok(None)
    }
}

/// The other family, or another endpoint, is asked where one is silent or hangs once it is connected.
#[tokio::test]
async fn one_endpoint_that_is_silent_hides_no_other() {
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
        surroundings: Arc::new(World::new()),
        random: Arc::new(|| 0.0),
    };
    let target = Target::new("shop", http::get(&hangs_once));
    let timeout = Duration::from_secs(8);
    assert_eq!(attempt(&target, timeout, &policy(), &seams).await.result, ProbeResult::Answered);
    assert_eq!(hangs_once.accepted(), 2, "both loopback endpoints were connected to");
}

#[tokio::test]
async fn of_a_raw_address_nothing_is_told_but_that_it_does_not_answer() {
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
            ProbeCheck::Dns(_) => panic!("a look-up connects to nothing"),
        };
        World::trusting(Some(tls::Authority::new().pem())).check(check, timeout)
    };
    let (hanging, resetting) = (Listener::hanging().await, Listener::resetting().await);
    let error = Listener::saying(b"HTTP/1.1 500 secret\r\ncontent-length: 6\r\n\r\nsecret").await;
    let gone = Address::parse("address", "db:1").unwrap();
    let mut told = Vec::new();
    // Whoever answers is waited for, or a slow machine would make all of them silent.
    for (listener, timeout) in [(&hanging, SHORT), (&resetting, PATIENT), (&error, PATIENT)] {
        told.push(coarse(http::get(listener), timeout).await);
        told.push(coarse(grpc::health(listener, ""), timeout).await);
        told.push(coarse(tls::handshake(listener, "db"), timeout).await);
    }
    told.push(coarse(ProbeCheck::Tcp(gone), PATIENT).await);
    for result in &told {
        assert_eq!(result, &told[0]);
    }
    assert_eq!((told[0].reason(), told[0].message()), ("NotReady", "it does not answer as it should"));
}
