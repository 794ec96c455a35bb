//! The engine under paused time, with a scripted network.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mainstay_api::{Address, ProbeCheck};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::settings::ProbeMode;

mod bookkeeping;
mod limits;
mod reachability;
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

/// The servers for `dark` say nothing, those for `broken` that they cannot say.
struct FakeResolve(Arc<FakeNet>);

impl Resolve for FakeResolve {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        match name.rsplit('.').next() {
            Some("dark") => return Box::pin(std::future::pending()),
            Some("broken") => return Box::pin(async { Err(io::Error::other("SERVFAIL")) }),
            _ => {}
        }
        let found = self.0.names.lock().get(name).cloned();
        Box::pin(async move { found.ok_or_else(|| io::ErrorKind::NotFound.into()) })
    }

    fn services<'a>(&'a self, _: &'a str) -> ServicesFuture<'a> {
        Box::pin(async { Err(io::ErrorKind::NotFound.into()) })
    }
}

struct TwoServices;

impl Services for TwoServices {
    fn find(&self, _: &str, name: &str, _: u16) -> ServiceAnswer {
        let addresses = |list: &[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect();
        match name {
            "db" => ServiceAnswer::Cluster(addresses(&["10.96.0.7"])),
            "dual" => ServiceAnswer::Cluster(addresses(&["10.96.0.8", "fd12::8"])),
            _ => ServiceAnswer::NotFound,
        }
    }

    fn backends(&self, _: SocketAddr) -> Result<Option<Backends>, String> {
        Ok(Some(Backends::default()))
    }
}

/// An engine whose driver runs beside the test.
struct Bench {
    engine: Engine,
    net: Arc<FakeNet>,
    changed: mpsc::UnboundedReceiver<NamespacedName>,
    stop: CancellationToken,
    driver: tokio::task::JoinSet<Driver>,
}

impl Bench {
    fn new(limit: usize, policy: ProbePolicy) -> Self {
        let net = Arc::new(FakeNet::default());
        let seams = seams(&net);
        let (sender, changed) = mpsc::unbounded_channel();
        // The driver may end after the test.
        let changed_to = move |request| drop(sender.send(request));
        let (engine, run) = Engine::with_slots(limit, policy, seams, changed_to, &Registry::new());
        let stop = CancellationToken::new();
        let mut driver = tokio::task::JoinSet::new();
        let until = stop.clone();
        driver.spawn(async move {
            run.run(until).await;
            run
        });
        Self { engine, net, changed, stop, driver }
    }

    fn set(&self, address: &str, net: Net) {
        self.net.hosts.lock().insert(address.parse().unwrap(), net);
    }

    fn watch(&self, name: &str, address: &str, period: u64) {
        let address = Address::parse("address", address).unwrap();
        self.engine.watch(&request(name), vec![want(address, period)]);
    }

    /// As long as the period for one probe.
    fn watch_patiently(&self, name: &str, address: &str, period: u64) {
        let address = Address::parse("address", address).unwrap();
        let want = Want { timeout: Duration::from_secs(period), ..want(address, period) };
        self.engine.watch(&request(name), vec![want]);
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

fn seams(net: &Arc<FakeNet>) -> Seams {
    Seams {
        dial: Arc::new(FakeDial(Arc::clone(net))),
        resolve: Arc::new(FakeResolve(Arc::clone(net))),
        services: Arc::new(TwoServices),
        cluster: Arc::new(NoCluster),
        random: Arc::new(|| 0.5),
    }
}

fn request(name: &str) -> NamespacedName {
    NamespacedName::namespaced("shop", name.to_owned())
}

fn want(address: Address, period: u64) -> Want {
    Want {
        target: Target::new("shop", ProbeCheck::Tcp(address)),
        period: Duration::from_secs(period),
        timeout: Duration::from_millis(500),
        initial_delay: Duration::ZERO,
        success_threshold: 1,
        failure_threshold: 1,
        was_ready: false,
    }
}

fn any() -> ProbePolicy {
    let policy = ProbePolicy::default();
    ProbePolicy { mode: ProbeMode::Any, min_period: mainstay::config::Duration::from_secs(1), ..policy }
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
    pass(4.6).await;
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
    bench.watch_patiently("web", "10.0.0.1:80", 3);
    pass(2.9).await;
    bench.watch_patiently("other", "10.0.0.1:80", 3);
    assert_eq!((bench.dials(), bench.net.open.load(Ordering::Relaxed)), (1, 1));
    pass(0.2).await;
    assert_eq!(
        bench.dials(),
        2,
        "it takes longer than the period less its jitter: the next begins when it ends"
    );
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
async fn one_address_that_is_silent_does_not_hide_what_another_says() {
    let bench = Bench::new(8, any());
    bench.set("[fd12::8]:80", Net::Silent);
    bench.watch("web", "dual:80", 10);
    pass(0.4).await;
    assert_eq!(bench.reason("web"), None, "it may answer yet");
    pass(0.2).await;
    assert_eq!(bench.reason("web"), Some("Refused"), "and nothing is said of the one that did not");
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
async fn stopping_closes_sockets_and_nobody_is_told_old_news_later() {
    let mut bench = Bench::new(8, any());
    bench.set("10.0.0.1:80", Net::Accept);
    bench.set("10.0.0.2:80", Net::Silent);
    bench.watch("known", "10.0.0.1:80", 10);
    bench.watch_patiently("silent", "10.0.0.2:80", 10);
    pass(1.0).await;
    assert_eq!((bench.states("known"), bench.told().len()), (vec![VerdictState::Ready], 1));
    bench.stop.cancel();
    let driver = bench.driver.join_next().await.unwrap().unwrap();
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 0);
    assert_eq!(bench.told(), ["shop/known", "shop/silent"], "they register again");

    // Another replica leads for an hour.
    bench.net.hosts.lock().clear();
    pass(3600.0).await;
    bench.driver.spawn(async move {
        driver.run(CancellationToken::new()).await;
        driver
    });
    bench.watch("known", "10.0.0.1:80", 10);
    assert_eq!(bench.states("known"), [VerdictState::Pending], "not by what it was an hour ago");
    pass(1.0).await;
    assert_eq!((bench.states("known"), bench.told().len()), (vec![VerdictState::NotReady], 1));
    let dials = bench.dials();
    pass(60.0).await;
    assert_eq!(bench.dials(), dials + 6, "who does not say so again does not wait any more");
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_for_between_two_terms_is_not_probed_in_the_next() {
    let mut bench = Bench::new(8, any());
    let (lead, leading) = watch::channel(true);
    bench.engine = bench.engine.clone().while_leading(leading);
    bench.watch("web", "10.0.0.1:80", 10);
    pass(1.0).await;
    assert_eq!(bench.dials(), 1);

    lead.send(false).unwrap();
    bench.stop.cancel();
    let driver = bench.driver.join_next().await.unwrap().unwrap();
    bench.watch("web", "10.0.0.1:80", 10);
    assert_eq!(bench.states("web"), []);
    lead.send(true).unwrap();
    // Whoever leads again may ask before the driver runs.
    bench.watch("other", "10.0.0.2:80", 10);
    bench.driver.spawn(async move {
        driver.run(CancellationToken::new()).await;
        driver
    });
    pass(1.0).await;
    let last = bench.net.dialled.lock().last().unwrap().1;
    assert_eq!((bench.dials(), last), (2, "10.0.0.2:80".parse().unwrap()));
}

#[tokio::test(start_paused = true)]
async fn an_object_that_waits_in_a_term_that_began_before_the_driver_ended_is_told_to_ask_again() {
    let mut bench = Bench::new(8, any());
    let (lead, leading) = watch::channel(true);
    bench.engine = bench.engine.clone().while_leading(leading);
    pass(1.0).await;

    // The Lease is won back before the driver has been polled.
    lead.send(false).unwrap();
    bench.stop.cancel();
    lead.send(true).unwrap();
    bench.watch("web", "10.0.0.1:80", 10);
    drop(bench.driver.join_next().await.unwrap().unwrap());
    assert_eq!((bench.states("web"), bench.told()), (vec![], vec!["shop/web".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_gets_no_answer_says_nothing_of_who_is_looked_up() {
    let bench = Bench::new(8, any());
    bench.watch("dark", "db.example.dark:80", 10);
    bench.watch("broken", "db.example.broken:80", 10);
    let check = ProbeCheck::Dns(mainstay_api::plan::DnsCheck {
        name: "db.example.dark".to_owned(),
        record: mainstay_api::wait_for::DnsRecord::Address,
        min_records: 1,
    });
    let address = Address::parse("address", "db:80").unwrap();
    let look_up = Want { target: Target::new("shop", check), ..want(address, 10) };
    bench.engine.watch(&request("dns"), vec![look_up]);
    pass(1.0).await;
    for name in ["dark", "broken", "dns"] {
        assert_eq!(bench.reason(name), Some("LookUpFailed"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn of_a_raw_address_a_refusal_and_silence_are_told_at_one_moment_and_cost_as_little() {
    let mut bench = Bench::new(4, ProbePolicy { max_per_second_per_namespace: 200, ..any() });
    bench.set("10.0.0.9:80", Net::Silent);
    bench.watch_patiently("silent", "10.0.0.9:80", 10);
    for refusing in 1..=8 {
        bench.watch_patiently(&format!("refusing-{refusing}"), &format!("10.0.0.{refusing}:80"), 10);
    }
    bench.watch_patiently("service", "db:80", 10);
    pass(9.999).await;
    assert_eq!(bench.told(), ["shop/service"], "who can see the Service is told how it fails, and at once");
    assert_eq!(bench.dials(), 11, "a result that is kept back keeps no slot");
    pass(0.002).await;
    assert_eq!(bench.told().len(), 9, "all others together");
    assert_eq!(bench.result("silent"), bench.result("refusing-1"));

    bench.engine.forget(&request("silent"));
    pass(0.1).await;
    assert_eq!(bench.dials(), 20, "each once more");
    for refusing in 1..=8 {
        bench.engine.forget(&request(&format!("refusing-{refusing}")));
    }
    pass(60.0).await;
    assert_eq!(bench.told(), Vec::<String>::new(), "nobody waits for them any more");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_panics_harms_no_other_and_is_tried_again() {
    let bench = Bench::new(8, any());
    bench.set("10.0.0.1:80", Net::Panic);
    bench.set("10.0.0.2:80", Net::Accept);
    bench.watch("bad", "10.0.0.1:80", 10);
    bench.watch("good", "10.0.0.2:80", 10);
    pass(1.0).await;
    assert_eq!((bench.reason("bad"), bench.reason("good")), (Some("ProbePanicked"), Some("Connected")));
    bench.set("10.0.0.1:80", Net::Accept);
    pass(10.0).await;
    assert_eq!(bench.reason("bad"), Some("Connected"), "probed again, and its slot was given back");
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 0);
}
