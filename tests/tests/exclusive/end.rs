//! Nothing of a cluster remains, however it ends.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use mainstay_tests::{TestCluster, wait};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Set in the copy of this binary that is to be killed.
const VICTIM: &str = "MAINSTAY_TESTS_VICTIM";

/// What that copy says where there is no control plane; in CI it fails instead.
const NO_VICTIM: &str = "no victim";

/// Prints what identifies its cluster and then waits to be killed. Does nothing in an ordinary run, where the test
/// below is the one that counts.
#[tokio::test]
async fn victim() {
    if std::env::var_os(VICTIM).is_none() {
        return;
    }
    // Past the test runner's capture.
    let tell = |line: &str| writeln!(std::io::stderr(), "{line}").expect("our parent reads");
    let Some(cluster) = TestCluster::exclusive().await else { return tell(NO_VICTIM) };
    let folder = cluster.control_plane().folder().display().to_string();
    let ids = cluster.control_plane().process_ids().await;
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    tell(&format!("victim {folder} {}", ids.join(" ")));
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
    let told = loop {
        let line =
            lines.next_line().await.expect("readable").expect("the victim told its cluster before it ended");
        if let Some(told) = line.strip_prefix("victim ") {
            break told.to_owned();
        }
        if line == NO_VICTIM {
            return;
        }
    };
    let (folder, ids) = told.split_once(' ').expect("a folder and numbers");
    let ids: Vec<&str> = ids.split(' ').collect();
    assert_eq!(ids.len(), 5, "etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok");
    assert!(ids.iter().all(|id| runs(id)), "all programs run");

    victim.kill().await.expect("killed without a chance to clean up");
    gone(&ids, folder).await;
}

#[tokio::test]
async fn a_stopped_cluster_is_gone_at_once() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let folder = cluster.control_plane().folder().to_owned();
    let ids = cluster.control_plane().process_ids().await;
    cluster.stop().await;
    assert!(!ids.iter().any(|id| runs(&id.to_string())), "no program of {ids:?} runs");
    assert!(!folder.exists(), "{} is removed", folder.display());
}

#[tokio::test]
async fn a_dropped_cluster_goes_by_itself() {
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let folder = cluster.control_plane().folder().display().to_string();
    let ids = cluster.control_plane().process_ids().await;
    let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
    drop(cluster);
    gone(&ids.iter().map(String::as_str).collect::<Vec<_>>(), &folder).await;
}

/// Waits until neither the processes nor the folder are there; they end by themselves, and nobody could tell us.
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

/// Whether the process runs; one that ended and waits for its parent's attention does not.
fn runs(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}
