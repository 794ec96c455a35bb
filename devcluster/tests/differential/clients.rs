//! Clients of other projects, unmodified, do the same on both servers.
//!
//! Each server runs in a process of its own with its own network, because controller-runtime's example
//! listens at fixed ports of every address. There, four kinds of clients work while [`churn`] changes
//! objects, cuts connections and restarts the API server:
//!
//! - client-go's informers, with the check that compares the start of each watch with a list;
//! - `k8s.io/sample-controller`, which keeps a Deployment for each Foo;
//! - controller-runtime's `examples/builtins`, which labels `ReplicaSets`;
//! - kube-runtime's watcher, reflector and Controller.
//!
//! The same happens on a third one: an embedded server on which the controllers of the real
//! kube-controller-manager take the place of its own ones for Deployments, `ReplicaSets`, Jobs and garbage.
//!
//! Afterwards each client may have reported only errors that it also reports on the real server, every cache
//! must equal the server's lists, and the final objects of all servers must be equal. `DIFFERENTIAL_SEED` is
//! the seed; with `MAINSTAY_LONG=1` the changes take two minutes instead of ten seconds.

mod churn;
mod order;
mod programs;
mod relay;
mod report;
mod state;
mod watchers;

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kube::Client;
use kube::api::{Api, ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use mainstay_devcluster::workloads::Controller;
use mainstay_devcluster::{DevCluster, EmbeddedOptions, Options};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use super::{compare, pair, print, variable};
use churn::Churn;
use programs::Programs;
use relay::Relay;
use report::Report;
use watchers::Watchers;

const TEST: &str = "clients::clients_of_other_projects_do_the_same_on_both_servers";

/// The variable of a process in its own network: the file for its result, named after its server.
const RESULT: &str = "DIFFERENTIAL_CLIENTS";
const ASSETS: &str = "KUBEBUILDER_ASSETS";

/// Longer than the long form takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(10);

/// The embedded server with controllers of the real programs.
const CONTROLLED: &str = "embedded with real controllers";

/// Differences that are printed.
const PRINTED: usize = 20;

const NAMESPACE: &str = "churn";

/// The kinds that are changed and watched: plural, group and version, kind.
const KINDS: &[(&str, &str, &str, &str)] = &[
    ("configmaps", "", "v1", "ConfigMap"),
    ("pods", "", "v1", "Pod"),
    ("replicasets", "apps", "v1", "ReplicaSet"),
    ("deployments", "apps", "v1", "Deployment"),
    ("jobs", "batch", "v1", "Job"),
    ("foos", "samplecontroller.k8s.io", "v1alpha1", "Foo"),
];

fn resource(plural: &str) -> ApiResource {
    let (plural, group, version, kind) = KINDS.iter().find(|kind| kind.0 == plural).expect("a known kind");
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

fn api(client: &Client, plural: &str) -> Api<DynamicObject> {
    Api::namespaced_with(client.clone(), NAMESPACE, &resource(plural))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_of_other_projects_do_the_same_on_both_servers() {
    if let Some(result) = variable(RESULT) {
        return on_one(Path::new(&result)).await;
    }
    if variable("DIFFERENTIAL_ONLY").is_some() || !network().await {
        return;
    }
    // The processes without a network outside could not build the programs.
    let Some(server) = pair::real(Options { bare: true, ..Options::default() }).await else { return };
    let assets = server.kubectl().parent().expect("a folder").to_owned();
    server.stop().await;
    if let Some(missing) = programs::NAMES.iter().find(|name| !assets.join(name).is_file()) {
        return skip(&format!("{} lacks {missing}", assets.display()));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (embedded, controlled, real) = tokio::join!(
        in_its_network(folder.path().join("embedded"), &assets),
        in_its_network(folder.path().join(CONTROLLED), &assets),
        in_its_network(folder.path().join("real"), &assets)
    );
    let mut found = Vec::new();
    for (server, result) in [("embedded", &embedded), (CONTROLLED, &controlled), ("real", &real)] {
        let problems = result["problems"].as_array().expect("problems").iter();
        found.extend(problems.map(|problem| format!("{server}: {}", problem.as_str().unwrap_or_default())));
    }
    for (server, result) in [("embedded", &embedded), (CONTROLLED, &controlled)] {
        let differences = compare::compare(&result["objects"], &real["objects"]);
        found.extend(differences.iter().take(PRINTED).map(|difference| format!("{server}: {difference}")));
    }
    assert!(found.is_empty(), "the clients of the two servers differ, or fail:\n{}", found.join("\n"));
}

// === the process with the network outside ===

/// Prints a notice; in CI, fails instead.
fn skip(why: &str) {
    assert!(variable("CI").is_none(), "{why}");
    print(&format!("skipped: {why}"));
}

/// Returns a command that runs another one with a network and processes of its own: when it ends, so do all
/// processes that it has started.
fn apart() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--"]);
    command.args(["sh", "-c", "ip link set lo up && exec \"$@\"", "sh"]).kill_on_drop(true);
    command
}

/// Whether this machine allows networks.
async fn network() -> bool {
    match apart().arg("true").status().await {
        Ok(status) if status.success() => return true,
        failed => skip(&format!("no network can be made: {failed:?}")),
    }
    false
}

/// Runs the test again in a network of its own and returns the result.
async fn in_its_network(result: PathBuf, assets: &Path) -> Value {
    let program = std::env::current_exe().expect("the path of this program");
    let mut command = apart();
    command.arg(program).args([TEST, "--exact", "--nocapture"]);
    command.env(RESULT, &result).env(ASSETS, assets).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut process = command.spawn().expect("a process");
    let _lifeline = process.stdin.take();
    let status = timeout(PATIENCE, process.wait()).await.expect("the clients end in time").expect("a status");
    assert!(status.success(), "the process of {} failed, see above", result.display());
    serde_json::from_slice(&std::fs::read(result).expect("a result")).expect("JSON")
}

// === the process of one server ===

/// Runs all clients on one server and writes the final objects.
async fn on_one(result: &Path) {
    std::thread::spawn(|| {
        drop(std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink()));
        // The process outside has ended.
        std::process::exit(1);
    });
    let name = result.file_name().and_then(|name| name.to_str()).expect("a name");
    let cluster = start(name).await;
    let relay = Relay::start(&cluster.url()).await;
    let kubeconfig = cluster.kubeconfig_path().with_file_name("clients.yaml");
    let text = std::fs::read_to_string(cluster.kubeconfig_path()).expect("a kubeconfig");
    std::fs::write(&kubeconfig, text.replace(&cluster.url(), &relay.url())).expect("another kubeconfig");
    let client = Client::try_from(pair::config(&kubeconfig).await).expect("a client");
    let namespace = json!({"metadata": {"name": NAMESPACE}});
    let namespaces = Api::<k8s_openapi::api::core::v1::Namespace>::all(client.clone());
    let namespace = serde_json::from_value(namespace).expect("a namespace");
    namespaces.create(&kube::api::PostParams::default(), &namespace).await.expect("a namespace");

    let began = Instant::now();
    let mut programs = Programs::start(&cluster, &kubeconfig, name == CONTROLLED);
    let watchers = Watchers::start(&client);
    let steps = Churn::run(&cluster, &relay, &mut programs).await;
    let settled = state::settled(&churn::client(&cluster).await).await;
    let (objects, unsettled) = settled.map_or_else(|(objects, why)| (objects, Some(why)), |it| (it, None));
    let mut report = watchers.report(&objects);
    report.problems.extend(unsettled);
    programs.end(&objects, &mut report).await;
    let Report { problems, caches, events, cached } = report;
    let seconds = began.elapsed().as_secs();
    print(&format!(
        "differential: clients of the {name} server: {steps} changes, {events} events and {cached} objects \
         in {caches} caches, {seconds} s"
    ));
    let text = json!({"problems": problems, "objects": state::comparable(objects)});
    std::fs::write(result, text.to_string()).expect("a file");
    cluster.stop().await;
}

async fn start(name: &str) -> DevCluster {
    let crds = vec![serde_saphyr::from_str(include_str!("clients/foo.yaml")).expect("a definition")];
    let cluster = if name == "real" {
        DevCluster::start_real(Options { crds, ..Options::default() }).await
    } else {
        let real = [
            Controller::Deployments,
            Controller::ReplicaSets,
            Controller::Jobs,
            Controller::GarbageCollector,
        ];
        let own = |controller: &Controller| name == "embedded" || !real.contains(controller);
        let controllers = Controller::ALL.into_iter().filter(own).collect();
        DevCluster::start_embedded(EmbeddedOptions { controllers, crds, ..EmbeddedOptions::default() }).await
    };
    cluster.expect("a cluster")
}
