//! The endpoints and the owners of addresses.

use super::*;

#[test]
fn the_endpoints_of_a_cluster_address_are_checked_too() {
    for mode in [ProbeMode::ServicesOnly, ProbeMode::AllowList, ProbeMode::Any] {
        let answer = check(&policy(mode), "forged:80");
        assert!(answer.starts_with("denied specialAddress: "), "{mode:?}: {answer}");
        for (host, rule) in [
            ("kubelet", "nodePorts"),
            ("etcd-of-a-node", "nodePorts"),
            ("x11", "deniedPorts"),
            ("api", "apiServer"),
            ("self", "manager"),
        ] {
            let answer = check(&policy(mode), &format!("{host}:80"));
            assert!(answer.starts_with(&format!("denied {rule}: ")), "{host} {mode:?}: {answer}");
        }
        assert_eq!(check(&policy(mode), "etcd:80"), "dial 10.96.0.11:80 Full", "a tenant's own");
        assert_eq!(
            check(&policy(mode), "unreadable:80"),
            "ServicesUnknown",
            "unknown endpoints are not dialled"
        );
    }
}

#[test]
fn the_endpoints_of_an_address_are_checked_in_every_form_of_it() {
    let policy = policy(ProbeMode::Any);
    let services = services();
    let authorizer = in_shop(&policy, &services);
    for (ip, rule) in [
        ("10.96.0.9", "specialAddress"),
        ("10.96.0.10", "nodePorts"),
        ("10.96.0.13", "deniedPorts"),
        ("10.96.0.15", "apiServer"),
        ("10.96.0.16", "manager"),
    ] {
        for host in [ip.to_owned(), format!("[::ffff:{ip}]"), format!("[64:ff9b::{ip}]")] {
            let answer = check(&policy, &format!("{host}:80"));
            assert!(answer.starts_with(&format!("denied {rule}: ")), "{host}: {answer}");
        }
        let by_dns = authorizer.check_resolved(
            "db.example.com",
            &["203.0.113.9".parse().unwrap(), ip.parse().unwrap()],
            80,
        );
        assert!(matches!(by_dns, Err(ProbeResult::Denied { rule: found, .. }) if found == rule));
    }
    assert_eq!(check(&policy, "10.96.0.14:80"), "ServicesUnknown");
    assert_eq!(check(&policy, "10.96.0.11:80"), "dial 10.96.0.11:80 Coarse");
}

#[test]
fn a_cluster_address_that_a_node_owns_by_ipvs_is_dialled() {
    let policy = policy(ProbeMode::Any);
    assert_eq!(check(&policy, "ipvs:80"), "dial 10.1.9.8:80 Full");
    assert_eq!(check(&policy, "10.1.9.8:80"), "dial 10.1.9.8:80 Coarse");
    for own in ["10.1.9.9", "[fd12::9]"] {
        assert!(check(&policy, &format!("{own}:80")).starts_with("denied manager: "), "{own}");
    }
    assert!(check(&policy, "self:80").starts_with("denied manager: "), "its endpoints decide");
}

#[test]
fn the_result_for_a_raw_address_hides_ports_and_causes_of_its_endpoints() {
    let policy = policy(ProbeMode::Any);
    let services = services();
    let authorizer = in_shop(&policy, &services);
    let message = |host: &str| {
        let Err(result) = authorizer.route(&Address::parse("address", &format!("{host}:80")).unwrap()) else {
            panic!("{host} is dialled")
        };
        result.message().to_owned()
    };
    for (named, raw, secret) in [
        ("kubelet", "10.96.0.10", "10250"),
        ("x11", "10.96.0.13", "6000"),
        ("unreadable", "10.96.0.14", "a slice cannot be read"),
    ] {
        assert!(message(named).contains(secret), "{named}: {}", message(named));
        assert!(!message(raw).contains(secret), "{raw}: {}", message(raw));
    }
    assert!(!message("203.0.113.200").contains("not looked up"), "{}", message("203.0.113.200"));
}

#[test]
fn the_endpoint_port_of_a_listed_address_is_not_disclosed() {
    struct Listed;
    impl Services for Listed {
        fn find(&self, _: &str, _: &str, _: u16) -> ServiceAnswer {
            ServiceAnswer::Headless(vec!["10.1.0.1".parse().unwrap()])
        }

        fn backends(&self, _: SocketAddr) -> Result<Option<Backends>, String> {
            let endpoint = Endpoint { ip: "10.1.0.9".parse().unwrap(), port: Some(10250), is_pod: true };
            Ok(Some(Backends { cluster_address_of: None, endpoints: vec![endpoint] }))
        }
    }
    let policy = policy(ProbeMode::ServicesOnly);
    let authorizer = Authorizer {
        policy: &policy,
        namespace: "shop",
        restricted: None,
        services: &Listed,
        cluster: &FakeCluster,
    };
    let Err(result) = authorizer.route(&Address::parse("address", "db:80").unwrap()) else {
        panic!("it is dialled")
    };
    assert!(!result.message().contains("10250"), "{}", result.message());
}

#[test]
fn no_raw_address_is_dialled_before_the_api_server_is_known() {
    let policy = policy(ProbeMode::Any);
    assert_eq!(check(&policy, "203.0.113.200:80"), "OwnersUnknown");
    assert_eq!(check(&policy, "[64:ff9b::203.0.113.200]:80"), "OwnersUnknown");
    assert_eq!(
        check(&policy, "slow:80"),
        "dial 203.0.113.200:80 Full",
        "the cluster wrote its EndpointSlices"
    );
}
