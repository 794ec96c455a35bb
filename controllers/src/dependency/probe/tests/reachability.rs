//! Whether the target answered a probe, for each result.

use mainstay_api::plan::DnsCheck;
use mainstay_api::wait_for::DnsRecord;

use super::*;
use crate::dependency::probe::attempt::attempt;
use crate::dependency::probe::reachability::Reachability;

async fn reachability_of(net: &Arc<FakeNet>, check: ProbeCheck) -> Option<Reachability> {
    let policy = ProbePolicy { denied_ports: vec![6000], ..any() };
    let target = Target::new("shop", check);
    attempt(&target, Duration::from_secs(1), &policy, &seams(net)).await.reachability
}

fn tcp(address: &str) -> ProbeCheck {
    ProbeCheck::Tcp(Address::parse("address", address).unwrap())
}

fn dns(name: &str) -> ProbeCheck {
    ProbeCheck::Dns(DnsCheck { name: name.to_owned(), record: DnsRecord::Address, min_records: 1 })
}

#[tokio::test(start_paused = true)]
async fn one_answer_of_several_addresses_is_an_answer() {
    let net = Arc::new(FakeNet::default());
    let (v4, v6) = ("10.96.0.8:80".parse().unwrap(), "[fd12::8]:80".parse().unwrap());
    for (first, second, expected) in [
        (Some(Net::Silent), Some(Net::Silent), Reachability::Silent),
        (Some(Net::Silent), None, Reachability::Answered),
        (Some(Net::Silent), Some(Net::Accept), Reachability::Answered),
        (None, None, Reachability::Answered),
    ] {
        net.hosts.lock().clear();
        net.hosts.lock().extend(first.map(|first| (v4, first)));
        net.hosts.lock().extend(second.map(|second| (v6, second)));
        assert_eq!(reachability_of(&net, tcp("dual:80")).await, Some(expected), "{first:?} and {second:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_a_name_server_is_no_answer_of_the_host() {
    let net = Arc::new(FakeNet::default());
    net.names.lock().insert("db.example.com".to_owned(), vec!["10.0.0.9".parse().unwrap()]);
    net.names.lock().insert("loopback.example.com".to_owned(), vec!["127.0.0.1".parse().unwrap()]);
    net.hosts.lock().insert("10.0.0.9:80".parse().unwrap(), Net::Silent);
    assert_eq!(reachability_of(&net, tcp("db.example.com:80")).await, Some(Reachability::Silent));
    assert_eq!(
        reachability_of(&net, tcp("db.example.com:81")).await,
        Some(Reachability::Answered),
        "refused"
    );
    assert_eq!(reachability_of(&net, tcp("none.example.com:80")).await, None, "the host was not contacted");
    assert_eq!(reachability_of(&net, tcp("loopback.example.com:80")).await, None, "denied after the lookup");
    assert_eq!(reachability_of(&net, tcp("db.example.dark:80")).await, Some(Reachability::Silent));
    assert_eq!(reachability_of(&net, tcp("db.example.broken:80")).await, Some(Reachability::Silent));
    assert_eq!(reachability_of(&net, tcp("10.0.0.9:6000")).await, None, "denied");
    assert_eq!(reachability_of(&net, tcp("missing:80")).await, None, "the Service does not exist");
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_a_name_server_is_an_answer_for_a_dns_check() {
    let net = Arc::new(FakeNet::default());
    net.names.lock().insert("db.example.com".to_owned(), vec!["10.0.0.9".parse().unwrap()]);
    assert_eq!(reachability_of(&net, dns("db.example.com")).await, Some(Reachability::Answered));
    assert_eq!(reachability_of(&net, dns("none.example.com")).await, Some(Reachability::Answered));
    assert_eq!(reachability_of(&net, dns("db.example.dark")).await, Some(Reachability::Silent));
    assert_eq!(reachability_of(&net, dns("db.example.broken")).await, Some(Reachability::Silent));
}
