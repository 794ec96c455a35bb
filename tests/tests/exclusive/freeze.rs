//! A leader that writes without pause is frozen (SIGSTOP) until its Lease has expired and then thawed
//! (SIGCONT). By then another replica leads, so a write of the thawed process would be a write by two leaders
//! at once.
//!
//! The writes are read from the audit log of the API server. A process may be frozen in the few instructions
//! between the last check of its fence and the system call that sends: then one write per connection is sent
//! after the thaw, and no code in the process can prevent that. Such rounds are counted separately; each
//! write contains the time at which it was begun, which identifies them. A write that was begun after the
//! freeze fails the test.

use std::time::Duration;

use jiff::Timestamp;
use mainstay_tests::audit::{Tail, Term, Write, outside_of_terms, terms};
use mainstay_tests::manifests::Identity;
use mainstay_tests::report::{figure, long_form};
use mainstay_tests::restless::{self, WRITERS};
use mainstay_tests::wait::until_so;
use mainstay_tests::{ManagerProcess, TestCluster};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::sleep;

const ROUNDS: usize = 3;
const ROUNDS_IN_FULL: usize = 50;
/// Number of writes after which a replica counts as working.
const AT_WORK: usize = 20;
/// The freeze comes at a random moment of this span, which covers some renewals and many writes.
const PHASE_MILLIS: u64 = 1_500;

struct Replica {
    user: &'static str,
    process: ManagerProcess,
}

/// One freeze of a leader.
struct Round {
    user: &'static str,
    frozen: Timestamp,
    thawed: Timestamp,
}

/// The writes in the audit log so far, and a reader of the rest.
struct Log {
    tail: Tail,
    writes: Vec<Write>,
}

// === impl Replica ===

impl Replica {
    async fn start(cluster: &TestCluster, user: &'static str) -> Self {
        let kubeconfig = cluster.kubeconfig_of(user).await;
        let identity = Identity { service_account: user.to_owned(), kubeconfig };
        let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
        let changes = json!({"leaderElection": {
            "leaseDuration": "5s", "renewDeadline": "3s", "retryPeriod": "1s", "onLost": "Campaign",
        }});
        let environment = [(restless::VARIABLE, cluster.namespace())];
        let process = ManagerProcess::start_with(binary, cluster, &identity, user, &changes, &environment);
        Self { user, process }
    }

    /// Waits until the metric `leader_election_master_status` of this replica is 1, or not, as `expected`.
    async fn leads(&self, expected: bool) {
        let state = format!("{} to lead: {expected}", self.user);
        until_so(&state, async || self.process.is_leader().await == expected).await;
    }

    /// Waits until the audit log has `AT_WORK` writes of this replica since `since`.
    async fn at_work(&self, log: &mut Log, since: Timestamp) {
        let state = format!("{} to write since {since}", self.user);
        let log = tokio::sync::Mutex::new(log);
        let enough = async || {
            let mut log = log.lock().await;
            log.read();
            let own = |write: &&Write| write.user == self.user && write.is_work() && write.received >= since;
            log.writes.iter().rev().filter(own).count() >= AT_WORK
        };
        until_so(&state, enough).await;
    }
}

// === impl Log ===

impl Log {
    fn read(&mut self) {
        self.writes.extend(self.tail.read());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_frozen_leader_writes_nothing_after_the_next_leader_took_over() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    cluster.install(&accounts()).await;
    let mut log = Log { tail: cluster.tail(), writes: Vec::new() };
    let mut leader = Replica::start(&cluster, "mainstay").await;
    leader.leads(true).await;
    let mut standby = Replica::start(&cluster, "mainstay-too").await;
    standby.process.logged("the new leader", |line| line["msg"] == "new leader").await;

    let mut rounds = Vec::new();
    for _ in 0..if long_form() { ROUNDS_IN_FULL } else { ROUNDS } {
        leader.at_work(&mut log, Timestamp::now()).await;
        sleep(Duration::from_millis(fastrand::u64(..PHASE_MILLIS))).await;
        leader.process.signal(Signal::STOP);
        let frozen = Timestamp::now();
        standby.leads(true).await;
        standby.at_work(&mut log, frozen).await;
        let thawed = Timestamp::now();
        leader.process.signal(Signal::CONT);
        rounds.push(Round { user: leader.user, frozen, thawed });
        leader.leads(false).await;
        std::mem::swap(&mut leader, &mut standby);
    }
    leader.at_work(&mut log, Timestamp::now()).await;
    for replica in [&mut leader, &mut standby] {
        replica.process.terminate();
        assert!(replica.process.ended().await.success(), "{} ends in good order", replica.user);
    }
    log.read();
    judge(&rounds, log.writes);
    cluster.stop().await;
}

fn judge(rounds: &[Round], mut writes: Vec<Write>) {
    writes.sort_by_key(|write| write.received);
    let terms = terms(&writes);
    for Round { user, frozen, thawed } in rounds {
        let between = |term: &Term| term.user != *user && (*frozen..*thawed).contains(&term.from);
        assert!(
            terms.iter().any(between),
            "{user} was frozen at {frozen}, and no other replica led: {terms:#?}"
        );
    }

    let late = outside_of_terms(&writes);
    let (mut inside, mut under_way, mut after) = (0, 0, Vec::new());
    for round in rounds {
        let of_round = |write: &&Write| write.user == round.user && write.received >= round.frozen;
        let next = terms.iter().find(|term| term.user == round.user && term.from > round.thawed);
        let over = |write: &&Write| next.is_some_and(|next| write.received >= next.from);
        let late: Vec<_> = late.iter().filter(of_round).filter(|write| !over(write)).collect();
        let (before, since): (Vec<_>, Vec<_>) =
            late.into_iter().partition(|write| restless::begun(write) < round.frozen);
        assert!(before.len() <= WRITERS, "more than one write of a connection was under way: {before:#?}");
        inside += usize::from(!before.is_empty());
        under_way += before.len();
        after.extend(since);
    }
    let count = |count: usize| u32::try_from(count).map_or(f64::NAN, f64::from);
    figure("freeze.rounds", count(rounds.len()), "count");
    figure("freeze.writes", count(writes.iter().filter(|write| write.is_work()).count()), "count");
    figure("freeze.rounds_inside_a_write", count(inside), "count");
    figure("freeze.late_writes", count(after.len()), "count");
    // A fence that is checked long before the system call would produce such a write in most rounds.
    assert!(
        inside <= rounds.len().div_ceil(10),
        "frozen inside a write in {inside} of {} rounds",
        rounds.len()
    );
    assert!(after.is_empty(), "written while another replica led: {after:#?}; terms: {terms:#?}");
    assert_eq!(late.len(), under_way, "written without the Lease outside of a freeze: {late:#?}");
}

/// Returns two ServiceAccounts and their rights, so that the audit log names the replica of each write.
fn accounts() -> Vec<Value> {
    let names = ["mainstay", "mainstay-too"];
    let metadata = |name: &str| json!({"name": name, "namespace": "mainstay-system"});
    let subject = |name| json!({"kind": "ServiceAccount", "name": name, "namespace": "mainstay-system"});
    let account = |name| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata(name)});
    let api_version = "rbac.authorization.k8s.io/v1";
    let any = json!(["get", "list", "watch", "create", "update", "patch"]);
    let [first, second] = names.map(account);
    vec![
        first,
        second,
        json!({"apiVersion": api_version, "kind": "Role", "metadata": metadata("restless"), "rules": [
            {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": any},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": any},
            {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": any},
        ]}),
        json!({
            "apiVersion": api_version, "kind": "RoleBinding", "metadata": metadata("restless"),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "restless"},
            "subjects": names.map(subject),
        }),
    ]
}
