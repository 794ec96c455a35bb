//! The engine under paused time, with a scripted network.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstay::config::{ManagerConfiguration, ProbeMode};
use mainstay_api::{Address, ProbeCheck};
use tokio::sync::mpsc;

use super::*;

mod bookkeeping;
mod limits;
mod wants;

/// What the network does at an address; absent means refused.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Net {
    Accept,
    Silent,
    Panic,
}

#[derive(Default)]
struct FakeNet {
    hosts: Mutex<HashMap<SocketAddr, Net>>,
    /// When which address was dialled.
    dialled: Mutex<Vec<(Instant, SocketAddr)>>,
    open: AtomicUsize,
    names: Mutex<HashMap<String, Vec<IpAddr>>>,
}

/// Counts a dial out when it is dropped, finished or not.
struct Open<'a>(&'a FakeNet);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::Relaxed);
    }
}

struct FakeDial(Arc<FakeNet>);

impl Dial for FakeDial {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        self.0.dialled.lock().push((Instant::now(), address));
        self.0.open.fetch_add(1, Ordering::Relaxed);
        Box::pin(async move {
            let _open = Open(&self.0);
            let net = self.0.hosts.lock().get(&address).copied();
            match net {
                Some(Net::Accept) => Ok(Connection::new(tokio::io::empty())),
                Some(Net::Silent) => std::future::pending().await,
                Some(Net::Panic) => panic!("scripted"),
                None => Err(io::ErrorKind::ConnectionRefused.into()),
            }
        })
    }
}

struct FakeResolve(Arc<FakeNet>);

impl Resolve for FakeResolve {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        let found = self.0.names.lock().get(name).cloned();
        Box::pin(async move { found.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }

    fn services<'a>(&'a self, _: &'a str) -> ServicesFuture<'a> {
        Box::pin(async { Err(io::ErrorKind::NotFound.into()) })
    }
}

struct OneService;

impl Services for OneService {
    fn find(&self, _: &str, name: &str, _: u16) -> ServiceAnswer {
        if name == "db" {
            ServiceAnswer::Cluster(vec!["10.96.0.7".parse().unwrap()])
        } else {
            ServiceAnswer::NotFound
        }
    }

    fn cluster_addresses(&self, _: &str, _: &str) -> Vec<IpAddr> {
        Vec::new()
    }

    fn endpoints(&self, _: &str, _: &str) -> Result<Vec<Endpoint>, String> {
        Ok(Vec::new())
    }
}

/// An engine whose driver runs beside the test.
struct Bench {
    engine: Engine,
    net: Arc<FakeNet>,
    changed: mpsc::UnboundedReceiver<Request>,
    stop: CancellationToken,
    driver: tokio::task::JoinSet<()>,
}

impl Bench {
    fn new(limit: usize, policy: ProbePolicy) -> Self {
        let net = Arc::new(FakeNet::default());
        let seams = Seams {
            dial: Arc::new(FakeDial(Arc::clone(&net))),
            resolve: Arc::new(FakeResolve(Arc::clone(&net))),
            services: Arc::new(OneService),
            surroundings: Arc::new(NoSurroundings),
            random: Arc::new(|| 0.5),
        };
        let (sender, changed) = mpsc::unbounded_channel();
        let changed_to = move |request| sender.send(request).unwrap();
        let (engine, run) = Engine::with_slots(limit, policy, seams, changed_to, &Registry::new());
        let stop = CancellationToken::new();
        let mut driver = tokio::task::JoinSet::new();
        let until = stop.clone();
        driver.spawn(async move { run.run(until).await });
        Self { engine, net, changed, stop, driver }
    }

    fn set(&self, address: &str, net: Net) {
        self.net.hosts.lock().insert(address.parse().unwrap(), net);
    }

    fn watch(&self, name: &str, address: &str, period: u64) {
        let address = Address::parse("address", address).unwrap();
        self.engine.watch(&request(name), vec![want(address, period)]);
    }

    fn wants(&self, name: &str, wants: &[(&str, u64)]) {
        let one =
            |(address, period): &(&str, u64)| want(Address::parse("address", address).unwrap(), *period);
        self.engine.watch(&request(name), wants.iter().map(one).collect());
    }

    fn states(&self, name: &str) -> Vec<VerdictState> {
        self.engine.verdicts(&request(name)).into_iter().map(|verdict| verdict.state).collect()
    }

    fn result(&self, name: &str) -> Option<ProbeResult> {
        self.engine.verdicts(&request(name)).pop()?.result
    }

    fn reason(&self, name: &str) -> Option<&'static str> {
        self.result(name).map(|result| result.reason())
    }

    fn dials(&self) -> usize {
        self.net.dialled.lock().len()
    }

    fn told(&mut self) -> Vec<String> {
        let mut told: Vec<_> =
            std::iter::from_fn(|| self.changed.try_recv().ok()).map(|r| r.to_string()).collect();
        told.sort();
        told
    }
}

fn request(name: &str) -> Request {
    Request::namespaced("shop", name.to_owned())
}

fn want(address: Address, period: u64) -> Want {
    Want {
        target: Target::new("shop", ProbeCheck::Tcp(address)),
        period: Duration::from_secs(period),
        timeout: Duration::from_secs(3),
        initial_delay: Duration::ZERO,
        success_threshold: 1,
        failure_threshold: 1,
        held: false,
    }
}

fn any() -> ProbePolicy {
    let policy = ManagerConfiguration::default().probe_policy;
    ProbePolicy { mode: ProbeMode::Any, min_period: Duration::from_secs(1), ..policy }
}

async fn pass(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}

#[tokio::test(start_paused = true)]
async fn two_hours_of_failed_probes_later_the_period_is_the_same() {
    let mut bench = Bench::new(8, any());
    bench.watch("web", "10.0.0.1:80", 10);
    pass(7200.0).await;
    let dialled = bench.net.dialled.lock().clone();
    let gaps: Vec<Duration> = dialled.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(gaps.len() > 700, "{}", gaps.len());
    // Tokio's paused clock counts in whole milliseconds, rounded up.
    let expected = Duration::from_millis(9500)..=Duration::from_millis(9502);
    assert!(gaps.iter().all(|gap| expected.contains(gap)), "{:?}", gaps.iter().max());
    assert_eq!(bench.told(), ["shop/web"], "told once, because nothing changed since");

    bench.set("10.0.0.1:80", Net::Accept);
    pass(10.0).await;
    assert_eq!(bench.told(), ["shop/web"]);
    assert_eq!(bench.reason("web"), Some("Connected"));
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_for_a_target_share_one_probe_and_the_shortest_period() {
    let mut bench = Bench::new(8, any());
    for name in 0..1000 {
        bench.watch(&format!("web-{name}"), "10.0.0.1:80", 60);
    }
    pass(1.0).await;
    assert_eq!(bench.dials(), 1);
    assert_eq!(bench.told().len(), 1000);

    bench.watch("late", "10.0.0.1:80", 5);
    assert_eq!(bench.reason("late"), Some("NotReady"), "what is known is known at once");
    pass(4.1).await;
    assert_eq!(bench.dials(), 2, "the shorter period counts from the last start");
    bench.engine.forget(&request("late"));
    pass(5.0).await;
    assert_eq!(bench.dials(), 3, "the probe that was already planned");
    pass(50.0).await;
    assert_eq!(bench.dials(), 3, "back to the longer period");
    assert!(bench.told().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_probe_in_flight_is_not_doubled_and_ends_when_nobody_waits() {
    let bench = Bench::new(8, any());
    bench.set("10.0.0.1:80", Net::Silent);
    bench.watch("web", "10.0.0.1:80", 1);
    pass(2.9).await;
    bench.watch("other", "10.0.0.1:80", 1);
    assert_eq!((bench.dials(), bench.net.open.load(Ordering::Relaxed)), (1, 1));
    pass(0.2).await;
    assert_eq!(bench.dials(), 2, "the timeout is longer than the period: the next begins when it ends");
    bench.engine.forget(&request("web"));
    pass(0.01).await;
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 1, "the other still waits");
    bench.engine.forget(&request("other"));
    pass(0.01).await;
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 0, "the socket is closed at once");
    assert_eq!(bench.result("web"), None);
    pass(60.0).await;
    assert_eq!(bench.dials(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_address_starts_afresh() {
    let mut bench = Bench::new(8, any());
    bench.watch("web", "10.0.0.1:80", 10);
    pass(1.0).await;
    assert_eq!(bench.told(), ["shop/web"]);
    bench.watch("web", "10.0.0.2:80", 10);
    assert_eq!(bench.result("web"), None, "the old result says nothing about the new address");
    pass(1.0).await;
    assert_eq!(bench.told(), ["shop/web"]);
    let last = bench.net.dialled.lock().last().unwrap().1;
    assert_eq!(last, "10.0.0.2:80".parse().unwrap());
}

#[tokio::test(start_paused = true)]
async fn black_holes_with_a_thousand_waiting_do_not_starve_what_answers() {
    let bench = Bench::new(8, any());
    for hole in 0..10 {
        bench.set(&format!("10.0.1.{hole}:80"), Net::Silent);
    }
    for name in 0..1000 {
        bench.watch(&format!("web-{name}"), &format!("10.0.1.{}:80", name % 10), 1);
    }
    bench.watch("good", "10.0.0.1:80", 1);
    pass(60.0).await;
    bench.set("10.0.0.1:80", Net::Accept);
    let before =
        bench.net.dialled.lock().iter().filter(|(_, address)| address.ip().to_string() == "10.0.0.1").count();
    assert!(before > 50, "probed every second: {before}");
    pass(1.1).await;
    assert_eq!(bench.reason("good"), Some("Connected"));
    assert!(bench.net.open.load(Ordering::Relaxed) <= 4, "black holes hold at most half of the eight slots");
}

#[tokio::test(start_paused = true)]
async fn the_rate_bounds_all_targets_together() {
    let mut policy = any();
    policy.max_per_second = 20;
    let bench = Bench::new(64, policy);
    for name in 0..200 {
        bench.watch(&format!("web-{name}"), &format!("10.0.0.{name}:80"), 1);
    }
    pass(30.0).await;
    let dialled = bench.net.dialled.lock().clone();
    assert!((590..=610).contains(&dialled.len()), "{}", dialled.len());
    let mut counts: HashMap<SocketAddr, usize> = HashMap::new();
    for (_, address) in &dialled {
        *counts.entry(*address).or_default() += 1;
    }
    assert_eq!(counts.len(), 200);
    assert!(counts.values().all(|count| (2..=4).contains(count)), "everybody's turn comes: {counts:?}");
}

#[tokio::test(start_paused = true)]
async fn services_tell_why_and_raw_addresses_do_not() {
    let bench = Bench::new(8, any());
    bench.watch("service", "db:80", 10);
    bench.watch("missing", "cache:80", 10);
    bench.watch("raw", "10.0.0.1:80", 10);
    bench.watch("name", "db.example.com:80", 10);
    bench.set("10.0.0.2:80", Net::Silent);
    bench.watch("silent", "10.0.0.2:80", 10);
    pass(4.0).await;
    assert_eq!(bench.reason("service"), Some("Refused"));
    assert_eq!(bench.reason("missing"), Some("ServiceNotFound"));
    let raw = bench.result("raw").unwrap();
    assert_eq!(raw.reason(), "NotReady");
    assert_eq!(bench.result("name"), Some(raw.clone()), "no such name, and refused, look the same");
    assert_eq!(bench.result("silent"), Some(raw), "and so does a timeout");
}

#[tokio::test(start_paused = true)]
async fn what_was_checked_is_what_is_dialled() {
    let bench = Bench::new(8, any());
    bench.net.names.lock().insert("db.example.com".to_owned(), vec!["::ffff:10.0.0.9".parse().unwrap()]);
    bench
        .net
        .names
        .lock()
        .insert("evil.example.com".to_owned(), vec!["10.0.0.9".parse().unwrap(), "::1".parse().unwrap()]);
    bench.watch("good", "db.example.com:80", 10);
    bench.watch("evil", "evil.example.com:80", 10);
    pass(1.0).await;
    assert_eq!(bench.reason("evil"), Some("PolicyDenied"));
    let dialled: Vec<_> = bench.net.dialled.lock().iter().map(|(_, address)| address.to_string()).collect();
    assert_eq!(dialled, ["10.0.0.9:80"], "once, for the good one, in the form that was checked");
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_lifted_by_a_new_policy_at_once() {
    let mut policy = any();
    policy.mode = ProbeMode::ServicesOnly;
    let mut bench = Bench::new(8, policy);
    bench.set("10.0.0.1:80", Net::Accept);
    bench.watch("web", "10.0.0.1:80", 3600);
    pass(1.0).await;
    assert_eq!((bench.reason("web"), bench.dials()), (Some("PolicyDenied"), 0));
    bench.engine.reconfigure(any());
    pass(1.0).await;
    assert_eq!((bench.reason("web"), bench.dials()), (Some("Connected"), 1));
    assert_eq!(bench.told(), ["shop/web", "shop/web"]);
}

#[tokio::test(start_paused = true)]
async fn stopping_closes_sockets_and_keeps_what_is_known() {
    let mut bench = Bench::new(8, any());
    bench.set("10.0.0.2:80", Net::Silent);
    bench.watch("known", "10.0.0.1:80", 10);
    bench.watch("silent", "10.0.0.2:80", 10);
    pass(1.0).await;
    bench.stop.cancel();
    bench.driver.join_next().await.unwrap().unwrap();
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 0);
    assert_eq!(bench.reason("known"), Some("NotReady"));
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_panics_harms_no_other_and_is_tried_again() {
    let bench = Bench::new(8, any());
    bench.set("10.0.0.1:80", Net::Panic);
    bench.set("10.0.0.2:80", Net::Accept);
    bench.watch("bad", "10.0.0.1:80", 10);
    bench.watch("good", "10.0.0.2:80", 10);
    pass(1.0).await;
    assert_eq!((bench.reason("bad"), bench.reason("good")), (Some("Failed"), Some("Connected")));
    bench.set("10.0.0.1:80", Net::Accept);
    pass(10.0).await;
    assert_eq!(bench.reason("bad"), Some("Connected"), "probed again, and its slot was given back");
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 0);
}
