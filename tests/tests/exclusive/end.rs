//! Neither process nor folder of a cluster remains, whether it is stopped, dropped or killed.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use mainstay_tests::{TestCluster, wait};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Environment variable of the copy of this binary that is to be killed.
const VICTIM: &str = "MAINSTAY_TESTS_VICTIM";

/// Printed by that copy if this machine has no control plane. In CI the copy fails instead.
const NO_VICTIM: &str = "no victim";

/// Helper process of the next test: prints the folder and the process ids of a new cluster and then waits to
/// be killed. Does nothing in an ordinary run.
#[tokio::test]
async fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    // Bypasses the test runner's capture of output.
    let print = |line: &str| writeln!(std::io::stderr(), "{line}").expect("the parent reads");
    let Some(cluster) = TestCluster::exclusive().await else { return print(NO_VICTIM) };
    let folder = cluster.programs().folder().display().to_string();
    let ids = cluster.programs().process_ids().await;
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    print(&format!("victim {folder} {}", ids.join(" ")));
    std::future::pending::<()>().await;
}

#[tokio::test]
async fn a_killed_test_leaves_no_process_and_no_folder() {
    let mut victim = Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "end::victim"])
        .env(VICTIM, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("a copy of this binary");
    let mut lines = BufReader::new(victim.stderr.take().expect("piped")).lines();
    let printed = loop {
        let line = lines.next_line().await.expect("readable");
        let line = line.expect("the victim prints its cluster before it ends");
        if let Some(printed) = line.strip_prefix("victim ") {
            break printed.to_owned();
        }
        if line == NO_VICTIM {
            return;
        }
    };
    let (folder, ids) = printed.split_once(' ').expect("a folder and process ids");
    let ids: Vec<&str> = ids.split(' ').collect();
    assert_eq!(ids.len(), 5, "etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok");
    assert!(ids.iter().all(|id| runs(id)), "all programs run");

    victim.kill().await.expect("killed without a chance to clean up");
    gone(&ids, folder).await;
}

#[tokio::test]
async fn a_stopped_cluster_is_gone_at_once() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let folder = cluster.programs().folder().to_owned();
    let ids = cluster.programs().process_ids().await;
    cluster.stop().await;
    assert!(!ids.iter().any(|id| runs(&id.to_string())), "no program of {ids:?} runs");
    assert!(!folder.exists(), "{} is removed", folder.display());
}

#[tokio::test]
async fn a_dropped_cluster_is_removed_in_the_background() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let folder = cluster.programs().folder().display().to_string();
    let ids = cluster.programs().process_ids().await;
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    drop(cluster);
    gone(&ids.iter().map(String::as_str).collect::<Vec<_>>(), &folder).await;
}

/// Waits until the processes have ended and the folder is removed. There is no event for either, so this
/// polls.
async fn gone(ids: &[&str], folder: &str) {
    let going = async {
        while ids.iter().any(|id| runs(id)) || Path::new(folder).exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let in_time = tokio::time::timeout(wait::PATIENCE, going).await.is_ok();
    let left: Vec<_> = ids.iter().filter(|id| runs(id)).collect();
    assert!(in_time, "processes {left:?} still run, or {folder} is still there");
}

/// Returns whether the process runs. A zombie does not.
fn runs(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}
