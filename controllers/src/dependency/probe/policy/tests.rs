//! The policy with ordinary and with hostile addresses.

mod endpoints;

use std::collections::HashMap;

use futures_util::future::BoxFuture;
use mainstay_api::wait_for::ConfigMapKey;

use super::*;
use crate::dependency::probe::authorities::{Authorities, NoAuthorities};
use crate::dependency::probe::services::Backends;
use crate::settings::{AllowEntry, AllowRule};

/// The Services of a fake cache, by `namespace/name`.
struct Table(HashMap<&'static str, ServiceAnswer>);

impl Services for Table {
    fn find(&self, namespace: &str, name: &str, _: u16) -> ServiceAnswer {
        let found = self.0.get(format!("{namespace}/{name}").as_str());
        found.cloned().unwrap_or(ServiceAnswer::NotFound)
    }

    /// Returns the backends of the cluster addresses in the table.
    fn backends(&self, address: SocketAddr) -> Result<Option<Backends>, String> {
        let endpoint =
            |ip: &str, port, is_pod| Endpoint { ip: ip.parse().unwrap(), port: Some(port), is_pod };
        let endpoints = match address.ip().to_string().as_str() {
            "10.96.0.9" => vec![endpoint("10.1.0.1", 80, false), endpoint("169.254.169.254", 80, false)],
            "10.96.0.10" => vec![endpoint("10.1.0.1", 10250, true)],
            "10.96.0.11" => vec![endpoint("10.1.0.1", 2379, true)],
            "10.96.0.12" => vec![endpoint("10.1.0.1", 2379, false)],
            "10.96.0.13" => vec![endpoint("10.1.0.1", 6000, true)],
            "10.96.0.14" => return Err("a slice cannot be read".to_owned()),
            "10.96.0.15" => vec![endpoint("203.0.113.6", 443, false)],
            "10.96.0.16" => vec![endpoint("64:ff9b::10.1.9.9", 443, false)],
            // Addresses of the manager: one that is a cluster address by IPVS, and one that a Service lists
            // as external.
            "10.96.0.8" => vec![endpoint("10.1.0.8", 80, true)],
            "10.1.9.8" | "fd12::9" => vec![endpoint("10.1.0.1", 80, true)],
            _ => return Ok(None),
        };
        let cluster_address_of = match address.ip().to_string().as_str() {
            "fd12::9" => None,
            "10.96.0.8" => Some("pay".to_owned()),
            _ => Some("shop".to_owned()),
        };
        Ok(Some(Backends { cluster_address_of, endpoints }))
    }
}

fn services() -> Table {
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    Table(HashMap::from([
        ("shop/db", ServiceAnswer::Cluster(vec![ip("10.96.0.7")])),
        ("shop/headless", ServiceAnswer::Headless(vec![ip("10.1.0.1"), ip("10.1.0.2")])),
        ("shop/empty", ServiceAnswer::Headless(vec![])),
        ("shop/slow", ServiceAnswer::Headless(vec![ip("203.0.113.200")])),
        ("shop/evil", ServiceAnswer::Headless(vec![ip("10.1.0.1"), ip("169.254.169.254")])),
        ("shop/outside", ServiceAnswer::External("DB.example.com".to_owned())),
        ("shop/forged", ServiceAnswer::Cluster(vec![ip("10.96.0.9")])),
        ("shop/kubelet", ServiceAnswer::Cluster(vec![ip("10.96.0.10")])),
        ("shop/etcd", ServiceAnswer::Cluster(vec![ip("10.96.0.11")])),
        ("shop/etcd-of-a-node", ServiceAnswer::Cluster(vec![ip("10.96.0.12")])),
        ("shop/x11", ServiceAnswer::Cluster(vec![ip("10.96.0.13")])),
        ("shop/unreadable", ServiceAnswer::Cluster(vec![ip("10.96.0.14")])),
        ("shop/api", ServiceAnswer::Cluster(vec![ip("10.96.0.15")])),
        ("shop/self", ServiceAnswer::Cluster(vec![ip("10.96.0.16")])),
        ("shop/ipvs", ServiceAnswer::Cluster(vec![ip("10.1.9.8")])),
        ("shop/other", ServiceAnswer::NoPort),
        ("shop/blind", ServiceAnswer::Unknown("watch is down".to_owned())),
        ("pay/db", ServiceAnswer::Cluster(vec![ip("10.96.0.8")])),
    ]))
}

fn entry(rule: &str) -> AllowEntry {
    rule.parse::<AllowRule>().unwrap().into()
}

fn policy(mode: ProbeMode) -> ProbePolicy {
    let allow = ["203.0.113.0/24", "2001:db8::/32", "::/0", ".example.com"].map(entry);
    let allow = if mode == ProbeMode::AllowList { allow.to_vec() } else { Vec::new() };
    let default = ProbePolicy::default();
    ProbePolicy { mode, allow, denied_ports: vec![6000], ..default }
}

/// A cluster with addresses of the API server and of the manager, and one that is not looked up yet.
struct FakeCluster;

impl ClusterInfo for FakeCluster {
    fn owner(&self, address: SocketAddr) -> Result<Option<AddressOwner>, String> {
        match address.ip().to_string().as_str() {
            "10.96.0.1" | "203.0.113.6" => Ok(Some(AddressOwner::ApiServer)),
            "10.1.9.8" | "10.1.9.9" | "fd12::9" => Ok(Some(AddressOwner::Manager)),
            "203.0.113.200" => Err("they were not looked up yet".to_owned()),
            _ => Ok(None),
        }
    }

    fn is_restricted<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async { Err("not read in these tests".to_owned()) })
    }

    fn authorities<'a>(&'a self, _: &'a str, _: &'a ConfigMapKey) -> BoxFuture<'a, Authorities> {
        Box::pin(async { Err(NoAuthorities::Missing) })
    }
}

fn check(policy: &ProbePolicy, text: &str) -> String {
    check_for(policy, Some(false), text)
}

/// Returns the authorizer for the objects of namespace `shop`.
fn in_shop<'a>(policy: &'a ProbePolicy, services: &'a Table) -> Authorizer<'a> {
    Authorizer { policy, namespace: "shop", restricted: None, services, cluster: &FakeCluster }
}

fn check_for(policy: &ProbePolicy, restricted: Option<bool>, text: &str) -> String {
    let address = Address::parse("waitProbe.address", text).unwrap();
    let services = services();
    let authorizer = Authorizer { restricted, ..in_shop(policy, &services) };
    match authorizer.route(&address) {
        Ok(Route::Dial(addresses, detail)) => {
            let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
            format!("dial {} {detail:?}", addresses.join(","))
        }
        Ok(Route::Resolve(name)) => format!("resolve {name}"),
        Ok(Route::NeedsNamespace) => "needs namespace".to_owned(),
        Err(ProbeResult::Denied { rule, message }) => format!("denied {rule}: {message}"),
        Err(result) => result.reason().to_owned(),
    }
}

#[test]
fn services_of_the_own_namespace_pass_in_every_mode() {
    for mode in [ProbeMode::ServicesOnly, ProbeMode::AllowList, ProbeMode::Any] {
        let policy = policy(mode);
        for host in ["db", "DB.shop", "db.shop.svc.", "db.shop.svc.cluster.local"] {
            assert_eq!(
                check(&policy, &format!("{host}:5432")),
                "dial 10.96.0.7:5432 Full",
                "{host} {mode:?}"
            );
        }
        assert_eq!(check(&policy, "db:2379"), "dial 10.96.0.7:2379 Full", "a tenant's own etcd");
        assert_eq!(check(&policy, "headless:80"), "dial 10.1.0.1:80,10.1.0.2:80 Full");
        assert_eq!(check(&policy, "empty:80"), "NoEndpoints");
        assert_eq!(check(&policy, "other:80"), "PortNotFound");
        assert_eq!(check(&policy, "blind:80"), "ServicesUnknown");
        assert_eq!(check(&policy, "missing:80"), "ServiceNotFound");
        assert!(check(&policy, "evil:80").contains("metadata service"), "{mode:?}");
        assert!(check(&policy, "headless:10250").contains("port 10250"), "{mode:?}");
        assert!(check(&policy, "db:6000").contains("probePolicy.deniedPorts"), "{mode:?}");
    }
}

#[test]
fn the_default_denies_other_addresses_and_names_the_key_that_admits_them() {
    let policy = policy(ProbeMode::ServicesOnly);
    for host in ["db.pay", "db.pay.svc", "example.com", "outside", "10.0.0.1", "[2001:db8::1]", "8.8.8.8"] {
        let answer = check(&policy, &format!("{host}:80"));
        assert!(answer.starts_with("denied ") && answer.contains("probePolicy.mode"), "{host}: {answer}");
    }
    assert_eq!(check(&policy, "missing.shop:80"), "ServiceNotFound");
}

#[test]
fn the_allow_list_admits_its_entries() {
    let policy = policy(ProbeMode::AllowList);
    assert_eq!(check(&policy, "203.0.113.9:80"), "dial 203.0.113.9:80 Coarse");
    assert_eq!(
        check(&policy, "[::ffff:203.0.113.9]:80"),
        "dial 203.0.113.9:80 Coarse",
        "dialled in its canonical form"
    );
    assert_eq!(check(&policy, "[2001:db8::1]:80"), "dial [2001:db8::1]:80 Coarse");
    assert_eq!(check(&policy, "db.example.com:80"), "resolve db.example.com");
    assert_eq!(check(&policy, "outside:80"), "resolve db.example.com");
    for host in ["203.0.114.1", "example.com", "db.pay", "db.example.org"] {
        assert!(check(&policy, &format!("{host}:80")).contains("probePolicy.allow"), "{host}");
    }
    assert!(check(&policy, "203.0.113.9:10250").contains("no setting admits"));
}

#[test]
fn hostile_forms_are_denied_in_every_mode() {
    let hosts = [
        "127.0.0.1",
        "127.8.8.8",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[::7f00:1]",
        "localhost",
        "LOCALHOST.",
        "db.localhost",
        "0.0.0.0",
        "[::]",
        "169.254.169.254",
        "[::ffff:a9fe:a9fe]",
        "[64:ff9b::a9fe:a9fe]",
        "[fe80::1]",
        "224.0.0.1",
        "[ff02::1]",
        "255.255.255.255",
        "100.100.100.200",
        "168.63.129.16",
        "[fd00:ec2::254]",
    ];
    for mode in [ProbeMode::ServicesOnly, ProbeMode::AllowList, ProbeMode::Any] {
        for host in hosts {
            let answer = check(&policy(mode), &format!("{host}:80"));
            assert!(answer.starts_with("denied "), "{host} {mode:?}: {answer}");
        }
    }
}

#[test]
fn loopback_is_admitted_by_its_own_key_in_every_mode() {
    for mode in [ProbeMode::ServicesOnly, ProbeMode::AllowList, ProbeMode::Any] {
        let mut policy = policy(mode);
        assert!(check(&policy, "127.0.0.1:80").contains("probePolicy.allowLoopback"));
        policy.allow_loopback = true;
        assert_eq!(check(&policy, "127.0.0.1:80"), "dial 127.0.0.1:80 Coarse");
        assert_eq!(check(&policy, "localhost:80"), "dial 127.0.0.1:80,[::1]:80 Coarse");
        assert!(check(&policy, "0.0.0.0:80").starts_with("denied"), "connects to loopback, too");
        assert!(check(&policy, "169.254.169.254:80").starts_with("denied"));
        // Public addresses that translators or tunnels may map to loopback; the last one also to a metadata
        // service.
        for other in
            ["2001:db8::5efe:7f00:1", "2002:7f00:1::9", "64:ff9b::7f00:1", "2001:0:7f00:1::5601:5601"]
        {
            for allow_loopback in [false, true] {
                let policy = ProbePolicy { allow_loopback, ..policy.clone() };
                let answer = check(&policy, &format!("[{other}]:80"));
                assert!(
                    answer.starts_with("denied") && answer.contains("no setting admits"),
                    "{other}: {answer}"
                );
            }
        }
    }
}

#[test]
fn one_forbidden_address_among_many_forbids_the_name() {
    let (policy, services) = (policy(ProbeMode::Any), services());
    let authorizer = in_shop(&policy, &services);
    let ips = |list: &[&str]| -> Vec<IpAddr> { list.iter().map(|ip| ip.parse().unwrap()).collect() };
    let good = authorizer.check_resolved("db.example.com", &ips(&["203.0.113.1", "2001:db8::1"]), 80);
    assert!(matches!(good, Ok(addresses) if addresses.len() == 2));
    for bad in ["::1", "::ffff:10.96.0.1", "fd12::9", "64:ff9b::a9fe:a9fe"] {
        let Err(ProbeResult::Denied { message, .. }) =
            authorizer.check_resolved("db.example.com", &ips(&["203.0.113.1", "::ffff:10.0.0.1", bad]), 80)
        else {
            panic!("{bad} was admitted")
        };
        assert!(!message.contains("::") && !message.contains("203"), "no address in the message: {message}");
    }
}

/// Every mode that dials raw addresses denies these addresses, in each of their forms.
#[test]
fn the_api_server_and_the_manager_itself_are_never_dialled() {
    for mode in [ProbeMode::AllowList, ProbeMode::Any] {
        for (host, rule) in
            [("203.0.113.6", "apiServer"), ("[::ffff:203.0.113.6]", "apiServer"), ("[fd12::9]", "manager")]
        {
            let answer = check(&policy(mode), &format!("{host}:443"));
            let expected = format!("denied {rule}: ");
            assert!(
                answer.starts_with(&expected) && answer.contains("no setting admits it"),
                "{host}: {answer}"
            );
        }
    }
}

#[test]
fn denied_networks_are_denied_in_every_mode_and_for_services() {
    for mode in [ProbeMode::ServicesOnly, ProbeMode::AllowList, ProbeMode::Any] {
        let denied = vec!["10.96.0.0/16".parse().unwrap(), "203.0.113.0/24".parse().unwrap()];
        let policy = ProbePolicy { denied, ..policy(mode) };
        assert!(check(&policy, "db:5432").contains("in a network of probePolicy.denied"), "{mode:?}");
        if mode != ProbeMode::ServicesOnly {
            assert!(check(&policy, "203.0.113.9:80").starts_with("denied denied: "), "{mode:?}");
        }
    }
}

#[test]
fn cross_namespace_admits_services_of_the_listed_namespaces() {
    let open = |names: &[&str]| ProbePolicy {
        cross_namespace: names.iter().map(ToString::to_string).collect(),
        ..policy(ProbeMode::ServicesOnly)
    };
    for names in [&["pay"][..], &["*"], &["bank", "pay"]] {
        assert_eq!(check(&open(names), "db.pay.svc:80"), "dial 10.96.0.8:80 Full", "{names:?}");
        assert_eq!(check(&open(names), "gone.pay:80"), "ServiceNotFound", "{names:?}");
    }
    let answer = check(&open(&["bank"]), "db.pay:80");
    assert!(
        answer.starts_with("denied crossNamespace: ") && answer.contains("pay in probePolicy.crossNamespace"),
        "{answer}"
    );
    assert_eq!(check(&policy(ProbeMode::Any), "db.pay:80"), "dial 10.96.0.8:80 Full");
}

#[test]
fn a_dns_name_admits_no_service_of_another_namespace() {
    let services = services();
    let resolved = |policy: &ProbePolicy, name: &str, ip: &str| {
        let authorizer = Authorizer { restricted: Some(false), ..in_shop(policy, &services) };
        match authorizer.check_resolved(name, &[ip.parse().unwrap()], 80) {
            Ok(_) => "dial".to_owned(),
            Err(ProbeResult::Denied { rule, message }) => format!("denied {rule}: {message}"),
            Err(result) => result.reason().to_owned(),
        }
    };
    let (mut listed, name) = (policy(ProbeMode::AllowList), "x.example.com");
    listed.allow.retain(|one| *one != entry("::/0"));
    for ip in ["10.96.0.8", "::ffff:10.96.0.8", "64:ff9b::10.96.0.8"] {
        let answer = resolved(&listed, name, ip);
        assert!(answer.starts_with("denied crossNamespace: "), "{ip}: {answer}");
        assert!(!answer.contains("10.96") && !answer.contains("pay"), "no address, no namespace: {answer}");
    }
    assert_eq!(resolved(&listed, name, "10.96.0.11"), "dial", "a Service of its own namespace");
    assert_eq!(resolved(&listed, name, "203.0.113.9"), "dial", "an address of no Service");
    assert_eq!(
        resolved(&listed, "db.pay.svc.cluster.local", "10.96.0.8"),
        "dial",
        "a name of the cluster's own DNS"
    );

    assert_eq!(resolved(&policy(ProbeMode::Any), name, "10.96.0.8"), "dial");
    let open = ProbePolicy { cross_namespace: vec!["pay".to_owned()], ..listed.clone() };
    assert_eq!(resolved(&open, name, "10.96.0.8"), "dial");
    let mut named = listed;
    named.allow.push(entry("10.96.0.8"));
    assert_eq!(resolved(&named, name, "10.96.0.8"), "dial");
}

/// An entry without namespaces does not admit a namespace that enforces a Pod Security level.
#[test]
fn an_entry_admits_a_restricted_namespace_only_by_name() {
    let mut policy = policy(ProbeMode::AllowList);
    for host in ["203.0.113.9", "db.example.com"] {
        let host = format!("{host}:80");
        assert_eq!(check_for(&policy, None, &host), "needs namespace", "{host}");
        let answer = check_for(&policy, Some(true), &host);
        assert!(
            answer.starts_with("denied podSecurity: ") && answer.contains("namespaces: [shop]"),
            "{answer}"
        );
        assert!(!check_for(&policy, Some(false), &host).starts_with("denied"), "{host}");
    }
    assert_eq!(
        check_for(&policy, Some(true), "db:80"),
        "dial 10.96.0.7:80 Full",
        "its own Services stay open"
    );
    for entry in &mut policy.allow {
        entry.namespaces = vec!["bank".to_owned(), "shop".to_owned()];
    }
    assert_eq!(check_for(&policy, Some(true), "203.0.113.9:80"), "dial 203.0.113.9:80 Coarse");
    assert_eq!(
        check_for(&policy, None, "203.0.113.9:80"),
        "dial 203.0.113.9:80 Coarse",
        "the level does not matter"
    );
    for entry in &mut policy.allow {
        entry.namespaces = vec!["bank".to_owned()];
    }
    let answer = check_for(&policy, Some(false), "203.0.113.9:80");
    assert!(answer.starts_with("denied allow: ") && answer.contains("for other namespaces"), "{answer}");
}

#[test]
fn only_names_below_the_suffixes_are_looked_up() {
    let services = services();
    let is_admitted =
        |policy: &ProbePolicy, name: &str| in_shop(policy, &services).check_lookup(name).is_ok();
    let dns_suffixes = vec!["example.com".to_owned()];
    let narrow = ProbePolicy { dns_suffixes, ..policy(ProbeMode::ServicesOnly) };
    assert!(is_admitted(&narrow, "example.com") && is_admitted(&narrow, "_db._tcp.example.com"));
    for name in ["badexample.com", "example.com.evil.org", "com", "db"] {
        assert!(!is_admitted(&narrow, name), "{name}");
    }
    assert!(
        !is_admitted(&policy(ProbeMode::AllowList), "db.example.com"),
        "the allow list is for connections"
    );
    assert!(is_admitted(&policy(ProbeMode::Any), "db.example.org"));
}
