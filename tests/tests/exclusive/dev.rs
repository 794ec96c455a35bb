//! `mainstay dev` with a control plane of its own: the whole story, and nothing left of it after Ctrl-C.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_tests::report::figure_of_time;
use mainstay_tests::{Terminal, TestCluster, wait};
use tokio::time::Instant;

#[tokio::test]
async fn dev_tells_its_story_and_leaves_nothing_behind() {
    let _turn = TestCluster::turn().await;
    let began = Instant::now();
    let mut dev = Terminal::start(env!("CARGO_BIN_EXE_mainstay-under-test"), &["dev"]);
    let Some(ready) = dev.tells("the cluster is ready").await else { return skip_or_fail(dev).await };
    let kubeconfig = ready.split_once("export KUBECONFIG=").map(|(_, path)| PathBuf::from(path));
    let kubeconfig = kubeconfig.expect("a kubeconfig to look with");
    assert!(kubeconfig.is_file(), "{}", kubeconfig.display());
    let programs = children(dev.id());
    // etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok, and who removes the folder after a kill.
    assert_eq!(programs.len(), 6, "{programs:?}");

    for chapter in [
        "the CRD waitdeployments.apps.mainstay.dev is installed",
        "applied WaitDeployment default/hello",
        "default/hello waits for 127.0.0.1:",
        "the prerequisite now listens on 127.0.0.1:",
        "the Deployment was created",
        "default/hello is Ready",
    ] {
        dev.tells(chapter).await.unwrap_or_else(|| panic!("it ended before {chapter:?}: {:#?}", dev.told()));
    }
    let took = began.elapsed();
    figure_of_time("dev.ready", took);

    let interrupted = Instant::now();
    dev.interrupt();
    let (status, errors) = dev.ended().await;
    figure_of_time("dev.stopped", interrupted.elapsed());
    assert!(status.success(), "{status}; {errors}; {:#?}", dev.told());
    // On a busy machine a call may last long enough to be told of; that is no fault of the story.
    let wrong: Vec<_> = errors.lines().filter(|line| !line.contains("handler is slow")).collect();
    assert_eq!(wrong, [""; 0], "nothing went wrong on the way");
    assert!(!programs.iter().any(|id| runs(*id)), "programs of {programs:?} still run");
    assert!(!kubeconfig.exists(), "{} is still there", kubeconfig.display());
}

#[tokio::test]
async fn dev_can_be_interrupted_before_its_cluster_is_ready() {
    let _turn = TestCluster::turn().await;
    let mut dev = Terminal::start(env!("CARGO_BIN_EXE_mainstay-under-test"), &["dev"]);
    dev.tells("starting a control plane").await.expect("its first line");
    let own = dev.id();
    // Interrupted with something to clean up, if there is a control plane here at all.
    let started = async {
        while children(own).is_empty() && runs(own) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(wait::PATIENCE, started).await.expect("it starts its first program");
    if !runs(own) {
        return skip_or_fail(dev).await;
    }
    let programs = children(own);
    dev.interrupt();
    let (status, errors) = dev.ended().await;
    assert_eq!((status.code(), errors.as_str()), (Some(1), "error: interrupted\n"));
    let gone = async {
        while programs.iter().any(|id| runs(*id)) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(wait::PATIENCE, gone).await.expect("its programs end with it");
}

/// Where there is no control plane, and no Go to build one, `dev` says so.
async fn skip_or_fail(mut dev: Terminal) {
    let (status, errors) = dev.ended().await;
    let unavailable = errors.contains("no control plane here");
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(unavailable && !ci, "{status}: {errors}{:#?}", dev.told());
    drop(writeln!(std::io::stderr(), "skipped: {errors}"));
}

/// The numbers of the processes whose parent this one is.
fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc");
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| stat(*id).is_some_and(|(_, its_parent)| its_parent == parent)).collect()
}

/// Whether the process runs; one that ended and waits for its parent's attention does not.
fn runs(id: u32) -> bool {
    stat(id).is_some_and(|(state, _)| state != "Z")
}

/// State and parent of a process, as long as there is one of this number.
fn stat(id: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(id.to_string()).join("stat")).ok()?;
    let mut fields = stat.rsplit(") ").next()?.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
