//! Electors against a server in memory that keeps one Lease, on a paused clock.

mod clocks;
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

use crate::metrics::Format;

type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// One Lease with a resourceVersion, its watchers, and ways to misbehave.
#[derive(Clone, Default)]
struct Server(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    lease: Option<Value>,
    version: u64,
    watchers: Vec<mpsc::UnboundedSender<Bytes>>,
    log: Vec<String>,
    /// Requests are taken in and never answered.
    silent: bool,
    /// The verbs that are answered 403.
    forbidden: Vec<&'static str>,
    /// What the next requests are answered instead, watches apart; made of what is stored, and stored is nothing.
    wrong: VecDeque<fn(Value) -> Reply>,
    /// What every watch is answered instead, and ends with.
    watches: Option<fn() -> Bytes>,
}

impl Server {
    fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                let silent = server.0.lock().silent;
                if silent {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(server.answer(&parts, &body))
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, parts: &http::request::Parts, body: &[u8]) -> Reply {
        let mut inner = self.0.lock();
        let watch = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
        let verb = match parts.method {
            Method::GET if watch => "watch",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            _ => "unexpected",
        };
        inner.log.push(verb.to_owned());
        if inner.forbidden.contains(&verb) {
            return status(403, "Forbidden");
        }
        if verb != "watch"
            && let Some(wrong) = inner.wrong.pop_front()
        {
            return wrong(inner.lease.clone().unwrap_or_default());
        }
        let lease: Value = serde_json::from_slice(body).unwrap_or_default();
        match (verb, inner.lease.is_some()) {
            ("watch", _) => {
                assert!(
                    parts.uri.query().unwrap().contains("fieldSelector=metadata.name%3Dmainstay"),
                    "{}",
                    parts.uri
                );
                inner.watch()
            }
            ("get" | "update", false) => status(404, "NotFound"),
            ("get", true) => reply(200, inner.lease.as_ref().unwrap()),
            ("create", true) => status(409, "AlreadyExists"),
            ("create", false) => {
                inner.store("ADDED", lease);
                reply(201, inner.lease.as_ref().unwrap())
            }
            ("update", true) => {
                let stored = &inner.lease.as_ref().unwrap()["metadata"]["resourceVersion"];
                if lease["metadata"]["resourceVersion"] != *stored {
                    return status(409, "Conflict");
                }
                inner.store("MODIFIED", lease);
                reply(200, inner.lease.as_ref().unwrap())
            }
            (verb, _) => panic!("{verb} {}", parts.uri),
        }
    }

    /// Writes the Lease as somebody else would: `change` on what is stored.
    fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut inner = self.0.lock();
        let mut lease = inner.lease.clone().expect("a stored lease");
        change(&mut lease);
        inner.store("MODIFIED", lease);
    }

    fn delete(&self) {
        let mut inner = self.0.lock();
        let lease = inner.lease.clone().expect("a stored lease");
        inner.store("DELETED", lease);
        inner.lease = None;
    }

    fn spec(&self) -> Value {
        self.0.lock().lease.as_ref().expect("a stored lease")["spec"].clone()
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().log)
    }
}

impl Inner {
    fn store(&mut self, event: &str, mut lease: Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let line = format!("{}\n", json!({"type": event, "object": lease}));
        self.watchers.retain(|watcher| watcher.send(Bytes::from(line.clone())).is_ok());
        self.lease = Some(lease);
    }

    fn watch(&mut self) -> Reply {
        if let Some(wrong) = self.watches {
            return Response::new(Full::new(wrong()).boxed_unsync());
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        if let Some(lease) = &self.lease {
            let line = format!("{}\n", json!({"type": "ADDED", "object": lease}));
            sender.send(Bytes::from(line)).unwrap();
        }
        self.watchers.push(sender);
        let lines = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|line| (Ok(Frame::data(line)), receiver))
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }
}

fn reply(code: u16, body: &Value) -> Reply {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

fn status(code: u16, reason: &str) -> Reply {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code,
    });
    reply(code, &body)
}

/// A clock that follows tokio's paused one, on both counts.
fn clock() -> Clock {
    let (start, boot, wall) = (Instant::now(), BootInstant::now(), Timestamp::now());
    Arc::new(move || {
        let since = start.elapsed();
        Now { boot: boot + since, wall: wall + since, random: 0.5 }
    })
}

/// One elector in a task of its own.
struct Replica {
    fence: Fence,
    leadership: watch::Receiver<Leadership>,
    events: Arc<Mutex<Vec<LeaseEvent>>>,
    registry: Registry,
    stop: CancellationToken,
    /// Lets leader-only work end with this outcome.
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

    fn start_telling(server: &Server, settings: ElectionSettings, notice: Notice) -> Self {
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
            let work = work.take().expect("work is told to end once");
            async move { work.await.unwrap_or(false) }
        };
        let ended = JoinSet::from_iter([elector.run(stop.clone(), end)]);
        Self { fence, leadership, events, registry, stop, end_work: Some(end_work), ended }
    }

    async fn leads(&mut self) {
        self.leadership.wait_for(|now| matches!(now, Leadership::Leading { .. })).await.unwrap();
        assert!(self.fence.is_open(), "open before anybody is told");
    }

    async fn knows(&mut self, holder: &str) {
        let known =
            |now: &Leadership| matches!(now, Leadership::Standby { holder: Some(h) } if **h == *holder);
        self.leadership.wait_for(known).await.unwrap();
    }

    async fn lost(&mut self) -> Ending {
        let now = self.leadership.wait_for(|now| matches!(now, Leadership::Lost(_))).await.unwrap().clone();
        assert!(!self.fence.is_open(), "closed before anybody is told");
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

/// Lets every task do what it can without time passing.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_leader_renews_until_its_work_has_ended_and_hands_over_at_once() {
    let server = Server::default();
    let mut old = Replica::start(&server, "old");
    old.leads().await;
    let mut new = Replica::start(&server, "new");
    new.knows("old").await;
    old.stop.cancel();
    let renewed = server.spec()["renewTime"].clone();
    tokio::time::advance(Duration::from_secs(3)).await;
    settle().await;
    assert_ne!(server.spec()["renewTime"], renewed, "work has not ended: the lease is kept");
    assert!(old.fence.is_open());
    let before = Instant::now();
    old.work_ended(true);
    new.leads().await;
    assert_eq!(before.elapsed(), Duration::ZERO, "told by the watch");
    assert!(!old.fence.is_open());
    assert!(old.metric("leader_election_master_status{name=\"mainstay\"} 0"));
    assert!(new.metric("leader_election_master_status{name=\"mainstay\"} 1"));
    assert!(new.metric("mainstay_election_transitions_total{name=\"mainstay\"} 1"));
    assert!(new.metric("mainstay_election_take_over_seconds_sum{name=\"mainstay\"} 0.0"));
    assert!(new.metric("mainstay_election_take_over_seconds_count{name=\"mainstay\"} 1"));
    assert!(old.metric("mainstay_election_fence_seconds{name=\"mainstay\"} 0.0"));
    assert!(!new.metric("mainstay_election_fence_seconds{name=\"mainstay\"} 0.0"));
    let notes: Vec<_> = old.events.lock().iter().filter_map(LeaseEvent::note).collect();
    assert_eq!(notes, ["old became leader", "old stopped leading"]);
    assert_eq!(server.spec()["leaseTransitions"], 1);
    assert_eq!(old.ended().await, Ended { released: true, lost: None });
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_vanishes_is_followed_after_the_lease_duration() {
    let server = Server::default();
    let mut old = Replica::start(&server, "old");
    old.leads().await;
    let mut new = Replica::start(&server, "new");
    new.knows("old").await;
    let fence = old.fence.clone();
    old.ended.abort_all();
    while old.ended.join_next().await.is_some() {}
    assert!(!fence.is_open(), "dropped, it closes the fence");
    let before = Instant::now();
    new.leads().await;
    let took = before.elapsed();
    assert!(took <= Duration::from_millis(15_100) && took > Duration::from_secs(12), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_gets_no_answers_gives_up_before_others_may_lead() {
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
async fn a_leader_that_lost_its_time_gives_the_lease_up_once_the_server_answers() {
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
    assert_eq!(server.spec()["holderIdentity"], "b", "another one's lease is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_campaigned_for_again_once_work_has_ended() {
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
    leader.knows("b").await;
    leader.leads().await;
    assert_eq!(server.spec()["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_deleted_lease_ends_every_pass_and_is_written_again() {
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
        "connections made before are void, new ones are not"
    );
    assert_eq!(server.spec()["holderIdentity"], "a");
    assert_eq!(*leader.leadership.borrow(), Leadership::Leading { transitions: 0 });
}

#[tokio::test(start_paused = true)]
async fn without_leave_to_watch_a_release_is_noticed_by_looking() {
    let server = Server::default();
    server.0.lock().forbidden = vec!["watch"];
    let mut old = Replica::start(&server, "old");
    old.leads().await;
    let mut new = Replica::start(&server, "new");
    new.knows("old").await;
    old.stop.cancel();
    old.work_ended(true);
    let before = Instant::now();
    new.leads().await;
    assert!(before.elapsed() <= Duration::from_millis(4_400), "{:?}", before.elapsed());
}

#[tokio::test(start_paused = true)]
async fn what_is_forbidden_is_tried_again_at_a_candidates_pace() {
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
    standby.knows("a").await;
    settle().await;
    server.log();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let log = server.log();
    assert!(log.iter().all(|verb| verb == "update"), "{log:?}");
    assert!((9..=11).contains(&log.len()), "one renewal in two seconds: {log:?}");
}

#[tokio::test(start_paused = true)]
async fn labels_and_strategy_of_a_lease_survive_taking_it_and_giving_it_up() {
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
    assert_eq!(server.spec()["strategy"], "OldestEmulationVersion", "nor does a release take them away");
    assert_eq!(labels(&server), json!({"team": "a"}));
}

#[tokio::test(start_paused = true)]
async fn the_holder_writes_its_notice_with_each_record_and_the_others_read_it() {
    let server = Server::default();
    server.0.lock().store(
        "ADDED",
        json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": "mainstay", "namespace": "default", "annotations": {"team": "a", NOTICE: "old"}},
            "spec": {},
        }),
    );
    let annotations = || server.0.lock().lease.as_ref().unwrap()["metadata"]["annotations"].clone();
    let says = Arc::new(Mutex::new("first"));
    let told = Arc::clone(&says);
    let settings = |identity| ElectionSettings::new("default", "mainstay", identity);
    let notice = Notice::new(move || Some((*told.lock()).to_owned()));
    let mut leader = Replica::start_telling(&server, settings("a"), notice);
    leader.leads().await;
    let seen = Notice::new(|| None);
    let mut standby = Replica::start_telling(&server, settings("b"), seen.clone());
    standby.knows("a").await;
    assert_eq!(
        (annotations(), seen.seen().as_deref()),
        (json!({"team": "a", NOTICE: "first"}), Some("first"))
    );
    *says.lock() = "second";
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
        "who has nothing to tell leaves nothing"
    );
}

#[tokio::test(start_paused = true)]
async fn a_candidate_that_is_stopped_ends_at_once() {
    let server = Server::default();
    let mut leader = Replica::start(&server, "a");
    leader.leads().await;
    let mut standby = Replica::start(&server, "b");
    standby.knows("a").await;
    standby.stop.cancel();
    assert_eq!(standby.ended().await, Ended { released: false, lost: None });
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_by_the_elector_too() {
    let settings = ElectionSettings::new("default", "mainstay", "");
    let registry = Registry::new();
    let client = Server::default().client();
    let refused = Elector::new(settings, client, Fence::closed(), &registry, Arc::new(|_| {}));
    assert_eq!(refused.unwrap_err().to_string(), "identity \"\": expected a name no other replica has",);
}
