//! The engine with a scripted network, and a driver that runs beside the test.

use super::*;

/// The behaviour of the network at an address; an absent address refuses connections.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Net {
    Accept,
    Silent,
    Panic,
}

#[derive(Default)]
pub(super) struct FakeNet {
    pub(super) hosts: Mutex<HashMap<SocketAddr, Net>>,
    /// All dialled addresses, with the times of the dials.
    pub(super) dialled: Mutex<Vec<(Instant, SocketAddr)>>,
    /// The number of dials that are neither finished nor dropped.
    pub(super) open: AtomicUsize,
    pub(super) names: Mutex<HashMap<String, Vec<IpAddr>>>,
}

/// Guard of a dial, which is counted in `FakeNet::open` until the guard is dropped.
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

/// Resolver for which the name servers of `dark` never answer and those of `broken` answer SERVFAIL.
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

/// A probe engine, and its driver in a task.
pub(super) struct Bench {
    pub(super) engine: Engine,
    pub(super) net: Arc<FakeNet>,
    pub(super) changed: mpsc::UnboundedReceiver<NamespacedName>,
    pub(super) stop: CancellationToken,
    pub(super) driver: tokio::task::JoinSet<Driver>,
}

impl Bench {
    pub(super) fn new(limit: usize, policy: ProbePolicy) -> Self {
        let net = Arc::new(FakeNet::default());
        let seams = seams(&net);
        let (sender, changed) = mpsc::unbounded_channel();
        // The driver may outlive the receiver.
        let changed_to = move |request| drop(sender.send(request));
        let (engine, run) = Engine::new(limit, policy, seams, changed_to, &Registry::new());
        let stop = CancellationToken::new();
        let mut driver = tokio::task::JoinSet::new();
        let until = stop.clone();
        driver.spawn(async move {
            run.run(until).await;
            run
        });
        Self { engine, net, changed, stop, driver }
    }

    pub(super) fn set(&self, address: &str, net: Net) {
        self.net.hosts.lock().insert(address.parse().unwrap(), net);
    }

    pub(super) fn watch(&self, name: &str, address: &str, period: u64) {
        let address = Address::parse("address", address).unwrap();
        self.engine.watch(&request(name), vec![want(address, period)]);
    }

    /// Registers a target as [`watch`](Self::watch) does, with a timeout as long as the period.
    pub(super) fn watch_patiently(&self, name: &str, address: &str, period: u64) {
        let address = Address::parse("address", address).unwrap();
        let want = Want { timeout: Duration::from_secs(period), ..want(address, period) };
        self.engine.watch(&request(name), vec![want]);
    }

    pub(super) fn wants(&self, name: &str, wants: &[(&str, u64)]) {
        let one =
            |(address, period): &(&str, u64)| want(Address::parse("address", address).unwrap(), *period);
        self.engine.watch(&request(name), wants.iter().map(one).collect());
    }

    pub(super) fn states(&self, name: &str) -> Vec<VerdictState> {
        self.engine.verdicts(&request(name)).into_iter().map(|verdict| verdict.state).collect()
    }

    pub(super) fn result(&self, name: &str) -> Option<ProbeResult> {
        self.engine.verdicts(&request(name)).pop()?.result
    }

    pub(super) fn reason(&self, name: &str) -> Option<&'static str> {
        self.result(name).map(|result| result.reason())
    }

    pub(super) fn dials(&self) -> usize {
        self.net.dialled.lock().len()
    }

    /// Registers objects in a namespace, each with an address of its own in `10.NETWORK.x.y`.
    pub(super) fn watch_many(&self, namespace: &str, network: u8, targets: u32, period: u64, timeout: u64) {
        for number in 0..targets {
            let address = format!("10.{network}.{}.{}:80", number / 250, number % 250 + 1);
            let address = Address::parse("address", &address).unwrap();
            let wants = Want {
                target: Target::new(namespace, ProbeCheck::Tcp(address.clone())),
                timeout: Duration::from_secs(timeout),
                ..want(address, period)
            };
            self.engine.watch(&NamespacedName::namespaced(namespace, format!("web-{number}")), vec![wants]);
        }
    }

    /// Counts the dials to `10.NETWORK.x.y`.
    pub(super) fn dials_to(&self, network: u8) -> usize {
        self.net.dialled.lock().iter().filter(|(_, address)| is_in(network, address)).count()
    }

    /// Makes these addresses in `10.NETWORK.x.y` silent.
    pub(super) fn silence(&self, network: u8, targets: u32) {
        for number in 0..targets {
            self.set(&format!("10.{network}.{}.{}:80", number / 250, number % 250 + 1), Net::Silent);
        }
    }

    /// Returns the objects that the callback of the engine got since the last call.
    pub(super) fn notified(&mut self) -> Vec<String> {
        let mut notified: Vec<_> =
            std::iter::from_fn(|| self.changed.try_recv().ok()).map(|r| r.to_string()).collect();
        notified.sort();
        notified
    }
}

/// Returns whether an address is in `10.NETWORK.x.y`.
pub(super) fn is_in(network: u8, address: &SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V4(ip) if ip.octets()[1] == network)
}

pub(super) fn seams(net: &Arc<FakeNet>) -> Seams {
    Seams {
        dial: Arc::new(FakeDial(Arc::clone(net))),
        resolve: Arc::new(FakeResolve(Arc::clone(net))),
        services: Arc::new(TwoServices),
        cluster: Arc::new(NoCluster),
        random: Arc::new(|| 0.5),
    }
}

pub(super) fn request(name: &str) -> NamespacedName {
    NamespacedName::namespaced("shop", name.to_owned())
}

pub(super) fn want(address: Address, period: u64) -> Want {
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

pub(super) fn any() -> ProbePolicy {
    let policy = ProbePolicy::default();
    ProbePolicy { mode: ProbeMode::Any, min_period: mainstay::config::Duration::from_secs(1), ..policy }
}

pub(super) async fn pass(seconds: f64) {
    tokio::time::sleep(Duration::from_secs_f64(seconds)).await;
}
