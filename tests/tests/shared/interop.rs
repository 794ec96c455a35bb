//! Mainstay's elector and client-go's compete for one Lease, and hand it to each other in every way a leader
//! can end.
//!
//! The first is the whole manager, the second a small program around client-go's package `leaderelection`.
//! Each has its own ServiceAccount, so that the audit log names the writer of each record. The test compares
//! these records: client-go itself works on for a while after it has released the Lease or was thawed.

mod states;

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_tests::audit::terms;
use mainstay_tests::manifests::Identity;
use mainstay_tests::report::{figure, long_form};
use mainstay_tests::{ManagerProcess, TestCluster};
use rustix::process::Signal;
use serde_json::{Value, json};
use states::{State, check_changes, check_late_writes, check_log};
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

    async fn logged(&self, expected: &str, accepts: impl Fn(&Value) -> bool) -> Value {
        self.process.logged(&format!("{expected} ({:?})", self.side), accepts).await
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
