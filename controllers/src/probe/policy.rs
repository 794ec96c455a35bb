//! What may be dialled on behalf of whom.
//!
//! Whoever may create a WaitDeployment can make the manager connect somewhere and read off the result, so the default
//! admits Services of the object's own namespace only, found through the API and not through DNS. In-cluster
//! addresses live in private ranges; blocking ranges alone would be either useless or fatal.
//!
//! # Invariants
//! 1. A [`Route::Dial`] holds only addresses that passed every check, in the form in which they are dialled.
//! 2. One forbidden address among those of a name forbids the name: a mixed answer is how rebinding looks.
//! 3. A denial names the key of the configuration that would admit the address, or says that none does, and
//!    never tells an address that a name resolved to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use mainstay::config::{ProbeMode, ProbePolicy};
use mainstay_api::{Address, Host};

use super::ranges::{Special, canonical, special};
use super::services::{ServiceAnswer, Services, service_name};
use super::{ProbeResult, Target};
use crate::reasons::probe;

/// Ports of kubelet, kube-proxy, etcd, controller manager and scheduler: open on nodes, and behind network policies
/// that trust the manager. Not applied to cluster addresses, which never are a node's.
const NODE_PORTS: [u16; 9] = [2379, 2380, 2381, 10248, 10249, 10250, 10255, 10257, 10259];

/// How much a result may tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    /// Everything: the user can see the Service anyway.
    Full,
    /// Only that it does not answer: refused against silent is what a port scan wants to know.
    Coarse,
}

/// What to do about a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    /// Connect to one of these.
    Dial(Vec<SocketAddr>, Detail),
    /// Look this name up, then ask [`check_resolved`].
    Resolve(String),
    /// There is a result without dialling.
    Known(ProbeResult),
}

/// Decides what to do about a target under a policy.
pub(super) fn route(policy: &ProbePolicy, target: &Target, services: &dyn Services) -> Route {
    let Some(Address { host, port }) = target.address() else {
        return Route::Known(ProbeResult::NotReady {
            reason: probe::FAILED,
            message: "nothing to connect to".to_owned(),
        });
    };
    let port = *port;
    if policy.denied_ports.contains(&port) {
        return denied(format!("port {port} is listed in probePolicy.deniedPorts"));
    }
    match host {
        Host::Ip(ip) => route_ip(policy, *ip, port),
        Host::Name(name) if name == "localhost" || name.ends_with(".localhost") => {
            // RFC 6761: never asked of DNS.
            dial(policy, [Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()], port, Detail::Coarse)
        }
        Host::Name(name) => match service_name(name, target.namespace()) {
            Some((service, namespace)) if namespace == target.namespace() => {
                route_service(policy, target, name, port, service, services)
            }
            _ => route_name(policy, target.namespace(), name),
        },
    }
}

/// Checks every address that a name admitted by [`route`] resolved to.
pub(super) fn check_resolved(policy: &ProbePolicy, addresses: Vec<IpAddr>, port: u16) -> Route {
    dial(policy, addresses, port, Detail::Coarse)
}

// === private ===

fn route_ip(policy: &ProbePolicy, ip: IpAddr, port: u16) -> Route {
    let ip = canonical(ip);
    // What is special is told first: it says more than the mode does, and `allowLoopback` admits in every mode.
    let admitted = special(ip).is_some()
        || match policy.mode {
            ProbeMode::ServicesOnly => false,
            ProbeMode::AllowList => policy.allow.iter().any(|rule| rule.to.allows_address(ip)),
            ProbeMode::Any => true,
        };
    if admitted { dial(policy, [ip], port, Detail::Coarse) } else { denied(not_admitted(policy.mode)) }
}

fn route_name(policy: &ProbePolicy, namespace: &str, name: &str) -> Route {
    let admitted = match policy.mode {
        ProbeMode::ServicesOnly => false,
        ProbeMode::AllowList => policy.allow.iter().any(|rule| rule.to.allows_host(name)),
        ProbeMode::Any => true,
    };
    if admitted {
        Route::Resolve(name.to_owned())
    } else {
        denied(format!("it names no Service of namespace {namespace}; {}", not_admitted(policy.mode)))
    }
}

fn route_service(
    policy: &ProbePolicy,
    target: &Target,
    host: &str,
    port: u16,
    name: &str,
    services: &dyn Services,
) -> Route {
    let namespace = target.namespace();
    let not_ready = |reason, message| Route::Known(ProbeResult::NotReady { reason, message });
    match services.find(namespace, name, port) {
        ServiceAnswer::Cluster(ips) => {
            dial_checked(policy, ips, port, Detail::Full, /* node_ports_denied */ false)
        }
        ServiceAnswer::Headless(ips) if ips.is_empty() => {
            not_ready(probe::NO_ENDPOINTS, format!("Service {namespace}/{name} has no ready endpoint"))
        }
        ServiceAnswer::Headless(ips) => dial(policy, ips, port, Detail::Full),
        ServiceAnswer::External(outside) => route_name(policy, namespace, &outside.to_ascii_lowercase()),
        ServiceAnswer::NoPort => {
            not_ready(probe::PORT_NOT_FOUND, format!("Service {namespace}/{name} has no TCP port {port}"))
        }
        // A name with dots may still be a host outside. One without never is: DNS would complete it in the
        // namespace of the manager, which is not the one that is meant.
        ServiceAnswer::NotFound if policy.mode != ProbeMode::ServicesOnly && host.contains('.') => {
            route_name(policy, namespace, host)
        }
        ServiceAnswer::NotFound => {
            not_ready(probe::SERVICE_NOT_FOUND, format!("Service {namespace}/{name} does not exist"))
        }
        ServiceAnswer::Unknown(cause) => {
            not_ready(probe::SERVICES_UNKNOWN, format!("Services cannot be read: {cause}"))
        }
    }
}

fn dial(policy: &ProbePolicy, ips: impl IntoIterator<Item = IpAddr>, port: u16, detail: Detail) -> Route {
    dial_checked(policy, ips, port, detail, true)
}

fn dial_checked(
    policy: &ProbePolicy,
    ips: impl IntoIterator<Item = IpAddr>,
    port: u16,
    detail: Detail,
    node_ports_denied: bool,
) -> Route {
    if node_ports_denied && NODE_PORTS.contains(&port) {
        return denied(format!(
            "port {port} is one that nodes keep for Kubernetes itself, and no setting admits it; a Service with a \
             cluster address may use it"
        ));
    }
    let mut addresses = Vec::new();
    for ip in ips {
        let ip = canonical(ip);
        match special(ip) {
            Some(Special::Loopback) if !policy.allow_loopback => {
                return denied(
                    "it is a loopback address of the manager itself; probePolicy.allowLoopback admits those"
                        .to_owned(),
                );
            }
            Some(Special::Never(what)) => return denied(format!("it is {what}, and no setting admits it")),
            _ => addresses.push(SocketAddr::new(ip, port)),
        }
    }
    Route::Dial(addresses, detail)
}

fn not_admitted(mode: ProbeMode) -> String {
    match mode {
        ProbeMode::ServicesOnly => {
            "probePolicy.mode ServicesOnly admits Services of the object's own namespace only; \
                                    mode AllowList with an entry in probePolicy.allow admits more"
                .to_owned()
        }
        _ => "no entry of probePolicy.allow admits it".to_owned(),
    }
}

fn denied(message: String) -> Route {
    Route::Known(ProbeResult::Denied { message })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use mainstay::config::{AllowEntry, AllowRule, ManagerConfiguration};
    use mainstay_api::ProbeCheck;

    use super::*;

    struct Table(HashMap<&'static str, ServiceAnswer>);

    impl Services for Table {
        fn find(&self, namespace: &str, name: &str, _: u16) -> ServiceAnswer {
            let found = self.0.get(format!("{namespace}/{name}").as_str());
            found.cloned().unwrap_or(ServiceAnswer::NotFound)
        }
    }

    fn services() -> Table {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        Table(HashMap::from([
            ("shop/db", ServiceAnswer::Cluster(vec![ip("10.96.0.7")])),
            ("shop/headless", ServiceAnswer::Headless(vec![ip("10.1.0.1"), ip("10.1.0.2")])),
            ("shop/empty", ServiceAnswer::Headless(vec![])),
            ("shop/evil", ServiceAnswer::Headless(vec![ip("10.1.0.1"), ip("169.254.169.254")])),
            ("shop/outside", ServiceAnswer::External("DB.example.com".to_owned())),
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
        let default = ManagerConfiguration::default().probe_policy;
        ProbePolicy { mode, allow, denied_ports: vec![6000], ..default }
    }

    fn check(policy: &ProbePolicy, text: &str) -> String {
        let target = Target::new("shop", ProbeCheck::Tcp(Address::parse("waitProbe.address", text).unwrap()));
        match route(policy, &target, &services()) {
            Route::Dial(addresses, detail) => {
                let addresses: Vec<_> = addresses.iter().map(ToString::to_string).collect();
                format!("dial {} {detail:?}", addresses.join(","))
            }
            Route::Resolve(name) => format!("resolve {name}"),
            Route::Known(ProbeResult::Denied { message }) => format!("denied: {message}"),
            Route::Known(result) => result.reason().to_owned(),
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
    fn all_else_is_denied_by_default_with_the_key_that_admits_it() {
        let policy = policy(ProbeMode::ServicesOnly);
        for host in ["db.pay", "db.pay.svc", "example.com", "outside", "10.0.0.1", "[2001:db8::1]", "8.8.8.8"]
        {
            let answer = check(&policy, &format!("{host}:80"));
            assert!(
                answer.starts_with("denied: ") && answer.contains("probePolicy.mode"),
                "{host}: {answer}"
            );
        }
        assert_eq!(check(&policy, "missing.shop:80"), "ServiceNotFound");
    }

    #[test]
    fn the_allow_list_admits_what_it_lists() {
        let policy = policy(ProbeMode::AllowList);
        assert_eq!(check(&policy, "203.0.113.9:80"), "dial 203.0.113.9:80 Coarse");
        assert_eq!(
            check(&policy, "[::ffff:203.0.113.9]:80"),
            "dial 203.0.113.9:80 Coarse",
            "dialled as what it is"
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
                assert!(answer.starts_with("denied: "), "{host} {mode:?}: {answer}");
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
            assert!(check(&policy, "0.0.0.0:80").starts_with("denied"), "another word for loopback");
            assert!(check(&policy, "169.254.169.254:80").starts_with("denied"));
        }
    }

    #[test]
    fn one_forbidden_address_among_many_forbids_the_name() {
        let policy = policy(ProbeMode::Any);
        let ips = |list: &[&str]| list.iter().map(|ip| ip.parse().unwrap()).collect();
        let good = check_resolved(&policy, ips(&["203.0.113.1", "2001:db8::1"]), 80);
        assert!(matches!(good, Route::Dial(addresses, Detail::Coarse) if addresses.len() == 2));
        let Route::Known(ProbeResult::Denied { message }) =
            check_resolved(&policy, ips(&["203.0.113.1", "::ffff:10.0.0.1", "::1"]), 80)
        else {
            panic!("a loopback address slipped through")
        };
        assert!(!message.contains("::1") && !message.contains("203"), "no address is told: {message}");
    }
}
