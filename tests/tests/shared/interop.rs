//! Mainstay's elector and client-go's compete for one Lease, and hand it to each other in every way a leader
//! can end.
//!
//! The first is the whole manager, the second a small program around client-go's package `leaderelection`.
//! Each has its own ServiceAccount, so that the audit log names the writer of each record. The test compares
//! these records: client-go itself works on for a while after it has released the Lease or was thawed.

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use mainstay::election::Record;
use mainstay_tests::audit::{Write, terms};
use mainstay_tests::manifests::Identity;
use mainstay_tests::report::{figure, long_form};
use mainstay_tests::{ManagerProcess, TestCluster};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Lease durations of both sides. They differ, to detect a candidate that waits for its own duration.
const MAINSTAY_DURATION: Duration = Duration::from_secs(4);
const CLIENT_GO_DURATION: Duration = Duration::from_secs(5);
/// Longest time in which a manager may write after its last renewal: nine tenths of its lease duration.
const MAINSTAY_WRITES: Duration = Duration::from_millis(3600);

/// Number of hand-overs, by default and with `MAINSTAY_LONG=1`.
const ROUNDS: usize = 6;
const ROUNDS_LONG: usize = 100;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Mainstay,
    ClientGo,
}

/// How a leader ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It gets SIGTERM, and releases the Lease.
    Release,
    /// It is killed and does not release the Lease.
    Kill,
    /// It is frozen, and thawed when the other side leads.
    Pause,
}

const WAYS: [Way; 3] = [Way::Release, Way::Kill, Way::Pause];

/// The cluster and the kubeconfigs with which replicas of both sides start.
struct Stage<'a> {
    cluster: &'a TestCluster,
    mainstay: PathBuf,
    client_go: PathBuf,
}

/// A replica of either side.
struct Replica {
    side: Side,
    process: ManagerProcess,
}

/// A leader that has ended.
struct Gone {
    side: Side,
    way: Way,
    identity: String,
    /// When a frozen leader was thawed.
    thawed: Option<Timestamp>,
    log: Vec<Value>,
}

/// A state of the Lease that a replica wrote, with the time at which the server received the request.
struct State {
    user: String,
    received: Timestamp,
    record: Record,
}

// === impl Side ===

impl Side {
    /// Returns the name of its ServiceAccount.
    fn user(self) -> &'static str {
        match self {
            Self::Mainstay => "mainstay",
            Self::ClientGo => "mainstay-too",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Mainstay => "ours",
            Self::ClientGo => "client_go",
        }
    }

    fn other(self) -> Self {
        match self {
            Self::Mainstay => Self::ClientGo,
            Self::ClientGo => Self::Mainstay,
        }
    }

    /// Returns the lease duration in its records.
    fn holds(self) -> Duration {
        match self {
            Self::Mainstay => MAINSTAY_DURATION,
            Self::ClientGo => CLIENT_GO_DURATION,
        }
    }

    fn of(user: &str) -> Self {
        if user == Self::Mainstay.user() { Self::Mainstay } else { Self::ClientGo }
    }
}

// === impl Stage ===

impl Stage<'_> {
    /// Starts a replica; `number` becomes part of client-go's identity. None without an elector of client-go.
    fn start(&self, side: Side, number: usize) -> Option<Replica> {
        let process = match side {
            Side::Mainstay => {
                let identity =
                    Identity { service_account: side.user().to_owned(), kubeconfig: self.mainstay.clone() };
                let changes = json!({"leaderElection": {
                    "leaseDuration": format!("{}s", MAINSTAY_DURATION.as_secs()),
                    "renewDeadline": "2500ms",
                    // At least a second: client-go treats two renewals within the same second as one.
                    "retryPeriod": "1s",
                }});
                let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
                ManagerProcess::start(binary, self.cluster, &identity, side.name(), &changes)
            }
            Side::ClientGo => {
                let flags = [
                    format!("--kubeconfig={}", self.client_go.display()),
                    format!("--namespace={}", self.cluster.namespace()),
                    "--name=mainstay".to_owned(),
                    format!("--identity=client-go-{number}"),
                    format!("--lease-duration={}s", CLIENT_GO_DURATION.as_secs()),
                    "--renew-deadline=3s".to_owned(),
                    "--retry-period=500ms".to_owned(),
                ];
                ManagerProcess::start_elector(self.cluster, &flags)?
            }
        };
        Some(Replica { side, process })
    }
}

// === impl Replica ===

impl Replica {
    /// Waits until it leads, and returns its identity.
    async fn leads(&self, number: usize) -> String {
        match self.side {
            Side::Mainstay => {
                let line = self.logged("that it leads", |line| line["msg"] == "became leader").await;
                line["identity"].as_str().expect("its identity").to_owned()
            }
            Side::ClientGo => {
                self.logged("that it leads", |line| line["msg"] == "started leading").await;
                format!("client-go-{number}")
            }
        }
    }

    /// Waits until it has logged the new leader.
    async fn knows(&self, leader: &str) {
        let key = if self.side == Side::Mainstay { "holder" } else { "identity" };
        self.logged(&format!("that {leader} leads"), |line| {
            line["msg"] == "new leader" && line[key] == leader
        })
        .await;
    }

    async fn logged(&self, what: &str, accepts: impl Fn(&Value) -> bool) -> Value {
        self.process.logged(&format!("{what} ({:?})", self.side), accepts).await
    }

    fn go(&self, way: Way) {
        match way {
            Way::Release => self.process.terminate(),
            Way::Kill => self.process.kill(),
            Way::Pause => self.process.signal(Signal::STOP),
        }
    }

    /// Waits for its end, after the other side has taken the Lease; a frozen replica is thawed first.
    async fn end(mut self, way: Way, identity: String) -> Gone {
        let thawed = (way == Way::Pause).then(Timestamp::now);
        if thawed.is_some() {
            self.process.signal(Signal::CONT);
        }
        let status = self.process.ended().await;
        let expected = match way {
            Way::Release => Some(0),
            Way::Kill => None,
            Way::Pause => Some(1),
        };
        assert_eq!(status.code(), expected, "{:?} after {way:?}: {:#?}", self.side, self.process.log());
        Gone { side: self.side, way, identity, thawed, log: self.process.log() }
    }
}

// === the test ===

#[tokio::test]
async fn client_gos_elector_and_the_managers_share_one_lease_without_overlap() {
    let Some(cluster) = TestCluster::shared().await else { return };
    cluster.install_base_for(&["mainstay-too"]).await;
    let mainstay = cluster.kubeconfig_of(Side::Mainstay.user()).await;
    let client_go = cluster.kubeconfig_of(Side::ClientGo.user()).await;
    let stage = Stage { cluster: &cluster, mainstay, client_go };
    let rounds = if long_form() { ROUNDS_LONG } else { ROUNDS };

    let Some(mut standby) = stage.start(Side::ClientGo, 0) else { return };
    let mut leader_name = standby.leads(0).await;
    let mut leader = std::mem::replace(&mut standby, stage.start(Side::Mainstay, 0).expect("a manager"));
    standby.knows(&leader_name).await;

    let (mut holders, mut took) = (vec![leader_name.clone()], Vec::new());
    let mut leaving = JoinSet::new();
    for round in 1..=rounds {
        let way = WAYS[(round - 1) / 2 % WAYS.len()];
        let left = Instant::now();
        leader.go(way);
        let next_name = standby.leads(round - 1).await;
        took.push((leader.side, way, left.elapsed()));

        let side = leader.side;
        let next = stage.start(side, round).expect("as before");
        let gone = std::mem::replace(&mut leader, std::mem::replace(&mut standby, next));
        leaving.spawn(gone.end(way, std::mem::replace(&mut leader_name, next_name)));
        holders.push(leader_name.clone());
        standby.knows(&leader_name).await;
    }
    // The standby first: it ends in good order without a term.
    for mut last in [standby, leader] {
        last.process.terminate();
        assert!(last.process.ended().await.success(), "{:?}: {:#?}", last.side, last.process.log());
    }
    let gone = leaving.join_all().await;

    report(&took);
    let writes = cluster.writes();
    let terms = terms(&writes);
    let held: Vec<_> = terms.iter().map(|term| term.holder.as_str()).collect();
    assert_eq!(held, holders, "each round is one hand-over: {terms:#?}");
    let states: Vec<State> = writes.iter().filter_map(State::of).collect();
    check_changes(&states);
    let mut read = 0;
    for gone in &gone {
        read += check_log(gone, &states);
        check_late_writes(gone, &writes);
    }
    // The number of log lines depends on timing; each of them has been compared.
    assert!(read > 0, "client-go read no record of a manager");
}

/// Prints the slowest hand-over of each kind.
fn report(took: &[(Side, Way, Duration)]) {
    for side in [Side::Mainstay, Side::ClientGo] {
        for way in WAYS {
            let slowest =
                took.iter().filter(|(s, w, _)| (*s, *w) == (side, way)).map(|(.., took)| *took).max();
            let name = format!("interop.{}_to_{}.{way:?}_max", side.name(), side.other().name());
            figure(&name.to_lowercase(), slowest.unwrap_or_default().as_secs_f64(), "s");
        }
    }
}

// === checks ===

impl State {
    fn of(write: &Write) -> Option<Self> {
        let lease: Lease = serde_json::from_value(write.body.clone()).ok()?;
        (write.is_of_lease() && write.is_accepted()).then(|| Self {
            user: write.user.clone(),
            received: write.received,
            record: Record::of(&lease),
        })
    }
}

/// Checks that each change of the Lease is a valid renewal, release or take-over.
fn check_changes(states: &[State]) {
    let (mut earliest_mainstay, mut earliest_client_go) = (Duration::MAX, Duration::MAX);
    for pair in states.windows(2) {
        let [old, new] = pair else { continue };
        let (before, after) = (&old.record, &new.record);
        let change = format!(
            "{before:?} by {} at {}, then {after:?} by {} at {}",
            old.user, old.received, new.user, new.received
        );
        if after.holder.is_some() && after.holder == before.holder {
            assert_eq!(
                (&new.user, after.transitions),
                (&old.user, before.transitions),
                "a renewal: {change}"
            );
            assert_eq!(after.acquired, before.acquired, "a renewal: {change}");
            assert_ne!(after.renewed, before.renewed, "a renewal: {change}");
        } else if after.holder.is_none() {
            assert!(after.is_release() && new.user == old.user, "a release by the holder: {change}");
            assert_eq!(after.transitions, before.transitions, "a release is no transition: {change}");
        } else {
            assert_eq!(after.transitions, before.transitions + 1, "a take-over: {change}");
            assert_eq!(after.acquired, after.renewed, "a take-over: {change}");
            let waited = new.received.duration_since(old.received).unsigned_abs();
            match (Side::of(&new.user), before.holder.is_some()) {
                (_, false) => assert!(before.is_release(), "{change}"),
                (Side::Mainstay, true) => {
                    assert!(
                        waited >= CLIENT_GO_DURATION,
                        "the manager took it after {waited:?}, before client-go's duration was over: {change}"
                    );
                    earliest_mainstay = earliest_mainstay.min(waited);
                }
                (Side::ClientGo, true) => {
                    assert!(
                        waited >= MAINSTAY_WRITES,
                        "client-go took it after {waited:?}, while the manager could still write: {change}"
                    );
                    earliest_client_go = earliest_client_go.min(waited);
                }
            }
        }
        let until = match after.holder {
            Some(_) => Side::of(&new.user).holds(),
            None => Duration::from_secs(1),
        };
        assert_eq!(after.duration(Duration::ZERO), until, "{change}");
    }
    figure("interop.ours_took_after_last_renewal_min", earliest_mainstay.as_secs_f64(), "s");
    figure("interop.client_go_took_after_last_renewal_min", earliest_client_go.as_secs_f64(), "s");
}

/// Checks the log of a replica: its lines about records of the other side match the Lease, and those about
/// itself match its writes. Returns the number of the manager's records that client-go has read.
fn check_log(gone: &Gone, states: &[State]) -> usize {
    let mut read = 0;
    let term = |holder: &str| {
        let mut of = states.iter().filter(|state| state.record.holder.as_deref() == Some(holder));
        let first = of.next().unwrap_or_else(|| panic!("{holder} never held the Lease"));
        (first, of.next_back().unwrap_or(first))
    };
    for line in &gone.log {
        let at: Option<Timestamp> = line["ts"].as_str().and_then(|at| at.parse().ok());
        match line["msg"].as_str() {
            // The record of a manager, as client-go read it. client-go reads the Lease again for this line,
            // and may find a later record.
            Some("new leader")
                if gone.side == Side::ClientGo && line["record"]["holderIdentity"] == line["identity"] =>
            {
                let Some(holder) = line["identity"].as_str().filter(|holder| !holder.is_empty()) else {
                    continue;
                };
                let (first, _) = term(holder);
                let record = &line["record"];
                assert_eq!(record["leaseDurationSeconds"], Side::of(&first.user).holds().as_secs(), "{line}");
                assert_eq!(record["leaderTransitions"], first.record.transitions, "{line}");
                let acquired: Option<Timestamp> =
                    record["acquireTime"].as_str().and_then(|at| at.parse().ok());
                let seconds = |at: Option<Timestamp>| at.map(Timestamp::as_second);
                assert_eq!(seconds(acquired), seconds(first.record.acquired), "{line}");
                read += usize::from(Side::of(&first.user) == Side::Mainstay);
            }
            Some("became leader") => {
                let (first, _) = term(&gone.identity);
                assert_eq!(line["transitions"], first.record.transitions, "{line}");
                assert!(
                    at.is_some_and(|at| at >= first.received),
                    "logged before its request for the Lease: {line}"
                );
            }
            Some("stopped leading") if gone.side == Side::Mainstay && gone.way == Way::Release => {
                let (_, last) = term(&gone.identity);
                let release = states.iter().find(|state| state.received > last.received);
                let release = release.expect("a state after its last renewal");
                assert!(at.is_some_and(|at| at <= release.received), "logged after the release: {line}");
            }
            _ => {}
        }
    }
    read
}

/// Checks that a thawed replica did not take the Lease back. Of a manager, at most the one request it was
/// frozen in arrives late.
fn check_late_writes(gone: &Gone, writes: &[Write]) {
    let Some(thawed) = gone.thawed else { return };
    let late: Vec<_> = writes
        .iter()
        .filter(|write| write.is_of_lease() && write.holder() == gone.identity && write.received >= thawed)
        .collect();
    assert!(late.iter().all(|write| !write.is_accepted()), "thawed at {thawed}: {late:#?}");
    assert!(gone.side == Side::ClientGo || late.len() <= 1, "thawed at {thawed}: {late:#?}");
}
