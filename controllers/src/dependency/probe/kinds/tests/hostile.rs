//! Addresses that an attacker would want the manager to dial. None is dialled in any spelling, in any mode.

use parking_lot::Mutex;

use super::*;
use crate::dependency::probe::tests::no_cluster::NoServices;

/// Dialler that records the addresses, and refuses to connect.
#[derive(Default)]
struct Recorded(Mutex<Vec<SocketAddr>>);

impl Dial for Recorded {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        self.0.lock().push(address);
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }
}

/// Resolver that resolves `TEXT.example.com`, where `TEXT` is an address with dashes, to that address beside
/// a good one.
struct Rebinding;

impl Resolve for Rebinding {
    fn resolve<'a>(&'a self, name: &'a str) -> ResolveFuture<'a> {
        let text = name.strip_suffix(".example.com").unwrap_or_default();
        let ip = text.replace('-', ".").parse().or_else(|_| text.replace('-', ":").parse());
        Box::pin(
            async move { Ok(vec!["203.0.113.1".parse().unwrap(), ip.map_err(|_| io::ErrorKind::NotFound)?]) },
        )
    }

    fn services<'a>(&'a self, _: &'a str) -> ServicesFuture<'a> {
        Box::pin(async { Err(io::ErrorKind::NotFound.into()) })
    }
}

/// A cluster with the API server at `203.0.113.6` and the manager at `203.0.113.7`.
struct Owners;

impl ClusterInfo for Owners {
    fn owner(&self, address: SocketAddr) -> Result<Option<AddressOwner>, String> {
        Ok(match address.ip().to_string().as_str() {
            "203.0.113.6" => Some(AddressOwner::ApiServer),
            "203.0.113.7" => Some(AddressOwner::Manager),
            _ => None,
        })
    }

    fn is_restricted<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async { Ok(false) })
    }

    fn authorities<'a>(&'a self, _: &'a str, _: &'a ConfigMapKey) -> BoxFuture<'a, Authorities> {
        Box::pin(async { Err(NoAuthorities::Missing) })
    }
}

/// Spellings that resolvers and parsers take for an address that must not be dialled.
const HOSTILE: [&str; 75] = [
    // Loopback, and forms that reach it.
    "127.0.0.1",
    "127.0.0.1.",
    "127.255.255.254",
    "localhost",
    "LocalHost.",
    "a.localhost",
    "[::1]",
    "0.0.0.0",
    "[::]",
    "0.1.2.3",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[::127.0.0.1]",
    "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::7f00:1]",
    "[2002:7f00:1::]",
    "[2001:0:7f00:1::]",
    "[::ffff:0:127.0.0.1]",
    "[::ffff:0.0.0.0]",
    // Octal, hexadecimal, integers, fewer parts, zone ids: invalid as an address of a check.
    "0177.0.0.1",
    "0x7f.0.0.1",
    "0x7f000001",
    "2130706433",
    "127.1",
    "127.0.1",
    "0",
    "017700000001",
    "[fe80::1%eth0]",
    "[::1%lo]",
    "127.0.0.01",
    "１２７.0.0.1",
    "127。0。0。1",
    "127%2e0.0.1",
    "",
    // Link-local, multicast, broadcast.
    "169.254.1.1",
    "[fe80::1]",
    "[febf::1]",
    "224.0.0.1",
    "[ff02::1]",
    "255.255.255.255",
    "240.0.0.1",
    // Metadata services.
    "169.254.169.254",
    "[::ffff:a9fe:a9fe]",
    "[64:ff9b::a9fe:a9fe]",
    "[2002:a9fe:a9fe::]",
    "100.100.100.200",
    "168.63.129.16",
    "192.0.0.192",
    "[fd00:ec2::254]",
    "[fd20:ce::254]",
    "[fd00:ec2::23]",
    // The API server and the manager itself.
    "203.0.113.6",
    "[::ffff:203.0.113.6]",
    "203.0.113.7",
    "203-0-113-6.example.com",
    "[64:ff9b::203.0.113.6]",
    "[2002:cb00:7106::1]",
    "[::203.0.113.7]",
    "[2001:0:cb00:7106::1]",
    "[2001:db8::5efe:203.0.113.7]",
    "64-ff9b--cb00-7106.example.com",
    // A network of probePolicy.denied.
    "203.0.113.129",
    "[::ffff:203.0.113.129]",
    "[64:ff9b::203.0.113.129]",
    "[64:ff9b:1:cb00:71:8100::]",
    "[2002:cb00:7181::1]",
    "203-0-113-129.example.com",
    "2002-cb00-7181--1.example.com",
    // Names that resolve to a forbidden address beside a harmless one.
    "127-0-0-1.example.com",
    "169-254-169-254.example.com",
    "--1.example.com",
    "0-0-0-0.example.com",
    "fd00-ec2--254.example.com",
    "64-ff9b--7f00-1.example.com",
    "fe80--1.example.com",
];

/// Dialler that connects to loopback addresses; any other address fails the test.
struct LoopbackOnly;

impl Dial for LoopbackOnly {
    fn dial(&self, address: SocketAddr) -> DialFuture<'_> {
        assert!(address.ip().to_canonical().is_loopback(), "{address} was dialled");
        TokioDial.dial(address)
    }
}

/// Returns a probe policy of each mode, with an allow list that allows everything.
fn policies() -> [ProbePolicy; 3] {
    let allow = ["0.0.0.0/0", "::/0", ".example.com", ".localhost", "localhost"];
    let allow = allow.map(|rule| rule.parse::<crate::settings::AllowRule>().unwrap().into()).to_vec();
    let denied = vec!["203.0.113.128/25".parse().unwrap()];
    let default = ProbePolicy { denied, ..ProbePolicy::default() };
    [
        default.clone(),
        ProbePolicy { mode: ProbeMode::AllowList, allow, ..default.clone() },
        ProbePolicy { mode: ProbeMode::Any, ..default },
    ]
}

fn seams(dial: Arc<dyn Dial>) -> Seams {
    Seams {
        dial,
        resolve: Arc::new(Rebinding),
        services: Arc::new(NoServices),
        cluster: Arc::new(Owners),
        random: Arc::new(|| 0.0),
    }
}

/// With real listeners instead of a recording seam: none of them accepts a connection.
#[tokio::test]
async fn no_listener_on_loopback_is_reached_by_any_spelling() {
    let v4 = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = v4.local_addr().unwrap().port();
    // A machine without IPv6 has one listener less.
    let v6 = std::net::TcpListener::bind((std::net::Ipv6Addr::LOCALHOST, port)).ok();
    let listeners: Vec<_> = std::iter::once(v4).chain(v6).collect();
    // The kernel has accepted the connections already; this only counts them.
    let accepted = || {
        let count = |listener: &std::net::TcpListener| {
            listener.set_nonblocking(true).unwrap();
            std::iter::from_fn(|| listener.accept().ok()).count()
        };
        listeners.iter().map(count).sum::<usize>()
    };
    let seams = seams(Arc::new(LoopbackOnly));
    let read = |host: &str| Address::parse("address", &format!("{host}:{port}")).ok();
    for policy in policies() {
        for address in HOSTILE.into_iter().filter_map(read) {
            let target = Target::new("shop", ProbeCheck::Tcp(address));
            assert!(matches!(
                attempt(&target, PATIENT, &policy, &seams).await.result,
                ProbeResult::Denied { .. }
            ));
        }
        assert_eq!(accepted(), 0, "{:?}", policy.mode);
        // The listeners do accept admitted probes.
        let admitting = ProbePolicy { allow_loopback: true, ..policy };
        for address in ["127.0.0.1", "[::ffff:7f00:1]", "localhost"].into_iter().filter_map(read) {
            let target = Target::new("shop", ProbeCheck::Tcp(address));
            assert_eq!(attempt(&target, PATIENT, &admitting, &seams).await.result, ProbeResult::Connected);
        }
        assert!(accepted() >= 3);
    }
}

#[tokio::test]
async fn no_hostile_address_is_dialled_in_any_spelling() {
    let policies = policies();
    let dial = Arc::new(Recorded::default());
    let seams = seams(Arc::clone(&dial) as Arc<dyn Dial>);
    for policy in &policies {
        let mut denied = 0;
        for host in HOSTILE {
            let Ok(address) = Address::parse("address", &format!("{host}:80")) else { continue };
            let target = Target::new("shop", ProbeCheck::Tcp(address));
            let result = attempt(&target, PATIENT, policy, &seams).await.result;
            assert!(
                matches!(result, ProbeResult::Denied { .. }),
                "{host} under {:?}: {result:?}",
                policy.mode
            );
            denied += 1;
        }
        assert!(denied >= 58, "{denied} were parsed and denied, the rest are invalid");
        assert_eq!(*dial.0.lock(), [], "{:?}", policy.mode);
    }
    // The same seam does record an admitted address.
    let good = Address::parse("address", "203.0.113.9:80").unwrap();
    attempt(&Target::new("shop", ProbeCheck::Tcp(good)), PATIENT, &policies[1], &seams).await;
    assert_eq!(*dial.0.lock(), ["203.0.113.9:80".parse().unwrap()]);
}
