//! controller-runtime's own suites for envtest pass the same specs on both servers.
//!
//! `DIFFERENTIAL_ENVTEST` names a folder with its sources, `src`, and a program for each suite, which
//! `.ci/full` makes. Each suite gets a new server without controllers, as from envtest.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use mainstay_devcluster::{DevCluster, EmbeddedOptions, Options};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

use super::{print, variable};

const SUITES: [&str; 5] = ["client", "cache", "builder", "webhook", "manager"];

/// Longer than the slowest suite takes on a busy machine.
const PATIENCE: Duration = Duration::from_mins(15);

/// Specs that pass on one of the servers only: suite, a part of the name, reason.
const ALLOWED: &[(&str, &str, &str)] = &[
    ("client", "approve CSRs", "the embedded server signs no certificates, and has no subresource for it"),
    ("cache", "get informer to be cancelled", "fails on any server if the list is faster than the check"),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suites_of_envtest_pass_the_same_specs_on_both_servers() {
    let Some(folder) = variable("DIFFERENTIAL_ENVTEST") else { return };
    let (mut passed, mut real_passed, mut found) = (0, 0, Vec::new());
    for suite in SUITES {
        let embedded = DevCluster::start_embedded(EmbeddedOptions::default()).await.expect("a server");
        let here = run(suite, Path::new(&folder), embedded).await;
        let real =
            DevCluster::start_real(Options { bare: true, ..Options::default() }).await.expect("a server");
        let there = run(suite, Path::new(&folder), real).await;
        passed += here.len();
        real_passed += there.len();
        for (spec, on) in here
            .difference(&there)
            .map(|spec| (spec, "embedded"))
            .chain(there.difference(&here).map(|spec| (spec, "real")))
        {
            if !ALLOWED.iter().any(|(of, part, _)| *of == suite && spec.contains(part)) {
                found.push(format!("{suite}: passes on the {on} server only: {spec}"));
            }
        }
    }
    print(&format!("figure envtest.passed {passed} count"));
    print(&format!("figure envtest.real_passed {real_passed} count"));
    assert!(real_passed > 500, "{real_passed}");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Runs a suite and returns the names of the specs that passed.
async fn run(suite: &str, folder: &Path, cluster: DevCluster) -> BTreeSet<String> {
    let report = cluster.folder().join("report.json");
    let mut command = Command::new(folder.join(format!("{suite}.test")));
    command
        .args(["-ginkgo.no-color", "-ginkgo.seed=1"])
        .arg(format!("-ginkgo.json-report={}", report.display()))
        .current_dir(folder.join("src/pkg").join(suite))
        .env("KUBECONFIG", cluster.kubeconfig_path())
        .env("USE_EXISTING_CLUSTER", "true")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    // The report tells which specs failed.
    let output = timeout(PATIENCE, command.output()).await.expect("an end in time").expect("it runs");
    let text = std::fs::read(&report);
    let text =
        text.unwrap_or_else(|error| panic!("{suite}: {error}\n{}", String::from_utf8_lossy(&output.stdout)));
    let report: Value = serde_json::from_slice(&text).expect("JSON");
    cluster.stop().await;
    let specs =
        report.as_array().into_iter().flatten().filter_map(|run| run["SpecReports"].as_array()).flatten();
    let name = |spec: &Value| {
        let containers = spec["ContainerHierarchyTexts"].as_array().into_iter().flatten();
        let words = containers.chain([&spec["LeafNodeText"]]).filter_map(Value::as_str);
        words.collect::<Vec<_>>().join(" / ")
    };
    let passed = |spec: &&Value| spec["LeafNodeType"] == "It" && spec["State"] == "passed";
    specs.filter(passed).map(name).collect()
}
