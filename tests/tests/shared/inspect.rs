//! The command `inspect` against a running manager: keys with their state and error, the leader, and a manual
//! reconcile.

use std::process::{Output, Stdio};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use mainstay::cache::Scope;
use mainstay::controller::Controller;
use mainstay::key::{Key as _, NamespacedName};
use mainstay::reconcile::{Action, Context, Outcome, ReconcileError};
use mainstay_tests::wait::{PATIENCE, until_so};
use mainstay_tests::witness::witness;
use mainstay_tests::{LocalManager, TestCluster};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::{Duration, timeout};

const CONTROLLER: &str = "questions";

async fn end_as_named(request: NamespacedName, _: Context) -> Outcome {
    match request.name() {
        "fails" => Err(ReconcileError::from("no luck")),
        "waits" => Ok(Action::RequeueAfter(Duration::from_hours(1))),
        _ => Ok(Action::Done),
    }
}

/// A manager with a failing, a done and a requeued object.
struct Subject {
    manager: LocalManager,
    namespace: String,
}

/// A running `inspect queue -w` and its output.
struct Follower {
    lines: Lines<BufReader<ChildStdout>>,
    /// Kills the process when dropped.
    _process: Child,
}

// === impl Subject ===

impl Subject {
    async fn start(cluster: &TestCluster) -> Self {
        let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]);
        let identity = cluster.install_base_with(&rules).await;
        let maps = cluster.api::<ConfigMap>();
        for name in ["fails", "fine", "waits"] {
            let map = json!({"metadata": {"name": name, "labels": {"of": CONTROLLER}}});
            let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
            maps.create(&PostParams::default(), &map).await.expect("created");
        }
        let every = json!({"queue": {"retry": {"baseDelay": "10m"}}});
        let changes = json!({"inspect": {"bindAddress": "127.0.0.1:0"}, "controllers": {"*": every}});
        let (reconciler, mut runs) = witness(end_as_named);
        let manager = LocalManager::start_with(cluster, &identity, &changes, |manager| {
            let of: Scope = Scope::all().labels(format!("of={CONTROLLER}").parse().expect("a selector"));
            let store = manager.store::<ConfigMap>(of);
            let controller = Controller::new(CONTROLLER).reconciles(&store).reconciler(reconciler);
            manager.register(controller).expect("registered");
        })
        .await;
        manager.leads().await;
        for _ in 0..3 {
            runs.next().await;
        }
        let subject = Self { manager, namespace: cluster.namespace().to_owned() };
        // A key returns to the queue a moment after its run.
        until_so("both waiting keys in the page", async || subject.rows("delayed").await.len() == 2).await;
        subject
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let address = self.manager.manager.inspect_addr().expect("an address");
        let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"));
        command.arg("inspect").args(arguments).args(["--address", &address.to_string()]);
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    async fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().await.expect("started")
    }

    /// Runs the command, asserts success and returns its standard output.
    async fn printed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {}: {error}", output.status);
        String::from_utf8(output.stdout).expect("text")
    }

    /// Returns the table rows of the keys in this state.
    async fn rows(&self, state: &str) -> Vec<Vec<String>> {
        let printed = self.printed(&["queue", CONTROLLER, "--state", state]).await;
        printed.lines().skip(1).map(cells).collect()
    }

    fn key(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace)
    }

    fn follow(&self, arguments: &[&str]) -> Follower {
        let mut process = self.command(arguments).stdout(Stdio::piped()).spawn().expect("started");
        let out = process.stdout.take().expect("a piped output");
        Follower { lines: BufReader::new(out).lines(), _process: process }
    }
}

fn cells(line: &str) -> Vec<String> {
    line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
}

// === impl Follower ===

impl Follower {
    /// Waits for a line that `accepts` takes, and returns its cells.
    async fn until(&mut self, expected: &str, accepts: impl Fn(&[String]) -> bool) -> Vec<String> {
        let found = async {
            while let Some(line) = self.lines.next_line().await.expect("readable") {
                let cells = cells(&line);
                if accepts(&cells) {
                    return cells;
                }
            }
            panic!("the command ended before it printed {expected}")
        };
        timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("waited for {expected}"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inspect_queue_shows_why_a_key_waits_and_other_commands_show_the_rest() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let subject = Subject::start(&cluster).await;
    let rows = subject.rows("delayed").await;
    let [fails, waits] = &rows[..] else { panic!("two keys wait: {rows:?}") };
    let [key, state, attempts, next, since, took, cause, error] = &fails[..] else { panic!("{fails:?}") };
    assert_eq!((&**key, &**state, &**attempts), (&*subject.key("fails"), "backoff", "1"));
    assert_eq!((&**cause, &**error), ("initial ConfigMap", "no luck"));
    assert!(next.ends_with('s') && next.contains('m'), "minutes and seconds: {next}");
    assert!(since.ends_with('s') && took.ends_with('s'), "{since} {took}");
    assert_eq!((&*waits[0], &*waits[1], &*waits[2]), (&*subject.key("waits"), "requeued", "0"));
    assert_eq!(subject.rows("backoff").await.len(), 1);

    let page = subject.printed(&["queue", CONTROLLER, "-o", "json", "--name", "fails"]).await;
    let page: Value = serde_json::from_str(&page).expect("JSON");
    assert_eq!((&page["matched"], &page["keys"][0]["lastError"]), (&json!(1), &json!("no luck")));
    let leader = subject.printed(&["leader"]).await;
    assert!(leader.contains("became leader"), "{leader}");
    let caches = subject.printed(&["caches"]).await;
    assert!(caches.lines().any(|line| line.contains("ConfigMap") && line.contains("working")), "{caches}");
    let controllers = subject.printed(&["controllers"]).await;
    assert!(controllers.lines().any(|line| line.starts_with(CONTROLLER)), "{controllers}");

    for (arguments, expected) in [
        (
            ["queue", "question"],
            "controller \"question\" does not run here; running: deployment-status-mirror, questions",
        ),
        (["queue", "--state=broken"], "delayed, backoff, requeued, parked, running, dirty, ready"),
    ] {
        let output = subject.run(&arguments).await;
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(expected), "{:?} {error}", output.status);
        assert_eq!(output.stdout, b"");
    }
    subject.manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_followed_queue_shows_manual_reconciles() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let subject = Subject::start(&cluster).await;
    let mut follower =
        subject.follow(&["queue", CONTROLLER, "--state", "delayed", "--state", "parked", "-w"]);
    let (fails, waits) = (subject.key("fails"), subject.key("waits"));
    let is = |key: &str, state: &str, attempts: &str| {
        let expected = [key, state, attempts].map(str::to_owned);
        move |cells: &[String]| cells.starts_with(&expected)
    };
    follower.until("the first table", is(&fails, "backoff", "1")).await;
    assert_eq!(subject.printed(&["reconcile", CONTROLLER, &fails]).await, "1 key on the queue\n");
    let row = follower.until("a second attempt", is(&fails, "backoff", "2")).await;
    assert_eq!(row[6], "manual");
    assert_eq!(subject.printed(&["reconcile", CONTROLLER, &waits]).await, "1 key on the queue\n");
    let manual = |cells: &[String]| cells[0] == waits && cells[6] == "manual";
    follower.until("a manual run of the other key", manual).await;

    let output = subject.run(&["reconcile", CONTROLLER, "fails"]).await;
    let error = String::from_utf8_lossy(&output.stderr);
    let expected = "error: ConfigMap is namespaced; give its namespace\n";
    assert_eq!((output.status.code(), &*error), (Some(2), expected));
    drop(follower);
    subject.manager.stop().await.expect("stopped in order");
}
