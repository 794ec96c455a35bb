//! Electors against an API server in memory, on a paused clock.

mod clocks;
mod server;
mod trouble;

use super::*;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::Instant;

use self::server::{Reply, Server, reply, status};
use crate::metrics::Format;

/// A clock whose boot time and wall time follow tokio's paused clock.
fn clock() -> Clock {
    let (start, boot, wall) = (Instant::now(), BootInstant::now(), Timestamp::now());
    Arc::new(move || {
        let since = start.elapsed();
        Now { boot: boot + since, wall: wall + since, random: 0.5 }
    })
}

/// One elector in its own task.
struct Replica {
    fence: Fence,
    leadership: watch::Receiver<Leadership>,
    events: Arc<Mutex<Vec<LeaseEvent>>>,
    registry: Registry,
    stop: CancellationToken,
    /// Resolves the future of `end_work`.
    end_work: Option<oneshot::Sender<bool>>,
    ended: JoinSet<Ended>,
}

impl Replica {
    fn start(server: &Server, identity: &str) -> Self {
        Self::start_with(server, ElectionSettings::new("default", "mainstay", identity))
    }

    fn start_with(server: &Server, settings: ElectionSettings) -> Self {
        Self::start_as(clock(), server, settings, Notice::default())
    }

    fn start_by(clock: Clock, server: &Server, settings: ElectionSettings) -> Self {
        Self::start_as(clock, server, settings, Notice::default())
    }

    fn start_with_notice(server: &Server, settings: ElectionSettings, notice: Notice) -> Self {
        Self::start_as(clock(), server, settings, notice)
    }

    fn start_as(clock: Clock, server: &Server, settings: ElectionSettings, notice: Notice) -> Self {
        let (fence, registry) = (Fence::closed(), Registry::new());
        let events: Arc<Mutex<Vec<LeaseEvent>>> = Arc::default();
        let on_event: OnEvent = {
            let events = events.clone();
            Arc::new(move |event| events.lock().push(event))
        };
        let mut elector =
            Elector::new(settings, server.client(), fence.clone(), &registry, on_event).unwrap();
        elector.clock = clock;
        let elector = elector.with_notice(notice);
        let (leadership, stop) = (elector.leadership(), CancellationToken::new());
        let (end_work, work) = oneshot::channel();
        let mut work = Some(work);
        let end = move || {
            let work = work.take().expect("end_work is called once");
            async move { work.await.unwrap_or(false) }
        };
        let ended = JoinSet::from_iter([elector.run(stop.clone(), end)]);
        Self { fence, leadership, events, registry, stop, end_work: Some(end_work), ended }
    }

    async fn leads(&mut self) {
        self.leadership.wait_for(|now| matches!(now, Leadership::Leading { .. })).await.unwrap();
        assert!(self.fence.is_open(), "the fence opens before leadership is published");
    }

    async fn sees_holder(&mut self, holder: &str) {
        let known =
            |now: &Leadership| matches!(now, Leadership::Standby { holder: Some(h) } if **h == *holder);
        self.leadership.wait_for(known).await.unwrap();
    }

    async fn lost(&mut self) -> Ending {
        let now = self.leadership.wait_for(|now| matches!(now, Leadership::Lost(_))).await.unwrap().clone();
        assert!(!self.fence.is_open(), "the fence closes before the loss is published");
        match now {
            Leadership::Lost(ending) => ending,
            other => panic!("{other:?}"),
        }
    }

    fn work_ended(&mut self, ended: bool) {
        self.end_work.take().unwrap().send(ended).unwrap();
    }

    async fn ended(mut self) -> Ended {
        self.ended.join_next().await.unwrap().unwrap()
    }

    fn metric(&self, line: &str) -> bool {
        self.registry.encode(Format::Text).unwrap().lines().any(|found| found == line)
    }
}

/// Lets every task run until it is idle, without time passing.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_renews_until_its_work_has_ended_and_then_releases() {
    let server = Server::default();
    let mut old = Replica::start(&server, "old");
    old.leads().await;
    let mut new = Replica::start(&server, "new");
    new.sees_holder("old").await;
    old.stop.cancel();
    let renewed = server.spec()["renewTime"].clone();
    tokio::time::advance(Duration::from_secs(3)).await;
    settle().await;
    assert_ne!(server.spec()["renewTime"], renewed, "the lease is renewed while work runs");
    assert!(old.fence.is_open());
    let before = Instant::now();
    old.work_ended(true);
    new.leads().await;
    assert_eq!(before.elapsed(), Duration::ZERO, "the watch delivers the release at once");
    assert!(!old.fence.is_open());
    assert!(old.metric("leader_election_master_status{name=\"mainstay\"} 0"));
    assert!(new.metric("leader_election_master_status{name=\"mainstay\"} 1"));
    assert!(new.metric("mainstay_election_transitions_total{name=\"mainstay\"} 1"));
    assert!(new.metric("mainstay_election_take_over_seconds_sum{name=\"mainstay\"} 0.0"));
    assert!(new.metric("mainstay_election_take_over_seconds_count{name=\"mainstay\"} 1"));
    assert!(old.metric("mainstay_election_fence_seconds{name=\"mainstay\"} 0.0"));
    assert!(!new.metric("mainstay_election_fence_seconds{name=\"mainstay\"} 0.0"));
    let notes: Vec<_> =
        old.events.lock().iter().filter_map(LeaseEvent::action_and_note).map(|(_, note)| note).collect();
    assert_eq!(notes, ["old became leader", "old stopped leading"]);
    assert_eq!(server.spec()["leaseTransitions"], 1);
    assert_eq!(old.ended().await, Ended { released: true, lost: None });
}

#[tokio::test(start_paused = true)]
async fn a_candidate_leads_one_lease_duration_after_its_leader_vanished() {
    let server = Server::default();
    let mut old = Replica::start(&server, "old");
    old.leads().await;
    let mut new = Replica::start(&server, "new");
    new.sees_holder("old").await;
    let fence = old.fence.clone();
    old.ended.abort_all();
    while old.ended.join_next().await.is_some() {}
    assert!(!fence.is_open(), "a dropped elector closes its fence");
    let before = Instant::now();
    new.leads().await;
    let took = before.elapsed();
    assert!(took <= Duration::from_millis(15_100) && took > Duration::from_secs(12), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_without_answers_gives_up_before_others_may_lead() {
    let server = Server::default();
    let mut leader = Replica::start(&server, "a");
    leader.leads().await;
    let before = Instant::now();
    server.0.lock().silent = true;
    assert_eq!(leader.lost().await, Ending::Expired);
    let took = before.elapsed();
    assert!(took >= Duration::from_secs(10) && took <= Duration::from_millis(12_010), "{took:?}");
    assert!(leader.metric("mainstay_election_losses_total{name=\"mainstay\"} 1"));
    leader.work_ended(true);
    assert_eq!(leader.ended().await, Ended { released: false, lost: Some(Ending::Expired) });
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_gave_up_releases_the_lease_once_the_server_answers() {
    let server = Server::default();
    let mut leader = Replica::start(&server, "a");
    leader.leads().await;
    server.0.lock().silent = true;
    leader.lost().await;
    server.0.lock().silent = false;
    leader.work_ended(true);
    assert_eq!(leader.ended().await, Ended { released: true, lost: Some(Ending::Expired) });
    assert_eq!(server.spec()["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn another_holder_ends_leadership_without_waiting_for_a_renewal() {
    let server = Server::default();
    let mut leader = Replica::start(&server, "a");
    leader.leads().await;
    settle().await;
    let before = Instant::now();
    server.edit(|lease| lease["spec"]["holderIdentity"] = json!("b"));
    assert_eq!(leader.lost().await, Ending::Taken("b".into()));
    assert_eq!(before.elapsed(), Duration::ZERO);
    leader.work_ended(true);
    assert_eq!(leader.ended().await.lost, Some(Ending::Taken("b".into())));
    assert_eq!(server.spec()["holderIdentity"], "b", "the lease of another holder is not released");
}

#[tokio::test(start_paused = true)]
async fn a_replica_campaigns_again_once_work_has_ended_after_a_loss() {
    let server = Server::default();
    let settings =
        ElectionSettings { on_lost: OnLost::Campaign, ..ElectionSettings::new("default", "mainstay", "a") };
    let mut leader = Replica::start_with(&server, settings);
    leader.leads().await;
    settle().await;
    server.edit(|lease| {
        lease["spec"]["holderIdentity"] = json!("b");
        lease["spec"]["leaseDurationSeconds"] = json!(5);
    });
    leader.lost().await;
    leader.work_ended(true);
    leader.sees_holder("b").await;
    leader.leads().await;
    assert_eq!(server.spec()["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_revokes_every_pass_and_is_created_again() {
    let server = Server::default();
    let mut leader = Replica::start(&server, "a");
    leader.leads().await;
    settle().await;
    let pass = leader.fence.pass();
    server.delete();
    pass.clone().revoked().await;
    settle().await;
    assert!(
        !pass.admits() && leader.fence.pass().admits(),
        "earlier connections are fenced, new ones are not"
    );
    assert_eq!(server.spec()["holderIdentity"], "a");
    assert_eq!(*leader.leadership.borrow(), Leadership::Leading { transitions: 0 });
}

#[tokio::test(start_paused = true)]
async fn without_permission_to_watch_a_candidate_finds_a_release_by_polling() {
    let server = Server::default();
    server.0.lock().forbidden = vec!["watch"];
    let mut old = Replica::start(&server, "old");
    old.leads().await;
    let mut new = Replica::start(&server, "new");
    new.sees_holder("old").await;
    old.stop.cancel();
    old.work_ended(true);
    let before = Instant::now();
    new.leads().await;
    assert!(before.elapsed() <= Duration::from_millis(4_400), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_forbidden_get_is_retried_every_candidate_wait() {
    let server = Server::default();
    server.0.lock().forbidden = vec!["get", "watch"];
    let mut replica = Replica::start(&server, "a");
    tokio::time::sleep(Duration::from_secs(33)).await;
    let log = server.log();
    let gets = log.iter().filter(|verb| *verb == "get").count();
    assert!((8..=20).contains(&gets), "every 2 to 4.4 s: {log:?}");
    server.0.lock().forbidden.clear();
    replica.leads().await;
}

#[tokio::test(start_paused = true)]
async fn a_standby_with_a_watch_sends_nothing_while_the_leader_renews() {
    let server = Server::default();
    let mut leader = Replica::start(&server, "a");
    leader.leads().await;
    let mut standby = Replica::start(&server, "b");
    standby.sees_holder("a").await;
    settle().await;
    server.log();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let log = server.log();
    assert!(log.iter().all(|verb| verb == "update"), "{log:?}");
    assert!((9..=11).contains(&log.len()), "one renewal in two seconds: {log:?}");
}

#[tokio::test(start_paused = true)]
async fn acquiring_and_releasing_keep_labels_and_strategy_of_a_lease() {
    let server = Server::default();
    server.0.lock().store(
        "ADDED",
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "mainstay", "namespace": "default", "labels": {"team": "a"}},
            "spec": {"strategy": "OldestEmulationVersion"},
        }),
    );
    let mut leader = Replica::start(&server, "a");
    leader.leads().await;
    assert_eq!(server.spec()["strategy"], "OldestEmulationVersion");
    assert_eq!(server.spec()["leaseTransitions"], 1);
    let labels = |server: &Server| server.0.lock().lease.as_ref().unwrap()["metadata"]["labels"].clone();
    assert_eq!(labels(&server), json!({"team": "a"}));
    leader.stop.cancel();
    leader.work_ended(true);
    assert!(leader.ended().await.released);
    assert_eq!(server.spec()["holderIdentity"], "");
    assert_eq!(server.spec()["strategy"], "OldestEmulationVersion", "a release keeps them too");
    assert_eq!(labels(&server), json!({"team": "a"}));
}

#[tokio::test(start_paused = true)]
async fn the_holder_writes_its_notice_with_each_renewal_and_the_others_read_it() {
    let server = Server::default();
    server.0.lock().store(
        "ADDED",
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {
                "name": "mainstay", "namespace": "default", "annotations": {"team": "a", NOTICE: "old"},
            },
            "spec": {},
        }),
    );
    let annotations = || server.0.lock().lease.as_ref().unwrap()["metadata"]["annotations"].clone();
    let text = Arc::new(Mutex::new("first"));
    let published = Arc::clone(&text);
    let settings = |identity| ElectionSettings::new("default", "mainstay", identity);
    let notice = Notice::new(move || Some((*published.lock()).to_owned()));
    let mut leader = Replica::start_with_notice(&server, settings("a"), notice);
    leader.leads().await;
    let seen = Notice::new(|| None);
    let mut standby = Replica::start_with_notice(&server, settings("b"), seen.clone());
    standby.sees_holder("a").await;
    assert_eq!(
        (annotations(), seen.seen().as_deref()),
        (json!({"team": "a", NOTICE: "first"}), Some("first"))
    );
    *text.lock() = "second";
    tokio::time::sleep(Duration::from_secs(3)).await;
    settle().await;
    assert_eq!(seen.seen().as_deref(), Some("second"), "within a renewal");
    leader.stop.cancel();
    leader.work_ended(true);
    assert!(leader.ended().await.released);
    standby.leads().await;
    assert_eq!(
        (annotations(), seen.seen()),
        (json!({"team": "a"}), None),
        "a holder without a notice removes the annotation"
    );
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_stopped_ends_at_once() {
    let server = Server::default();
    let mut leader = Replica::start(&server, "a");
    leader.leads().await;
    let mut standby = Replica::start(&server, "b");
    standby.sees_holder("a").await;
    standby.stop.cancel();
    assert_eq!(standby.ended().await, Ended { released: false, lost: None });
}

#[tokio::test]
async fn the_elector_refuses_invalid_settings() {
    let settings = ElectionSettings::new("default", "mainstay", "");
    let registry = Registry::new();
    let client = Server::default().client();
    let refused = Elector::new(settings, client, Fence::closed(), &registry, Arc::new(|_| {}));
    assert_eq!(refused.unwrap_err().to_string(), "identity \"\": expected a name no other replica has");
}
