//! The binary on a command line: invalid input is reported in full and ends with code 2, and the shipped
//! files are valid.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use mainstay_tests::TestCluster;
use mainstay_tests::manifests::documents_of_base;
use serde_json::Value;

const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";

/// Runs the binary to its end.
fn mainstay(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_mainstay-under-test"))
        .args(arguments)
        .stdin(Stdio::null())
        .env_remove("KUBECONFIG")
        .output()
        .expect("it starts")
}

/// Checks exit code, the whole standard output and the whole standard error.
#[track_caller]
fn check(arguments: &[&str], code: i32, stdout: &str, stderr: &str) {
    let output = mainstay(arguments);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let found = (output.status.code(), text(&output.stdout), text(&output.stderr));
    assert_eq!(found, (Some(code), stdout.to_owned(), stderr.to_owned()), "{arguments:?}");
}

/// Checks that every command that reads a configuration refuses this one, with these lines after the file's
/// name.
#[track_caller]
fn refused(text: &str, lines: &[&str]) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("manager.yaml");
    std::fs::write(&file, format!("{HEAD}{text}")).expect("written");
    let name = file.display().to_string();
    let expected = lines.iter().flat_map(|line| [name.as_str(), ":", line, "\n"]).collect::<String>();
    check(&["config", "validate", &name], 2, "", &expected);
    check(&["run", "--config", &name], 2, "", &expected);
    // The directory stands for the file in it, as a mounted ConfigMap does.
    check(&["run", "--config", &folder.path().display().to_string()], 2, "", &expected);
    check(&["dev", "--config", &name], 2, "", &expected);
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

const UNKNOWN_KEY: &str =
    r#"controllers["wait-deployment"].worker: unknown key, set to 8; did you mean workers?"#;
const WRONG_UNIT: &str =
    "shutdown.gracePeriod: 30; expected a duration such as 30s, 5ms, 2m or 1h30m, with a unit: 30s or 30ms";
const IMPOSSIBLE: &str = "leaderElection.renewDeadline: 15s; expected less than leaseDuration 10s";

#[test]
fn an_unknown_key_is_refused() {
    refused("controllers:\n  wait-deployment: {worker: 8}\n", &[&format!("4:21: {UNKNOWN_KEY}")]);
}

#[test]
fn a_wrong_unit_is_refused() {
    refused("shutdown: {gracePeriod: 30}\n", &[&format!("3:25: {WRONG_UNIT}")]);
}

#[test]
fn an_impossible_combination_is_refused() {
    let text = "leaderElection: {leaseDuration: 10s, renewDeadline: 15s}\n";
    refused(text, &[&format!(" {IMPOSSIBLE}")]);
}

#[test]
fn problems_of_all_sections_are_reported_together() {
    refused(
        "leaderElection: {leaseDuration: 10s, renewDeadline: 15s}\n\
         shutdown: {gracePeriod: 30}\n\
         controllers:\n  wait-deployment: {worker: 8}\n",
        &[&format!("4:25: {WRONG_UNIT}"), &format!("6:21: {UNKNOWN_KEY}"), &format!(" {IMPOSSIBLE}")],
    );
}

#[test]
fn a_missing_file_is_invalid_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("manager.yaml").display().to_string();
    let expected = format!("{file}: cannot be read: No such file or directory (os error 2)\n");
    // The file itself, and its directory.
    for named in [&file, &folder.path().display().to_string()] {
        check(&["config", "validate", named], 2, "", &expected);
        check(&["run", "--config", named], 2, "", &expected);
    }
}

#[test]
fn an_unknown_flag_is_wrong_input() {
    check(
        &["run", "--confg", "manager.yaml"],
        2,
        "",
        "error: unexpected argument '--confg' found\n\n  tip: a similar argument exists: '--config'\n\n\
         Usage: mainstay-under-test run --config <PATH>\n\nFor more information, try '--help'.\n",
    );
}

#[test]
fn every_shipped_configuration_is_valid() {
    let shipped = std::fs::read_dir(workspace().join("config")).expect("config/");
    let mut files: Vec<_> = shipped.map(|entry| entry.expect("an entry").path()).collect();
    files.push(workspace().join("controllers/src/dev/manager.yaml"));
    assert!(files.len() >= 4, "{files:?}");
    for file in files {
        let name = file.display().to_string();
        check(&["config", "validate", &name], 0, &format!("{name}: valid\n"), "");
    }
    let documents = documents_of_base();
    let maps = documents.iter().filter(|document| document["kind"] == "ConfigMap");
    let texts: Vec<_> = maps.filter_map(|map| map["data"]["manager.yaml"].as_str()).collect();
    assert_eq!(texts.len(), 1, "deploy/base ships one configuration");
    for text in texts {
        // Mounted as a directory, and read as one.
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::write(folder.path().join("manager.yaml"), text).expect("written");
        let name = folder.path().display().to_string();
        check(&["config", "validate", &name], 0, &format!("{name}: valid\n"), "");
    }
}

/// To mend a failure: run the same commands without `--check`.
#[test]
fn the_shipped_manifests_are_those_that_the_program_makes() {
    let (config, deploy) = (workspace().join("deploy/manager.yaml"), workspace().join("deploy"));
    let (config, deploy) = (config.display().to_string(), deploy.display().to_string());
    for form in ["yaml", "kustomize", "helm"] {
        check(&["manifests", "--config", &config, "--format", form, "--out", &deploy, "--check"], 0, "", "");
    }
}

#[test]
fn stale_and_missing_manifests_are_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().display().to_string();
    check(&["manifests", "--format", "kustomize", "--out", &out], 0, "", "");
    check(&["manifests", "--format", "kustomize", "--out", &out, "--check"], 0, "", "");
    std::fs::write(folder.path().join("base/rbac.yaml"), "rules: []\n").expect("written");
    std::fs::remove_file(folder.path().join("static-pod/pod.yaml")).expect("removed");
    std::fs::write(folder.path().join("base/old.yaml"), "").expect("written");
    let expected = format!(
        "error: the manifests are stale; run it without --check\n{out}/base/rbac.yaml: \
         differs\n{out}/static-pod/pod.yaml: missing\n{out}/base/old.yaml: no longer made; delete it\n"
    );
    check(&["manifests", "--format", "kustomize", "--out", &out, "--check"], 1, "", &expected);
}

#[test]
fn each_rule_is_explained_by_its_lines_of_code() {
    let explained = String::from_utf8(mainstay(&["rbac", "--explain"]).stdout).expect("text");
    let line = "    create, patch: controller wait-deployment writes it (controllers/src/register.rs:";
    assert!(explained.contains(line), "{explained}");
}

/// To mend a failure: `cargo run --quiet -- crd > deploy/base/crd.yaml`.
#[test]
fn the_binary_prints_the_shipped_definition() {
    let shipped = std::fs::read_to_string(workspace().join("deploy/base/crd.yaml")).expect("crd.yaml");
    check(&["crd"], 0, &shipped, "");
}

#[tokio::test]
async fn an_occupied_port_is_reported_with_its_config_key() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address");
    let config = cluster.scratch("taken.yaml");
    let text = format!("{HEAD}leaderElection: {{enabled: false}}\nhealth: {{bindAddress: \"{address}\"}}\n");
    std::fs::write(&config, text).expect("written");
    let (config, kubeconfig) =
        (config.display().to_string(), cluster.kubeconfig_path().display().to_string());
    let output = mainstay(&["run", "--config", &config, "--kubeconfig", &kubeconfig]);
    let log = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), log.lines().count()), (Some(1), 1), "{log}");
    let line: Value = serde_json::from_str(&log).expect("a line of JSON");
    let expected = format!(
        "health.bindAddress cannot be served: cannot listen on {address}; free the port or choose another \
         bindAddress: Address already in use (os error 98)"
    );
    assert_eq!((line["level"].as_str(), line["error"].as_str()), (Some("error"), Some(expected.as_str())));
}

#[tokio::test]
async fn the_definition_can_be_applied_in_both_ways() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let file = cluster.scratch("crd.yaml");
    let printed = mainstay(&["crd"]).stdout;
    // Client-side apply keeps a copy in an annotation, limited to 256 KiB.
    assert!(printed.len() < 128 * 1024, "{} bytes", printed.len());
    std::fs::write(&file, printed).expect("written");
    let file = file.display().to_string();
    let crd = "customresourcedefinition.apiextensions.k8s.io/waitdeployments.apps.mainstay.dev";
    // A dry run does not affect concurrent tests; the exclusive tests apply it for real.
    for way in
        [&["apply", "--dry-run=server", "-f"][..], &["apply", "--server-side", "--dry-run=server", "-f"]]
    {
        let printed = cluster.kubectl(&[way, &[&file]].concat()).await;
        assert!(printed.starts_with(crd), "{printed}");
    }
}

#[tokio::test]
async fn the_base_can_be_applied_as_a_whole() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let base = workspace().join("deploy/base").display().to_string();
    // A dry run of namespaced objects needs the namespace.
    cluster.kubectl(&["apply", "-f", &format!("{base}/namespace.yaml")]).await;
    // Without this test's namespace: the base contains its own.
    let arguments = ["--namespace=", "apply", "--dry-run=server", "-k", &base];
    let output = cluster.try_kubectl(&arguments).await;
    let (printed, warned) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{warned}");
    let mut objects: Vec<_> = printed.lines().filter_map(|line| line.split(' ').next()).collect();
    objects.sort_unstable();
    assert_eq!(
        objects,
        [
            "clusterrole.rbac.authorization.k8s.io/mainstay",
            "clusterrole.rbac.authorization.k8s.io/mainstay-edit",
            "clusterrole.rbac.authorization.k8s.io/mainstay-resources",
            "clusterrole.rbac.authorization.k8s.io/mainstay-view",
            "clusterrolebinding.rbac.authorization.k8s.io/mainstay",
            "clusterrolebinding.rbac.authorization.k8s.io/mainstay-resources",
            "configmap/mainstay-config",
            "customresourcedefinition.apiextensions.k8s.io/waitdeployments.apps.mainstay.dev",
            "deployment.apps/mainstay",
            "flowschema.flowcontrol.apiserver.k8s.io/mainstay-leader-election",
            "namespace/mainstay-system",
            "poddisruptionbudget.policy/mainstay",
            "role.rbac.authorization.k8s.io/mainstay",
            "rolebinding.rbac.authorization.k8s.io/mainstay",
            "service/mainstay-metrics",
            "serviceaccount/mainstay",
        ]
    );
    assert!(!warned.contains("PodSecurity"), "the Pods break the rules of their own namespace: {warned}");
}

/// Returns the commands that a help text lists, each with its description.
fn listed(help: &str) -> Vec<(String, String)> {
    let commands = help.split_once("Commands:\n").map_or("", |(_, rest)| rest);
    let mut found: Vec<(String, String)> = Vec::new();
    for line in commands.lines().take_while(|line| !line.is_empty()) {
        match (line.strip_prefix("  ").filter(|line| !line.starts_with(' ')), found.last_mut()) {
            (Some(line), _) => {
                let (name, about) = line.split_once(' ').expect("a name and a description");
                found.push((name.to_owned(), about.trim().to_owned()));
            }
            // A long description continues on the next line.
            (None, Some((_, about))) => *about = format!("{about} {}", line.trim()),
            (None, None) => panic!("no command: {line}"),
        }
    }
    found
}

#[test]
fn help_describes_every_command_by_its_effect() {
    let (mut open, mut found) = (vec![(Vec::new(), String::new())], Vec::new());
    while let Some((path, about)) = open.pop() {
        let arguments: Vec<&str> = path.iter().map(String::as_str).chain(["--help"]).collect();
        let output = mainstay(&arguments);
        let help = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {:?}", output.status);
        assert!(help.starts_with(&about), "{arguments:?}: expected {about:?} first: {help}");
        for (name, about) in listed(&help) {
            let path = [path.clone(), vec![name]].concat();
            found.push(format!("{}: {about}", path.join(" ")));
            open.push((path, about));
        }
    }
    found.sort();
    assert_eq!(
        found,
        [
            "add controller: Add a controller of a kind that is there already",
            "add kind: Add a kind, its controller and a sample",
            "add: Add to the project in the current folder",
            "cluster down: End a cluster in the background",
            "cluster kubeconfig: Print the kubeconfig of a cluster in the background",
            "cluster run: Run a cluster in the foreground until Ctrl-C",
            "cluster up: Start a cluster in the background",
            "cluster: Run a Kubernetes API server with the controllers of a small cluster",
            "config print-defaults: Print every setting with its default",
            "config schema: Print the JSON Schema of the file, for editors",
            "config validate: Print all problems of a file",
            "config: Check and print configuration files",
            "crd: Print the CustomResourceDefinitions, for kubectl apply -f -",
            "dev: Start a cluster on this machine, apply samples, run the manager and print what happens",
            "inspect caches: Print the stores of the cache",
            "inspect config: Print the configuration in force, with the origin of each value",
            "inspect controllers: Print the controllers, with the number of keys in each state",
            "inspect leader: Print the leader, and the history of the Lease",
            "inspect log: Change the log level",
            "inspect queue: Print the keys of a controller's queue, failing keys first",
            "inspect reconcile: Reconcile one object now, even during its backoff",
            "inspect watches: Print the lists and watches of the cache",
            "inspect: Inspect a running manager",
            "manifests: Write the files that install the program in a cluster",
            "new: Make the project of an operator in a new folder",
            "rbac: Print the roles that the program needs",
            "run: Run the manager",
            "version: Print the version",
            "why: Print why a WaitDeployment waits: a tree of its dependencies",
        ]
    );
}
