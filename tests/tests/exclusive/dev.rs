//! `mainstay dev` with a server of its own: each step is printed, and Ctrl-C leaves neither process nor file.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_tests::report::figure_of_time;
use mainstay_tests::{Terminal, TestCluster, wait};
use tokio::time::Instant;

#[tokio::test]
async fn dev_reports_each_step_and_leaves_nothing_behind() {
    let _turn = TestCluster::turn().await;
    let dev = Terminal::start(env!("CARGO_BIN_EXE_mainstay-under-test"), &["dev", "--server", "real"]);
    // etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kwok, and the process that removes the
    // folder after a kill.
    run_to_the_end(dev, 6, "dev.real").await;
}

#[tokio::test]
async fn dev_needs_no_program_beside_it() {
    let _turn = TestCluster::turn().await;
    let dev = Terminal::start(env!("CARGO_BIN_EXE_mainstay-under-test"), &["dev"]);
    run_to_the_end(dev, 0, "dev").await;
}

/// Checks all steps of `dev`, with this number of child processes, and interrupts it.
async fn run_to_the_end(mut dev: Terminal, processes: usize, figure: &str) {
    let began = Instant::now();
    let Some(ready) = dev.line_with("the cluster is ready").await else { return skip_or_fail(dev).await };
    let kubeconfig = ready.split_once("export KUBECONFIG=").map(|(_, path)| PathBuf::from(path));
    let kubeconfig = kubeconfig.expect("the path of a kubeconfig");
    assert!(kubeconfig.is_file(), "{}", kubeconfig.display());
    let programs = children(dev.id());
    assert_eq!(programs.len(), processes, "{programs:?}");

    for step in [
        "the CRD waitdeployments.apps.mainstay.dev is installed",
        "applied WaitDeployment default/hello",
        "WaitDeployment default/hello: Ready=False",
        "the prerequisite now listens on 127.0.0.1:",
        "Deployment default/hello: created for WaitDeployment hello",
        "WaitDeployment default/hello: Ready=True",
    ] {
        let printed = dev.line_with(step).await;
        assert!(printed.is_some(), "dev ended before {step:?}: {:#?}", dev.printed());
    }
    figure_of_time(&format!("{figure}.ready"), began.elapsed());

    let interrupted = Instant::now();
    dev.interrupt();
    let (status, errors) = dev.ended().await;
    figure_of_time(&format!("{figure}.stopped"), interrupted.elapsed());
    assert!(status.success(), "{status}; {errors}; {:#?}", dev.printed());
    assert_eq!(problems(&errors), [""; 0], "standard error holds errors");
    assert!(!programs.iter().any(|id| runs(*id)), "programs of {programs:?} still run");
    assert!(!kubeconfig.exists(), "{} is still there", kubeconfig.display());
}

#[tokio::test]
async fn dev_can_be_interrupted_before_its_cluster_is_ready() {
    let _turn = TestCluster::turn().await;
    let mut dev = Terminal::start(env!("CARGO_BIN_EXE_mainstay-under-test"), &["dev", "--server", "real"]);
    dev.line_with("starting a control plane").await.expect("the first line of dev");
    let own = dev.id();
    // The interrupt comes after the first program has started, so that there is something to clean up.
    let started = async {
        while children(own).is_empty() && runs(own) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(wait::PATIENCE, started).await.expect("dev starts its first program");
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
    tokio::time::timeout(wait::PATIENCE, gone).await.expect("the programs end with dev");
}

/// Returns the lines of standard error, without a warning that a busy machine may cause.
pub(crate) fn problems(errors: &str) -> Vec<&str> {
    errors.lines().filter(|line| !line.contains("handler is slow")).collect()
}

/// Skips the test if `dev` reports that this machine has neither a control plane nor Go to build one. Fails
/// in CI.
async fn skip_or_fail(mut dev: Terminal) {
    let (status, errors) = dev.ended().await;
    let unavailable = errors.contains("no control plane here");
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    assert!(unavailable && !ci, "{status}: {errors}{:#?}", dev.printed());
    drop(writeln!(std::io::stderr(), "skipped: {errors}"));
}

/// Returns the ids of the child processes of `parent`.
pub(crate) fn children(parent: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").expect("/proc");
    let ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter(|id| stat(*id).is_some_and(|(_, its_parent)| its_parent == parent)).collect()
}

/// Returns whether the process runs. A zombie does not.
pub(crate) fn runs(id: u32) -> bool {
    stat(id).is_some_and(|(state, _)| state != "Z")
}

/// Returns state and parent of a process, or None if no process has this id.
fn stat(id: u32) -> Option<(String, u32)> {
    let stat = std::fs::read_to_string(Path::new("/proc").join(id.to_string()).join("stat")).ok()?;
    let mut fields = stat.rsplit(") ").next()?.split(' ');
    Some((fields.next()?.to_owned(), fields.next()?.parse().ok()?))
}
