//! A configuration file that changes while managers run with it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, PostParams};
use mainstay::cache::Scope;
use mainstay::config::{ConfigSource, Overrides};
use mainstay::controller::Controller;
use mainstay::key::NamespacedName;
use mainstay::manager::ManagerOptions;
use mainstay::reconcile::{Action, Context, Outcome, Reconciler};
use mainstay_controllers::config_schema;
use mainstay_tests::manager::configuration_of;
use mainstay_tests::process::sample;
use mainstay_tests::wait::{self, PATIENCE, until_so};
use mainstay_tests::{LocalManager, ManagerProcess, TestCluster};
use serde_json::{Value, json};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

/// Counts of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Count {
    at_work: usize,
    begun: usize,
    ended: usize,
    /// Runs dropped before their end.
    cancelled: usize,
}

/// A reconciler whose runs end when the test adds a permit.
struct Slow {
    count: watch::Sender<Count>,
    may_end: Arc<Semaphore>,
}

/// Counts one run when it is dropped, at its end or before.
struct Run<'a> {
    count: &'a watch::Sender<Count>,
    ended: bool,
}

impl Reconciler for Slow {
    async fn reconcile(&self, _: &NamespacedName, _: &Context) -> Outcome {
        self.count.send_modify(|count| (count.at_work, count.begun) = (count.at_work + 1, count.begun + 1));
        let mut run = Run { count: &self.count, ended: false };
        self.may_end.acquire().await.expect("an open semaphore").forget();
        run.ended = true;
        Ok(Action::Done)
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.count.send_modify(|count| {
            count.at_work -= 1;
            let kind = if self.ended { &mut count.ended } else { &mut count.cancelled };
            *kind += 1;
        });
    }
}

async fn until(
    counts: &mut watch::Receiver<Count>,
    expected: &str,
    agrees: impl FnMut(&Count) -> bool,
) -> Count {
    let counted = timeout(PATIENCE, counts.wait_for(agrees)).await.map(|count| *count.expect("a sender"));
    counted.unwrap_or_else(|_| panic!("waited {PATIENCE:?} for {expected}: {:?}", counts.borrow()))
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_added_within_seconds_and_removed_without_cancelling_a_run() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "watch"]}]);
    let identity = cluster.install_base_with(&rules).await;
    for number in 0..20 {
        let map = json!({"metadata": {"name": format!("map-{number}"), "labels": {"of": "reload"}}});
        let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
        cluster.api().create(&PostParams::default(), &map).await.expect("created");
    }
    let file = cluster.scratch("manager.yaml");
    let workers = |number: usize| json!({"controllers": {"*": {"workers": number}}});
    let save = |number| {
        fs::write(&file, configuration_of(&cluster, &workers(number)).to_string()).expect("saved");
        Instant::now()
    };
    save(4);
    let (count, may_end) = (watch::Sender::default(), Arc::new(Semaphore::new(0)));
    let mut counts = count.subscribe();
    let slow = Slow { count, may_end: Arc::clone(&may_end) };
    let source = Some(ConfigSource::new(&file, Overrides::default(), config_schema()));
    let options = ManagerOptions { signals: false, source, ..ManagerOptions::replica("mainstay") };
    let manager = LocalManager::start_as(options, &cluster, &identity, &workers(4), |manager| {
        let maps = manager.store::<ConfigMap>(Scope::all().labels("of=reload".parse().expect("a selector")));
        let controller = Controller::new("slow").reconciles(&maps).reconciler(slow);
        drop(manager.register(controller).expect("registered"));
    })
    .await;
    until(&mut counts, "4 at work", |count| count.at_work == 4).await;

    let saved_at = save(16);
    let grown = until(&mut counts, "16 at work", |count| count.at_work == 16).await;
    let took = saved_at.elapsed();
    assert_eq!((grown.begun, grown.ended, grown.cancelled), (16, 0, 0), "the 4 runs go on");
    // Two seconds on an idle machine.
    assert!(took < Duration::from_secs(10), "16 workers {took:?} after the save");

    save(2);
    let mut status = manager.manager.reload_status();
    let shrunk = status.wait_for(|status| status.accepted.configuration.controllers.every.workers == 2);
    drop(timeout(PATIENCE, shrunk).await.expect("applied").expect("a sender"));
    let gauge = r#"controller_runtime_max_concurrent_reconciles{controller="slow"}"#;
    until_so("2 workers", async || sample(&manager.metrics_text().await, gauge) == Some(2.0)).await;
    // The semaphore serves runs in the order in which they began to wait, so the sixteen runs end first.
    may_end.add_permits(16);
    let left = until(&mut counts, "2 at work", |count| count.ended == 16 && count.begun == 18).await;
    assert_eq!(
        (left.at_work, left.cancelled),
        (2, 0),
        "all 16 runs have ended uncancelled, and two are running"
    );
    may_end.add_permits(1);
    let next = until(&mut counts, "the next to begin", |count| count.begun == 19).await;
    assert_eq!(
        (next.at_work, next.ended, next.cancelled),
        (2, 17, 0),
        "each end admits one run from here on"
    );
    may_end.add_permits(100);
    let all = until(&mut counts, "the rest", |count| count.ended == 20).await;
    assert_eq!((all.begun, all.cancelled), (20, 0));
    manager.stop().await.expect("stopped in order");
}

/// Mounts a version of the file as the kubelet mounts a `ConfigMap`.
fn mount(folder: &Path, version: usize, configuration: &str) {
    let name = format!("..version_{version}");
    fs::create_dir_all(folder.join(&name)).expect("a folder");
    fs::write(folder.join(&name).join("manager.yaml"), configuration).expect("written");
    symlink(&name, folder.join("..data_tmp")).expect("a link");
    fs::rename(folder.join("..data_tmp"), folder.join("..data")).expect("swapped");
    if version > 0 {
        fs::remove_dir_all(folder.join(format!("..version_{}", version - 1))).expect("removed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_apply_a_mounted_config_map_and_report_an_invalid_one() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let folder = cluster.scratch("mounted");
    fs::create_dir(&folder).expect("a folder");
    let version = |changes: Value| configuration_of(&cluster, &changes).to_string();
    mount(&folder, 0, &version(json!({})));
    symlink("..data/manager.yaml", folder.join("manager.yaml")).expect("a link");
    let namespace = cluster.namespace();
    let start = |pod| {
        let environment = [("POD_NAME", pod), ("POD_NAMESPACE", namespace), ("POD_UID", "0f3a")];
        let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
        ManagerProcess::start_from(binary, &identity, &folder, &environment)
    };
    let leader = start("first");
    leader.leads().await;
    let standby = start("second");
    let gauge = r#"controller_runtime_max_concurrent_reconciles{controller="wait-deployment"}"#;
    let shows = async |process: &ManagerProcess, series: &str, value: f64| {
        let line = format!("{series} {value}");
        until_so(&line, async || sample(&process.metrics_text().await, series) == Some(value)).await;
    };

    let changed = json!({"controllers": {"wait-deployment": {"workers": 9}}, "cache": {"resync": "1h"}});
    shows(&standby, gauge, 4.0).await;
    mount(&folder, 1, &version(changed));
    for process in [&leader, &standby] {
        let line = process.logged("that it is applied", |line| line["msg"] == "configuration applied").await;
        assert_eq!(line["changed"], r#"controllers["wait-deployment"].workers 4 -> 9"#, "{line}");
        assert_eq!(line["restart"], "cache.resync 10h -> 1h", "{line}");
        shows(process, gauge, 9.0).await;
        shows(process, "mainstay_config_restart_needed", 1.0).await;
    }

    mount(&folder, 2, &version(json!({"controllers": {"wait-deployment": {"workers": 0}}})));
    for (process, pod) in [(&leader, "first"), (&standby, "second")] {
        let refused = "configuration refused; the one in force stays";
        let line = process.logged("that it is refused", |line| line["msg"] == refused).await;
        let problem = r#"controllers["wait-deployment"].workers: 0; expected a whole number from 1 to 1000"#;
        assert!(line["error"].as_str().is_some_and(|error| error.ends_with(problem)), "{line}");
        shows(process, "mainstay_config_last_reload_successful", 0.0).await;
        shows(process, r#"mainstay_config_reloads_total{result="refused"}"#, 1.0).await;
        shows(process, gauge, 9.0).await;
        let about = ListParams::default().fields(&format!("regarding.name={pod},reason=ConfigRefused"));
        let events = wait::until_all(&cluster.api::<Event>(), &about, "an Event", |all| all.len() == 1).await;
        assert!(events[0].note.as_ref().is_some_and(|note| note.ends_with(problem)), "{events:?}");
        assert_eq!(events[0].regarding.as_ref().and_then(|pod| pod.uid.as_deref()), Some("0f3a"));
    }

    mount(&folder, 3, &version(json!({"controllers": {"wait-deployment": {"workers": 3}}})));
    shows(&leader, gauge, 3.0).await;
    shows(&standby, gauge, 3.0).await;
    shows(&leader, "mainstay_config_last_reload_successful", 1.0).await;
    leader.terminate();
    standby.leads().await;
    shows(&standby, gauge, 3.0).await;
}
