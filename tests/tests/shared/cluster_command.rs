//! The command `cluster`: a cluster in the background, and one in a file whose process is killed at any
//! moment.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::WatchEvent;
use kube::{Api, Client, Config};
use mainstay_tests::report::{figure, long_form};
use parking_lot::Mutex;
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

const BINARY: &str = env!("CARGO_BIN_EXE_mainstay-under-test");

/// Kills, by default and with `MAINSTAY_LONG=1`.
const KILLS: (u32, u32) = (40, 200);

/// Clients that write at the same time, each its own objects.
const WRITERS: usize = 3;

/// Bound for every wait; a server starts in a fraction of a second.
const PATIENCE: Duration = Duration::from_mins(1);

fn cluster(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = std::process::Command::new(BINARY);
    command.arg("cluster").args(arguments).env("XDG_RUNTIME_DIR", folder).env("TMPDIR", folder);
    command.output().expect("the program runs")
}

#[track_caller]
fn succeeds(folder: &Path, arguments: &[&str]) -> String {
    let output = cluster(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[track_caller]
fn fails(folder: &Path, arguments: &[&str], code: i32, expected: &str) {
    let output = cluster(folder, arguments);
    let error = String::from_utf8(output.stderr).expect("text");
    assert_eq!((output.status.code(), error.lines().next()), (Some(code), Some(expected)), "{arguments:?}");
}

/// Returns a client of the administrator in a kubeconfig.
async fn client(kubeconfig: &str) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).expect("a kubeconfig");
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_in_the_background_is_up_until_it_is_ended() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    let data = place.join("data").display().to_string();
    let line = format!("export KUBECONFIG={}/mainstay-cluster/mine/kubeconfig\n", place.display());
    assert_eq!(succeeds(place, &["up", "--name", "mine", "--data", &data]), line);
    let again = succeeds(place, &["up", "--name", "mine"]);
    assert_eq!(again, format!("cluster mine is up already\n{line}"));
    let other = format!("error: {data}: it is in use by another server");
    fails(place, &["up", "--name", "other", "--data", &data], 1, &other);

    let kubeconfig = succeeds(place, &["kubeconfig", "--name", "mine"]);
    let maps: Api<ConfigMap> = Api::default_namespaced(client(&kubeconfig).await);
    let map = serde_json::from_value(json!({"metadata": {"name": "kept"}})).expect("a ConfigMap");
    let map = maps.create(&PostParams::default(), &map).await.expect("created");
    assert_eq!(succeeds(place, &["down", "--name", "mine"]), "cluster mine is down\n");
    assert_eq!(succeeds(place, &["down", "--name", "mine"]), "cluster mine is not up\n");
    let none = "error: cluster mine is not up; start it with: up --name mine";
    fails(place, &["kubeconfig", "--name", "mine"], 1, none);

    succeeds(place, &["up", "--name", "mine", "--data", &data]);
    assert_eq!(maps.get("kept").await.expect("the kubeconfig of before works"), map);
    succeeds(place, &["down", "--name", "mine"]);
}

#[test]
fn names_and_files_that_cannot_be_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path();
    let name = "error: invalid value '../x' for '--name <NAME>': \
                expected 1 to 63 lower-case letters, digits and dashes";
    fails(place, &["up", "--name", "../x"], 2, name);
    let port = "error: invalid value '0' for '--port <PORT>': 0 is not in 1..=65535";
    fails(place, &["run", "--port", "0"], 2, port);
    let nowhere = place.join("none/data").display().to_string();
    let missing = format!("error: {nowhere}: No such file or directory (os error 2)");
    fails(place, &["run", "--data", &nowhere], 1, &missing);
    fails(place, &["up", "--data", &nowhere], 1, &missing);
    let text = place.join("text");
    std::fs::write(&text, "apiVersion: v1\n".repeat(40)).expect("written");
    let output = cluster(place, &["run", "--data", &text.display().to_string()]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

/// A server with a file, as a process.
struct Server {
    process: Child,
    kubeconfig: String,
}

impl Server {
    async fn start(folder: &Path) -> Self {
        let (data, kubeconfig) = (folder.join("data"), folder.join("kubeconfig"));
        let mut command = Command::new(BINARY);
        command.args(["cluster", "run", "--data"]).arg(data).arg("--kubeconfig").arg(&kubeconfig);
        command.env("TMPDIR", folder).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process = command.spawn().expect("started");
        let output = process.stdout.take().expect("its output");
        let mut lines = BufReader::new(output).lines();
        let line = timeout(PATIENCE, lines.next_line()).await.expect("ready in time").expect("a line");
        assert!(line.is_some(), "it has ended: {:?}", process.wait().await);
        let kubeconfig = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
        Self { process, kubeconfig }
    }
}

/// The objects of one client as it knows them: the value of each, and the write whose answer it waits for.
#[derive(Clone, Default)]
struct Known {
    values: BTreeMap<String, String>,
    /// The name and the value that the unanswered write gives it; `None` for a deletion.
    open: Option<(String, Option<String>)>,
    /// The highest resourceVersion in an answer.
    newest: u64,
}

impl Known {
    /// Notes that an object has this value now; `None` if it is deleted.
    fn settle(&mut self, name: String, value: Option<String>) {
        match value {
            Some(value) => drop(self.values.insert(name, value)),
            None => drop(self.values.remove(&name)),
        }
    }
}

/// Creates, changes and deletes objects until a request fails.
async fn write(maps: &Api<ConfigMap>, writer: usize, known: &Mutex<Known>, mut random: fastrand::Rng) {
    for number in 0.. {
        let name = format!("w{writer}-{}", random.u8(0..6));
        let exists = known.lock().values.contains_key(&name);
        let value =
            (!exists || random.bool()).then(|| format!("{number}-{}", "x".repeat(random.usize(0..3000))));
        known.lock().open = Some((name.clone(), value.clone()));
        let merge = |value: &str| Patch::Merge(json!({"data": {"value": value}}));
        let answer = match &value {
            None => maps
                .delete(&name, &DeleteParams::default())
                .await
                .map(|deleted| deleted.left().and_then(|map| map.metadata.resource_version)),
            Some(value) if exists => maps
                .patch(&name, &PatchParams::default(), &merge(value))
                .await
                .map(|map| map.metadata.resource_version),
            Some(value) => {
                let map = json!({"metadata": {"name": name}, "data": {"value": value}});
                let map = serde_json::from_value(map).expect("a ConfigMap");
                maps.create(&PostParams::default(), &map).await.map(|map| map.metadata.resource_version)
            }
        };
        let revision = match answer {
            Ok(revision) => revision,
            Err(kube::Error::Api(status)) => panic!("{name}: {status}"),
            Err(_) => return,
        };
        let mut known = known.lock();
        known.newest = known.newest.max(revision.and_then(|text| text.parse().ok()).unwrap_or_default());
        known.open = None;
        known.settle(name, value);
    }
}

/// Compares the objects with what the writers know; returns the number of writes that were acknowledged and
/// are lost. Completes the knowledge by the write that was not acknowledged.
fn lost(found: &BTreeMap<String, String>, writer: usize, known: &mut Known) -> u32 {
    if let Some((name, value)) = known.open.take()
        && found.get(&name) == value.as_ref()
    {
        known.settle(name, value);
    }
    let prefix = format!("w{writer}-");
    let own: BTreeMap<_, _> = found.iter().filter(|(name, _)| name.starts_with(&prefix)).collect();
    let expected: BTreeMap<_, _> = known.values.iter().collect();
    let names = own.keys().chain(expected.keys()).collect::<std::collections::BTreeSet<_>>();
    let differ = names.into_iter().filter(|name| own.get(**name) != expected.get(**name));
    differ.map(|_| 1).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_by_a_kill() {
    let kills = if long_form() { KILLS.1 } else { KILLS.0 };
    let folder = tempfile::tempdir().expect("a folder");
    let known: Vec<Arc<Mutex<Known>>> = (0..WRITERS).map(|_| Arc::default()).collect();
    let mut random = fastrand::Rng::with_seed(11);
    let (mut lost_writes, mut newest) = (0, 0);
    for _ in 0..kills {
        let mut server = Server::start(folder.path()).await;
        let maps: Api<ConfigMap> = Api::default_namespaced(client(&server.kubeconfig).await);
        let list = maps.list(&ListParams::default()).await.expect("listed");
        let value = |map: ConfigMap| Some((map.metadata.name?, map.data?.remove("value")?));
        let found: BTreeMap<String, String> = list.items.into_iter().filter_map(value).collect();
        for (writer, known) in known.iter().enumerate() {
            lost_writes += lost(&found, writer, &mut known.lock());
        }
        let revision: u64 = list.metadata.resource_version.expect("a revision").parse().expect("a number");
        assert!(revision > newest, "revisions go on: {revision} after {newest}");
        if newest > 0 {
            let mut events =
                maps.watch(&WatchParams::default(), &newest.to_string()).await.expect("a watch").boxed();
            let event = timeout(PATIENCE, events.next()).await.expect("in time").expect("an event");
            let expired = matches!(&event, Ok(WatchEvent::Error(status)) if status.code == 410);
            assert!(expired, "a watch from before the kill: {event:?}");
        }
        let mut writers = JoinSet::new();
        for (writer, known) in known.iter().enumerate() {
            let (maps, known, random) = (maps.clone(), Arc::clone(known), random.fork());
            writers.spawn(async move { write(&maps, writer, &known, random).await });
        }
        tokio::time::sleep(Duration::from_micros(random.u64(0..60_000))).await;
        server.process.kill().await.expect("killed");
        while let Some(ended) = timeout(PATIENCE, writers.join_next()).await.expect("the requests end") {
            ended.expect("only the connection fails");
        }
        newest = known.iter().map(|known| known.lock().newest).max().unwrap_or_default().max(revision);
    }
    let writes: usize = known.iter().map(|known| known.lock().values.len()).sum();
    assert!(writes > 0, "objects were left");
    figure("dev.kills", f64::from(kills), "count");
    figure("dev.lost_writes", f64::from(lost_writes), "count");
    assert_eq!(lost_writes, 0);
}
