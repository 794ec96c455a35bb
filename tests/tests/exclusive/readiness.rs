//! Readiness and liveness while the API server is down, and while two API servers restart in turn.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use mainstay::manager::ManagerOptions;
use mainstay_tests::checks::Checks;
use mainstay_tests::middlebox::Middlebox;
use mainstay_tests::report::{figure_of_time, long_form};
use mainstay_tests::{LocalManager, TestCluster};
use serde_json::json;
use tokio::time::Instant;

/// Longest time from the start of the API server until all checks pass again.
const BACK: Duration = Duration::from_secs(10);
/// Time that the short form allows a slow machine in addition.
const SLACK: Duration = Duration::from_secs(15);

/// Returns the promised time, in the short form with `SLACK` added.
fn at_most(promised: Duration) -> Duration {
    if long_form() { promised } else { promised + SLACK }
}

fn options(watch_down_limit: Duration) -> ManagerOptions {
    ManagerOptions { signals: false, watch_down_limit, ..ManagerOptions::replica("mainstay") }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_api_server_outage_fails_readiness_after_the_limit_and_never_liveness() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let identity = cluster.install_base().await;
    let limit = if long_form() { Duration::from_mins(1) } else { Duration::from_secs(4) };
    let changes = json!({"leaderElection": {"onLost": "Campaign"}});
    let manager = LocalManager::start_as(options(limit), &cluster, &identity, &changes, |_| {}).await;
    let mut checks = Checks::of(manager.probes(), &[]).await;
    let mut all = checks.beginning_with("/readyz/cache-");
    assert!(all.len() > 2, "not every kind has a check: {all:?}");
    all.push("/readyz".to_owned());

    let down = Instant::now();
    cluster.control_plane().kill_apiserver().await;
    let took = checks.turned(false, &all, down).await;
    figure_of_time("readiness.down_told", took.last);
    assert!(took.first >= limit, "checks failed after {took:?}");
    // The outage still lasts.
    assert!(took.last <= at_most(limit + Duration::from_secs(2)), "checks failed after {took:?}");
    cluster.control_plane().start_apiserver().await.expect("it starts again");
    let took = checks.turned(true, &all, Instant::now()).await;
    figure_of_time("readiness.down_back", took.last);
    assert!(took.last <= at_most(BACK), "checks passed again after {took:?}");

    checks.are_unchanged();
    drop(checks);
    manager.stop().await.expect("it ran all along");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn restarting_two_api_servers_in_turn_changes_no_check_and_no_leader() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let identity = cluster.install_base().await;
    let first = cluster.programs();
    let second = first.another_apiserver().await.expect("a second server");
    let middlebox = Middlebox::before_all(vec![cluster.address(), address(&second.url())]).await;
    // Short enough that a watch that does not recover from a restart fails its check within the test.
    let limit = if long_form() { Duration::from_mins(1) } else { Duration::from_secs(20) };
    let identity = identity.through(middlebox.address());
    let manager = LocalManager::start_as(options(limit), &cluster, &identity, &json!({}), |_| {}).await;
    manager.leads().await;
    let mut checks = Checks::of(manager.probes(), &[]).await;
    let holder = async || {
        let lease = cluster.api::<Lease>().get("mainstay").await.expect("a Lease").spec.expect("a holder");
        (lease.holder_identity, lease.lease_transitions)
    };
    let leader = holder().await;

    // Each server stops as soon as the other is ready, so a client reconnects to a server that has just
    // started.
    for _ in 0..if long_form() { 4 } else { 1 } {
        let began = Instant::now();
        second.stop().await;
        second.start().await.expect("it starts again");
        figure_of_time("readiness.in_turn.second", began.elapsed());
        let began = Instant::now();
        first.restart_apiserver().await.expect("it starts again");
        figure_of_time("readiness.in_turn.first", began.elapsed());
    }
    assert_eq!(holder().await, leader, "the term of leadership changed");

    checks.are_unchanged();
    drop(checks);
    manager.stop().await.expect("it ran all along");
    drop(second);
    cluster.stop().await;
}

fn address(url: &str) -> std::net::SocketAddr {
    let address = url.trim_start_matches("https://").parse();
    address.expect("the address of a server")
}
