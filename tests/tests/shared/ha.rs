//! Two replicas and one Lease: one works; when it ends in any way the other one works, and never both.
//!
//! Each replica is a process with its own ServiceAccount, so that the audit log names the writer of each
//! write.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::audit::{Term, Write, outside_of_terms, terms};
use mainstay_tests::fixtures::{wait_deployment, wait_probe};
use mainstay_tests::manifests::Identity;
use mainstay_tests::process::get;
use mainstay_tests::report::figure;
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::{ManagerProcess, TestCluster, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Limit for a hand-over when the leader releases its Lease, far below the lease duration of 15 s.
const PLANNED: Duration = Duration::from_secs(5);
/// Lease duration in tests that wait for it to expire.
const SHORT_LEASE: Duration = Duration::from_secs(5);
/// Additional limit for a take-over on a slow machine, shorter than another lease duration.
const SLACK: Duration = Duration::from_secs(4);
/// Pause between two changes of the object that keeps the leader busy.
const CHANGE_PERIOD: Duration = Duration::from_millis(50);
/// Number of writes that prove a replica at work.
const AT_WORK: usize = 10;

struct Replica {
    user: &'static str,
    process: ManagerProcess,
}

/// Two replicas with constant work; the first one leads.
struct Pair {
    leader: Replica,
    standby: Replica,
    prerequisite: Prerequisite,
    _changes: JoinSet<()>,
}

// === impl Replica ===

impl Replica {
    async fn start(cluster: &TestCluster, user: &'static str, changes: &Value) -> Self {
        let kubeconfig = cluster.kubeconfig_of(user).await;
        let identity = Identity { service_account: user.to_owned(), kubeconfig };
        let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
        Self { user, process: ManagerProcess::start(binary, cluster, &identity, user, changes) }
    }

    async fn logged(&self, message: &str) {
        self.process.logged(message, |line| line["msg"] == message).await;
    }

    fn works<'a>(&self, writes: &'a [Write]) -> Vec<&'a Write> {
        writes.iter().filter(|write| write.user == self.user && write.is_work()).collect()
    }

    fn term(&self, writes: &[Write]) -> Option<Term> {
        terms(writes).into_iter().find(|term| term.user == self.user)
    }

    /// Waits until this replica has made `AT_WORK` writes since then, and returns the first of them.
    async fn at_work(&self, cluster: &TestCluster, since: Timestamp) -> Write {
        let state = format!("{} to work since {since}", self.user);
        let done = |writes: &[Write]| {
            let mut done = self.works(writes);
            done.retain(|write| write.received >= since);
            (done.len() >= AT_WORK).then(|| done[0].clone())
        };
        cluster.until_written(&state, done).await
    }
}

// === impl Pair ===

impl Pair {
    async fn start(cluster: &TestCluster, changes: &Value) -> Self {
        cluster.install_base_for(&["mainstay-too"]).await;
        let leader = Replica::start(cluster, "mainstay", changes).await;
        leader.logged("became leader").await;
        let standby = Replica::start(cluster, "mainstay-too", changes).await;
        standby.logged("new leader").await;

        let prerequisite = Prerequisite::open();
        create(cluster, "busy", &prerequisite).await;
        let objects = cluster.api::<WaitDeployment>();
        let mut changes = JoinSet::new();
        changes.spawn(async move {
            for limit in 0u64.. {
                let change = Patch::Merge(json!({"spec": {"revisionHistoryLimit": limit}}));
                objects.patch("busy", &PatchParams::default(), &change).await.expect("changed");
                tokio::time::sleep(CHANGE_PERIOD).await;
            }
        });
        leader.at_work(cluster, Timestamp::UNIX_EPOCH).await;
        let writes = cluster.writes();
        assert!(standby.works(&writes).is_empty(), "a standby replica writes nothing: {writes:#?}");
        let probes = standby.process.address("probes").await;
        assert_eq!(get(probes, "/readyz").await.0, 200, "a standby replica is ready");
        Self { leader, standby, prerequisite, _changes: changes }
    }

    /// Asserts that the new leader reconciles a new object and ends in order, that there were two terms, and
    /// that no write was made outside its writer's term.
    async fn conclude(mut self, cluster: &TestCluster) {
        create(cluster, "after", &self.prerequisite).await;
        wait::until(&cluster.api::<Deployment>(), "after", "work goes on", |_| true).await;
        self.standby.process.terminate();
        assert!(self.standby.process.ended().await.success(), "the last leader ends in good order");

        let writes = cluster.writes();
        let wrong = outside_of_terms(&writes);
        assert!(wrong.is_empty(), "written without the Lease: {wrong:#?}; terms: {:#?}", terms(&writes));
        let terms = terms(&writes);
        let users: Vec<_> = terms.iter().map(|term| term.user.as_str()).collect();
        assert_eq!(users, [self.leader.user, self.standby.user], "{terms:#?}");
        assert!(terms[1].until.is_some(), "the last term ends with a release: {terms:#?}");
        for (replica, least) in [(&self.leader, AT_WORK), (&self.standby, AT_WORK)] {
            assert!(replica.works(&writes).len() >= least, "{} was at work", replica.user);
        }
    }
}

#[tokio::test]
async fn a_stopped_leader_hands_over_in_a_fraction_of_its_lease() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let mut pair = Pair::start(&cluster, &json!({})).await;

    let signalled = Timestamp::now();
    pair.leader.process.terminate();
    let first = pair.standby.at_work(&cluster, signalled).await;
    let took = first.received.duration_since(signalled).unsigned_abs();
    figure("ha.hand_over_at_sigterm", took.as_secs_f64(), "s");
    assert!(took < PLANNED, "handed over after {took:?}, by {first:?}");
    assert!(pair.leader.process.ended().await.success(), "the old leader ends in good order");

    let writes = cluster.writes();
    let (old, new) = (pair.leader.term(&writes), pair.standby.term(&writes));
    let released = old.and_then(|term| term.until).expect("the Lease was released");
    let taken = new.expect("the Lease was taken").from;
    figure("ha.release_to_take_over", taken.duration_since(released).as_secs_f64(), "s");
    pair.conclude(&cluster).await;
}

#[tokio::test]
async fn a_killed_leader_is_replaced_when_its_lease_expires_and_not_before() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let mut pair = Pair::start(&cluster, &short_lease()).await;

    pair.leader.process.kill();
    assert!(!pair.leader.process.ended().await.success());
    assert_taken_over_in_time(&cluster, &pair, "ha.take_over_after_kill").await;
    pair.conclude(&cluster).await;
}

#[tokio::test]
async fn a_leader_frozen_past_its_lease_writes_nothing_when_it_thaws() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let mut pair = Pair::start(&cluster, &short_lease()).await;

    pair.leader.process.signal(Signal::STOP);
    assert_taken_over_in_time(&cluster, &pair, "ha.take_over_after_freeze").await;
    let thawed = Timestamp::now();
    pair.leader.process.signal(Signal::CONT);
    assert_eq!(pair.leader.process.ended().await.code(), Some(1), "a replica that lost the Lease fails");

    let took = Timestamp::now().duration_since(thawed).as_secs_f64();
    figure("ha.thaw_to_exit", took, "s");
    let writes = cluster.writes();
    let late: Vec<_> = writes
        .iter()
        .filter(|write| {
            write.user == pair.leader.user && write.received >= thawed && write.resource != "events"
        })
        .collect();
    assert!(late.is_empty(), "the thawed replica wrote: {late:#?}");
    let log = pair.leader.process.log();
    let reported =
        log.iter().any(|line| line["error"].as_str().is_some_and(|e| e.contains("the Lease was lost")));
    assert!(reported, "the log lacks the lost Lease: {log:#?}");
    pair.conclude(&cluster).await;
}

/// Waits until the standby works, and checks the time since the last renewal of the leader, which has gone.
async fn assert_taken_over_in_time(cluster: &TestCluster, pair: &Pair, name: &str) {
    let gone = Timestamp::now();
    let first = pair.standby.at_work(cluster, gone).await;
    let writes = cluster.writes();
    let old = pair.leader.term(&writes).expect("the first term");
    let waited = first.received.duration_since(old.renewed).unsigned_abs();
    figure(&format!("{name}_since_renewal"), waited.as_secs_f64(), "s");
    let taken = old.until.expect("the Lease was taken").duration_since(old.renewed).unsigned_abs();
    assert!(taken >= SHORT_LEASE, "taken {taken:?} after the last renewal, before the Lease was over");
    assert!(waited < SHORT_LEASE + SLACK, "worked only {waited:?} after the last renewal");
}

fn short_lease() -> Value {
    let duration = format!("{}s", SHORT_LEASE.as_secs());
    json!({"leaderElection": {"leaseDuration": duration, "renewDeadline": "3s", "retryPeriod": "1s"}})
}

async fn create(cluster: &TestCluster, name: &str, prerequisite: &Prerequisite) {
    // No Pods: the tests check writes, not their effects.
    let changes = json!({"waitProbe": wait_probe(prerequisite.address()), "spec": {"replicas": 0}});
    let object = wait_deployment(name, &changes);
    cluster.api::<WaitDeployment>().create(&PostParams::default(), &object).await.expect("created");
}
