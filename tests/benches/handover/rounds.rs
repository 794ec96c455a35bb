//! The leader changes again and again: it is told to go, or killed, and the other replica follows.

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

/// Users who create objects at once.
const USERS: usize = 8;
/// Bytes of data in each object.
const DATA: usize = 1024;
/// The Lease that we ship.
const LEASE: &str = "mainstay";
/// What a hand-over by release may take as a test: far more than on any machine, far less than the Lease.
const PLANNED_MS: f64 = 2_500.0;
/// What a take-over may come late as a test: less than another lease duration.
const LATE_MS: f64 = 4_000.0;

/// Two replicas, the one of which leads and is at work, and the other one is warm.
struct Pair<'a> {
    cluster: &'a TestCluster,
    form: Form,
    leader: Replica,
    standby: Replica,
    /// How many were started.
    count: usize,
}

/// Creates the objects that the replicas keep.
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
        let (told, ended, began) = pair.release().await?;
        beyond.push(millis(told.max(ended), began));
        since.push(millis(told, began));
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

    /// Tells the leader to go. Returns when it was told, when its last reconcile ended, and when the other one began.
    async fn release(&mut self) -> anyhow::Result<(Timestamp, Timestamp, Timestamp)> {
        let told = Timestamp::now();
        self.leader.process.terminate();
        let began = self.standby.began().await;
        let status = self.leader.process.ended().await;
        anyhow::ensure!(status.success(), "a leader that was told to stop ended with {status}");
        let ended = self.leader.ended().context("a leader that was never at work")?;
        anyhow::ensure!(ended > told, "the leader had nothing to do when it was told to stop");
        anyhow::ensure!(began > ended, "the next leader began before the last one had ended");
        Ok((told, ended, began))
    }

    /// Kills the leader at any moment between two renewals, of which the other one has seen some: who has just come counts
    /// the Lease from when it came. Returns when it was killed, when it last renewed its Lease, and when the other one began.
    async fn crash(&mut self) -> anyhow::Result<(Timestamp, Timestamp, Timestamp)> {
        let between = Duration::from_secs(self.form.lease.retry);
        sleep(between.mul_f64(1.0 + fastrand::f64())).await;
        let killed = Timestamp::now();
        self.leader.process.kill();
        self.leader.process.ended().await;
        // By then the server has answered whatever was under way, and nobody else may have taken the Lease.
        sleep(Duration::from_secs(self.form.lease.duration) / 4).await;
        let leases: Api<Lease> = self.cluster.api();
        let lease = leases.get(LEASE).await?;
        let renewed = lease.spec.and_then(|spec| spec.renew_time).context("a Lease that was held")?.0;
        let began = self.standby.began().await;
        Ok((killed, renewed, began))
    }

    /// After the leader has gone, the other one has a new one beside it.
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
