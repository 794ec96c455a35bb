//! The engine in paused time, with a scripted network.

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

mod bench;
mod bookkeeping;
mod early_probes;
mod limits;
pub(crate) mod no_cluster;
mod outages;
mod reachability;
mod terms;
mod wants;

use bench::*;
use no_cluster::NoCluster;

#[tokio::test(start_paused = true)]
async fn the_period_does_not_grow_with_failures() {
    let mut bench = Bench::new(8, any());
    bench.watch("web", "10.0.0.1:80", 10);
    pass(7200.0).await;
    let dialled = bench.net.dialled.lock().clone();
    let gaps: Vec<Duration> = dialled.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(gaps.len() > 700, "{}", gaps.len());
    // Tokio's paused clock has whole milliseconds, rounded up.
    let expected = Duration::from_millis(9500)..=Duration::from_millis(9502);
    assert!(gaps.iter().all(|gap| expected.contains(gap)), "{:?}", gaps.iter().max());
    assert_eq!(bench.notified(), ["shop/web"], "notified once, because the verdict has not changed");

    bench.set("10.0.0.1:80", Net::Accept);
    pass(10.0).await;
    assert_eq!(bench.notified(), ["shop/web"]);
    assert_eq!(bench.reason("web"), Some("Connected"));
}

#[tokio::test(start_paused = true)]
async fn objects_with_the_same_target_share_one_probe_and_the_shortest_period() {
    let mut bench = Bench::new(8, any());
    for name in 0..1000 {
        bench.watch(&format!("web-{name}"), "10.0.0.1:80", 60);
    }
    pass(1.0).await;
    assert_eq!(bench.dials(), 1);
    assert_eq!(bench.notified().len(), 1000);

    bench.watch("late", "10.0.0.1:80", 5);
    assert_eq!(bench.reason("late"), Some("NotReady"), "known results count at once");
    pass(4.6).await;
    assert_eq!(bench.dials(), 2, "the shorter period counts from the last start");
    bench.engine.forget(&request("late"));
    pass(5.0).await;
    assert_eq!(bench.dials(), 3, "the probe that was scheduled already");
    pass(50.0).await;
    assert_eq!(bench.dials(), 3, "back to the longer period");
    assert!(bench.notified().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_probe_in_flight_is_shared_and_dropped_with_its_last_waiter() {
    let bench = Bench::new(8, any());
    bench.set("10.0.0.1:80", Net::Silent);
    bench.watch_patiently("web", "10.0.0.1:80", 3);
    pass(2.9).await;
    bench.watch_patiently("other", "10.0.0.1:80", 3);
    assert_eq!((bench.dials(), bench.net.open.load(Ordering::Relaxed)), (1, 1));
    pass(0.2).await;
    assert_eq!(bench.dials(), 2, "it outlasts the period less jitter, so the next one starts at its end");
    bench.engine.forget(&request("web"));
    pass(0.01).await;
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 1, "another object still waits");
    bench.engine.forget(&request("other"));
    pass(0.01).await;
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 0, "the socket is closed at once");
    assert_eq!(bench.result("web"), None);
    pass(60.0).await;
    assert_eq!(bench.dials(), 2);
}

#[tokio::test(start_paused = true)]
async fn another_address_starts_without_results() {
    let mut bench = Bench::new(8, any());
    bench.watch("web", "10.0.0.1:80", 10);
    pass(1.0).await;
    assert_eq!(bench.notified(), ["shop/web"]);
    bench.watch("web", "10.0.0.2:80", 10);
    assert_eq!(bench.result("web"), None, "the old result is of another address");
    pass(1.0).await;
    assert_eq!(bench.notified(), ["shop/web"]);
    let last = bench.net.dialled.lock().last().unwrap().1;
    assert_eq!(last, "10.0.0.2:80".parse().unwrap());
}

#[tokio::test(start_paused = true)]
async fn black_holes_do_not_starve_targets_that_answer() {
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
    assert!(counts.values().all(|count| (2..=4).contains(count)), "all targets are probed: {counts:?}");
}

#[tokio::test(start_paused = true)]
async fn results_of_services_have_details_and_those_of_raw_addresses_do_not() {
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
    assert_eq!(bench.result("name"), Some(raw.clone()), "a missing name looks like a refusal");
    assert_eq!(bench.result("silent"), Some(raw), "and so does a timeout");
}

#[tokio::test(start_paused = true)]
async fn a_silent_address_does_not_hide_the_failure_of_another() {
    let bench = Bench::new(8, any());
    bench.set("[fd12::8]:80", Net::Silent);
    bench.watch("web", "dual:80", 10);
    pass(0.4).await;
    assert_eq!(bench.reason("web"), None, "it may answer yet");
    pass(0.2).await;
    assert_eq!(bench.reason("web"), Some("Refused"), "the failure that got further counts");
}

#[tokio::test(start_paused = true)]
async fn exactly_the_checked_addresses_are_dialled() {
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
    assert_eq!(dialled, ["10.0.0.9:80"], "one dial, to the admitted address in its canonical form");
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
    assert_eq!(bench.notified(), ["shop/web", "shop/web"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_lookup_is_inconclusive() {
    let bench = Bench::new(8, any());
    bench.watch("dark", "db.example.dark:80", 10);
    bench.watch("broken", "db.example.broken:80", 10);
    let check = ProbeCheck::Dns(mainstay_api::plan::DnsCheck {
        name: "db.example.dark".to_owned(),
        record: mainstay_api::wait_for::DnsRecord::Address,
        min_records: 1,
    });
    let address = Address::parse("address", "db:80").unwrap();
    let lookup = Want { target: Target::new("shop", check), ..want(address, 10) };
    bench.engine.watch(&request("dns"), vec![lookup]);
    pass(1.0).await;
    for name in ["dark", "broken", "dns"] {
        assert_eq!(bench.reason(name), Some("LookUpFailed"), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_a_raw_address_is_published_as_late_as_silence_without_holding_a_slot() {
    let mut bench = Bench::new(4, ProbePolicy { max_per_second_per_namespace: 200, ..any() });
    bench.set("10.0.0.9:80", Net::Silent);
    bench.watch_patiently("silent", "10.0.0.9:80", 10);
    for refusing in 1..=8 {
        bench.watch_patiently(&format!("refusing-{refusing}"), &format!("10.0.0.{refusing}:80"), 10);
    }
    bench.watch_patiently("service", "db:80", 10);
    pass(9.999).await;
    assert_eq!(
        bench.notified(),
        ["shop/service"],
        "failures of a Service have details and are published at once"
    );
    assert_eq!(bench.dials(), 11, "a delayed result holds no slot");
    pass(0.002).await;
    assert_eq!(bench.notified().len(), 9, "all others together");
    assert_eq!(bench.result("silent"), bench.result("refusing-1"));

    bench.engine.forget(&request("silent"));
    pass(0.1).await;
    assert_eq!(bench.dials(), 20, "each once more");
    for refusing in 1..=8 {
        bench.engine.forget(&request(&format!("refusing-{refusing}")));
    }
    pass(60.0).await;
    assert_eq!(bench.notified(), Vec::<String>::new(), "no object waits for them any more");
}

#[tokio::test(start_paused = true)]
async fn a_panic_ends_one_probe_and_the_next_one_runs() {
    let bench = Bench::new(8, any());
    bench.set("10.0.0.1:80", Net::Panic);
    bench.set("10.0.0.2:80", Net::Accept);
    bench.watch("bad", "10.0.0.1:80", 10);
    bench.watch("good", "10.0.0.2:80", 10);
    pass(1.0).await;
    assert_eq!((bench.reason("bad"), bench.reason("good")), (Some("ProbePanicked"), Some("Connected")));
    bench.set("10.0.0.1:80", Net::Accept);
    pass(10.0).await;
    assert_eq!(bench.reason("bad"), Some("Connected"), "probed again, so its slot was freed");
    assert_eq!(bench.net.open.load(Ordering::Relaxed), 0);
}
