//! Changes of the leader: SIGTERM or SIGKILL ends the leader, and the standby takes over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use mainstay_tests::TestCluster;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::Form;
use crate::replica::{Replica, Task};

/// Number of tasks that create objects concurrently.
const USERS: usize = 8;
/// Bytes of data in each object.
const DATA: usize = 1024;
/// The name of the shipped Lease.
const LEASE: &str = "mainstay";
/// As a test: longest hand-over by release, far longer than on any machine and far shorter than the Lease.
const PLANNED_MS: f64 = 2_500.0;
/// As a test: latest take-over after the expiry of the Lease, less than another lease duration.
const LATE_MS: f64 = 4_000.0;

/// A leader that is reconciling, and a standby with synced caches.
struct Pair<'a> {
    cluster: &'a TestCluster,
    form: Form,
    leader: Replica,
    standby: Replica,
    /// Number of replicas started so far.
    count: usize,
}

/// Creates the objects that the replicas reconcile.
pub(crate) async fn fill(cluster: &TestCluster, objects: usize) -> anyhow::Result<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut users = JoinSet::new();
    for _ in 0..USERS {
        let (next, maps) = (Arc::clone(&next), cluster.api::<ConfigMap>());
        users.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= objects {
                    return anyhow::Ok(());
                }
                let metadata = ObjectMeta { name: Some(format!("object-{number}")), ..ObjectMeta::default() };
                let data = BTreeMap::from([("text".to_owned(), "x".repeat(DATA))]);
                let map = ConfigMap { metadata, data: Some(data), ..ConfigMap::default() };
                maps.create(&PostParams::default(), &map).await?;
            }
        });
    }
    while let Some(user) = users.join_next().await {
        user??;
    }
    Ok(())
}

pub(crate) async fn run(cluster: &TestCluster, form: Form) -> anyhow::Result<()> {
    let mut pair = Pair::start(cluster, form).await?;
    let (mut beyond, mut since) = (Vec::new(), Vec::new());
    for _ in 0..form.releases {
        let (signalled, ended, began) = pair.release().await?;
        beyond.push(millis(signalled.max(ended), began));
        since.push(millis(signalled, began));
        pair = pair.next().await?;
    }
    form.print("handover.release", beyond, 0.0..PLANNED_MS)?;
    form.print("handover.sigterm", since, 0.0..PLANNED_MS)?;

    let (mut beyond, mut since) = (Vec::new(), Vec::new());
    for _ in 0..form.crashes {
        let (killed, renewed, began) = pair.crash().await?;
        beyond.push(millis(renewed, began) - form.lease.millis());
        since.push(millis(killed, began));
        pair = pair.next().await?;
    }
    form.print("handover.crash_over_lease", beyond, 0.0..LATE_MS)?;
    form.print("handover.crash", since, 0.0..form.lease.millis() + LATE_MS)
}

// === impl Pair ===

impl<'a> Pair<'a> {
    async fn start(cluster: &'a TestCluster, form: Form) -> anyhow::Result<Self> {
        let leader = Replica::start(cluster, Task::Busy, "busy-0", &form.changes())?;
        leader.began().await;
        let standby = Replica::start(cluster, Task::Busy, "busy-1", &form.changes())?;
        standby.is_warm().await;
        Ok(Self { cluster, form, leader, standby, count: 2 })
    }

    /// Sends SIGTERM to the leader. Returns the times of the signal, of the end of the leader's last
    /// reconcile, and of the begin of the standby's first reconcile.
    async fn release(&mut self) -> anyhow::Result<(Timestamp, Timestamp, Timestamp)> {
        let signalled = Timestamp::now();
        self.leader.process.terminate();
        let began = self.standby.began().await;
        let status = self.leader.process.ended().await;
        anyhow::ensure!(status.success(), "the leader ended with {status} after SIGTERM");
        let ended = self.leader.ended().context("the leader never reconciled")?;
        anyhow::ensure!(ended > signalled, "no reconcile was running at SIGTERM");
        anyhow::ensure!(
            began > ended,
            "the next leader began before the last reconcile of the old one ended"
        );
        Ok((signalled, ended, began))
    }

    /// Kills the leader at a random moment between two renewals. Before that the standby observes at least
    /// one renewal, because a new standby counts the lease duration from its own start. Returns the times of
    /// the kill, of the last renewal, and of the begin of the standby's first reconcile.
    async fn crash(&mut self) -> anyhow::Result<(Timestamp, Timestamp, Timestamp)> {
        let between = Duration::from_secs(self.form.lease.retry);
        sleep(between.mul_f64(1.0 + fastrand::f64())).await;
        let killed = Timestamp::now();
        self.leader.process.kill();
        self.leader.process.ended().await;
        // By then the server has answered all requests in flight, and the standby cannot have taken the Lease
        // yet.
        sleep(Duration::from_secs(self.form.lease.duration) / 4).await;
        let leases: Api<Lease> = self.cluster.api();
        let lease = leases.get(LEASE).await?;
        let renewed = lease.spec.and_then(|spec| spec.renew_time).context("the Lease has no renewTime")?.0;
        let began = self.standby.began().await;
        Ok((killed, renewed, began))
    }

    /// Makes the standby the leader of the pair and starts a new standby.
    async fn next(self) -> anyhow::Result<Self> {
        let Self { cluster, form, standby: leader, count, .. } = self;
        let standby = Replica::start(cluster, Task::Busy, &format!("busy-{count}"), &form.changes())?;
        standby.is_warm().await;
        Ok(Self { cluster, form, leader, standby, count: count + 1 })
    }
}

fn millis(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}
