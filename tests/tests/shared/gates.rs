//! The gate of a WaitDeployment: the changes it holds back, until when, and its effects on the Deployment.

use futures_util::TryStreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use mainstay::cache::RECONCILE_AT_ANNOTATION;
use mainstay_api::WaitDeployment;
use mainstay_tests::audit::Write;
use mainstay_tests::fixtures::{image, tcp, wait_deployment, with_image};
use mainstay_tests::manifests::Identity;
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::{LocalManager, ManagerProcess, TestCluster, wait};
use rustix::process::Signal;
use serde_json::{Value, json};

/// Prefix of the names of marker objects: once the gate has written one, it has processed earlier requests.
const MARKER: &str = "marker-";

/// Returns a WaitDeployment that waits for TCP prerequisites named `a`, `b` and so on, with other fields of
/// `waitFor`.
fn waiting_for(prerequisites: &[&Prerequisite], others: &Value) -> WaitDeployment {
    let one = |(prerequisite, name): (&&Prerequisite, &str)| {
        let mut dependency = tcp(name, prerequisite.address());
        dependency["failureThreshold"] = 1.into();
        dependency
    };
    let mut wait_for = others.clone();
    wait_for["dependencies"] = prerequisites.iter().zip(["a", "b", "c"]).map(one).collect();
    wait_deployment("web", &json!({"spec": {"replicas": 1, "waitFor": wait_for}}))
}

fn condition_of(object: &WaitDeployment, type_: &str) -> String {
    let condition = object.condition(type_);
    condition.map_or_else(
        || "-".to_owned(),
        |found| format!("{}/{}", found.status, found.reason.as_deref().unwrap_or_default()),
    )
}

fn image_of(deployment: &Deployment) -> Option<&str> {
    deployment.spec.template.spec.as_ref()?.containers.first()?.image.as_deref()
}

fn replicas(deployment: &Deployment) -> Option<i32> {
    deployment.spec.replicas
}

/// Returns the accepted writes of Deployments: the dry runs, or the real ones.
fn of_deployment(writes: &[Write], dry_run: bool) -> Vec<&Write> {
    let of = |write: &&Write| {
        write.resource == "deployments" && write.uri.contains("dryRun=All") == dry_run && write.is_accepted()
    };
    writes.iter().filter(of).collect()
}

/// Returns all writes of the gate with any result, except those of markers.
fn of_gate(cluster: &TestCluster) -> Vec<Write> {
    let by_gate = |write: &Write| {
        write.uri.contains("fieldManager=waitdeployment-gate") && !write.name.starts_with(MARKER)
    };
    cluster.writes().into_iter().filter(by_gate).collect()
}

/// Requests a reconcile of an unchanged object, and waits until it is done: a gate with one worker then
/// writes the Deployment of an object created later, without dependencies.
async fn reconcile_again(cluster: &TestCluster, name: &str, time: usize) {
    let annotated = json!({"metadata": {"annotations": {RECONCILE_AT_ANNOTATION: time.to_string()}}});
    let objects = cluster.api::<WaitDeployment>();
    objects.patch(name, &PatchParams::default(), &Patch::Merge(annotated)).await.expect("read");
    let later = format!("{MARKER}{time}");
    let object = wait_deployment(&later, &json!({"spec": {"replicas": 0}}));
    objects.create(&PostParams::default(), &object).await.expect("created");
    let is_through =
        |writes: &[Write]| of_deployment(writes, false).iter().any(|write| write.name == later).then_some(());
    cluster.until_written("the Deployment of the marker", is_through).await;
}

/// Returns every version of `web` after this one, up to the first with an open gate.
async fn until_opened(objects: &Api<WaitDeployment>, since: &WaitDeployment) -> Vec<WaitDeployment> {
    let version = since.resource_version().expect("a version");
    let only = WatchParams::default().fields("metadata.name=web");
    let watching = async {
        let mut events = Box::pin(objects.watch(&only, &version).await.expect("a watch"));
        let mut versions = Vec::new();
        loop {
            match events.try_next().await.expect("a watch") {
                Some(WatchEvent::Modified(web)) => {
                    let is_open = web.status.as_ref().is_some_and(|status| status.gate_opened_time.is_some());
                    versions.push(web);
                    if is_open {
                        return versions;
                    }
                }
                Some(WatchEvent::Bookmark(_)) => {}
                other => panic!("the watch ended: {other:?}"),
            }
        }
    };
    tokio::time::timeout(wait::PATIENCE, watching).await.expect("the gate opens")
}

#[tokio::test(flavor = "multi_thread")]
async fn the_gate_opens_once_all_dependencies_are_ready_and_lists_the_missing_ones() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let (mut first, mut second) = (Prerequisite::closed(), Prerequisite::closed());
    let object = waiting_for(&[&first, &second], &json!({}));
    objects.create(&PostParams::default(), &object).await.expect("created");
    let waits = |text: &'static str| {
        move |web: &WaitDeployment| {
            web.status.as_ref().is_some_and(|status| status.waiting_for.as_deref() == Some(text))
        }
    };
    let web = wait::until(&objects, "web", "both to be missing", waits("a (NotReady) +1")).await;
    assert_eq!(condition_of(&web, "TemplateAccepted"), "True/Accepted", "a dry run while it waits");
    second.come_up();
    wait::until(&objects, "web", "one to be missing", waits("a (NotReady)")).await;
    assert!(deployments.get_opt("web").await.expect("read").is_none());
    first.come_up();
    let web =
        wait::until(&objects, "web", "Ready", |web| condition_of(web, "Ready") == "True/Available").await;
    let status = web.status.expect("a status");
    assert!(status.gate_opened_time.is_some() && status.gate_closed_time.is_none());
    let writes = cluster.writes();
    assert_eq!(of_deployment(&writes, true).len(), 1, "one dry run: {writes:#?}");
    for reason in ["WaitingForDependencies", "DependencyReady", "GateOpened", "DeploymentCreated"] {
        wait::until_so(reason, async || {
            cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).await.contains(reason)
        })
        .await;
    }
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_template_is_reported_while_the_gate_is_closed() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let objects = cluster.api::<WaitDeployment>();
    let mut prerequisite = Prerequisite::closed();
    let mut object = waiting_for(&[&prerequisite], &json!({}));
    object.spec.template.insert("spec".to_owned(), json!({"containers": []}));
    objects.create(&PostParams::default(), &object).await.expect("created");
    let refused = |web: &WaitDeployment| condition_of(web, "TemplateAccepted") == "False/Invalid";
    let web = wait::until(&objects, "web", "its template to be refused", refused).await;
    assert_eq!(condition_of(&web, "Stalled"), "True/TemplateRejected");
    let message = web.condition("Ready").and_then(|ready| ready.message.clone()).unwrap_or_default();
    assert!(message.contains("spec.template.spec.containers"), "{message}");

    objects.patch("web", &PatchParams::default(), &Patch::Merge(with_image(1))).await.expect("edited");
    let accepted = |web: &WaitDeployment| condition_of(web, "TemplateAccepted") == "True/Accepted";
    wait::until(&objects, "web", "its template to be accepted", accepted).await;
    prerequisite.come_up();
    wait::until(&objects, "web", "Ready", |web| condition_of(web, "Ready") == "True/Available").await;
    let tried = cluster.writes().iter().filter(|write| write.uri.contains("dryRun=All")).count();
    assert_eq!(tried, 2, "one dry run per template");
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_template_is_held_back_while_other_changes_are_applied() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let identity = cluster.install_base().await;
    let one_worker = json!({"controllers": {"*": {"workers": 1}}});
    let manager = LocalManager::start(&cluster, &identity, &one_worker).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let mut prerequisite = Prerequisite::open();
    let object = waiting_for(&[&prerequisite], &json!({"gates": ["Create", "Update"]}));
    objects.create(&PostParams::default(), &object).await.expect("created");
    wait::until(&objects, "web", "Ready", |web| condition_of(web, "Ready") == "True/Available").await;
    cluster.kubectl(&["rollout", "restart", "deployment/web"]).await;

    prerequisite.go_down().await;
    let lost = |web: &WaitDeployment| condition_of(web, "DependenciesReady") == "False/Lost";
    wait::until(&objects, "web", "the loss to be reported", lost).await;
    let tried = of_deployment(&cluster.writes(), true).len();
    let mut edit = with_image(2);
    edit["spec"]["replicas"] = 2.into();
    objects.patch("web", &PatchParams::default(), &Patch::Merge(&edit)).await.expect("edited");
    let held = |web: &WaitDeployment| condition_of(web, "UpdateHeld") == "True/TemplateHeld";
    let web = wait::until(&objects, "web", "the update to be held", held).await;
    assert_eq!(condition_of(&web, "Ready"), "False/WaitingForDependencies");
    let web = wait::until(&deployments, "web", "its replicas", |web| replicas(web) == Some(2)).await;
    assert_eq!(image_of(&web), Some(image(1).as_str()), "the old template keeps running");
    let restarted = |web: &Deployment| {
        let annotations = web.spec.template.metadata.as_ref().and_then(|meta| meta.annotations.clone());
        annotations.unwrap_or_default().contains_key("kubectl.kubernetes.io/restartedAt")
    };
    assert!(restarted(&web), "a user's restart is kept");
    // The first reconcile finishes the effects of the edit.
    reconcile_again(&cluster, "web", 0).await;
    let before = of_gate(&cluster);
    assert_eq!(of_deployment(&before, true).len(), tried + 1, "one dry run of the new template");
    // Each further reconcile has the same result, without a write.
    for time in 1..4 {
        reconcile_again(&cluster, "web", time).await;
    }
    let after = of_gate(&cluster);
    assert_eq!(after.len(), before.len(), "writes without a change: {:#?}", &after[before.len()..]);

    prerequisite.come_up();
    let new = |web: &Deployment| image_of(web) == Some(image(2).as_str());
    let web = wait::until(&deployments, "web", "the new template", new).await;
    assert!(restarted(&web), "the restart is still kept");
    let ready = |web: &WaitDeployment| condition_of(web, "Ready") == "True/Available";
    let web = wait::until(&objects, "web", "Ready", ready).await;
    assert_eq!(condition_of(&web, "UpdateHeld"), "-", "removed once no change is held");
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_replicas_wait_and_a_lost_dependency_scales_them_to_zero() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    // One of several targets is lost, so the outage guard stays off.
    let (mut prerequisite, steady) = (Prerequisite::closed(), Prerequisite::open());
    let others = json!({"gates": ["ScaleFromZero"], "onLoss": "ScaleToZero", "lossGraceSeconds": 1});
    let object = waiting_for(&[&prerequisite, &steady, &steady], &others);
    objects.create(&PostParams::default(), &object).await.expect("created");
    let held = |web: &WaitDeployment| condition_of(web, "UpdateHeld") == "True/ReplicasHeld";
    wait::until(&objects, "web", "its replicas to be held", held).await;
    let empty = |web: &Deployment| replicas(web) == Some(0);
    wait::until(&deployments, "web", "a Deployment without replicas", empty).await;
    prerequisite.come_up();
    wait::until(&deployments, "web", "its replicas", |web| replicas(web) == Some(1)).await;
    wait::until(&objects, "web", "Ready", |web| condition_of(web, "Ready") == "True/Available").await;

    prerequisite.go_down().await;
    let scaled = |web: &WaitDeployment| condition_of(web, "Ready") == "False/ScaledToZero";
    wait::until(&objects, "web", "the replicas to be scaled to zero", scaled).await;
    wait::until(&deployments, "web", "no replicas", empty).await;
    prerequisite.come_up();
    wait::until(&deployments, "web", "its replicas back", |web| replicas(web) == Some(1)).await;
    wait::until(&objects, "web", "Ready", |web| condition_of(web, "Ready") == "True/Available").await;
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_outlasts_a_restart_of_the_manager() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let (first, mut second) = (Prerequisite::closed(), Prerequisite::closed());
    let objects = cluster.api::<WaitDeployment>();
    let times = |web: &WaitDeployment| {
        let status = web.status.clone().unwrap_or_default();
        (status.gate_closed_time, status.deadline_time)
    };
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let object = waiting_for(&[&first, &second], &json!({"deadlineSeconds": 3600}));
    objects.create(&PostParams::default(), &object).await.expect("created");
    let waits = |short: &'static str| {
        move |web: &WaitDeployment| {
            web.status.as_ref().is_some_and(|status| status.waiting_for.as_deref() == Some(short))
        }
    };
    let web = wait::until(&objects, "web", "both to be missing", waits("a (NotReady) +1")).await;
    let initial = times(&web);
    assert!(initial.0.is_some() && initial.1.is_some(), "{initial:?}");
    manager.stop().await.expect("stopped in order");

    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    second.come_up();
    let web = wait::until(&objects, "web", "the second manager to report", waits("a (NotReady)")).await;
    assert_eq!(times(&web), initial, "counted from the same closing");
    let tried = of_deployment(&cluster.writes(), true).len();
    assert_eq!(tried, 1, "the second manager repeats no dry run");

    // Counted from that closing time the deadline is over, or will be in a moment.
    let sooner = json!({"deadlineSeconds": 1, "onDeadline": "Proceed"});
    let sooner = Patch::Merge(json!({"spec": {"waitFor": sooner}}));
    let edited = objects.patch("web", &PatchParams::default(), &sooner).await.expect("edited");
    let versions = until_opened(&objects, &edited).await;
    let closed: Vec<_> = versions.iter().filter_map(|web| times(web).0).collect();
    assert!(
        closed.iter().all(|at| Some(at) == initial.0.as_ref()),
        "{closed:?}, the first manager wrote {initial:?}"
    );
    wait::until(&objects, "web", "Ready", |web| condition_of(web, "Ready") == "True/Available").await;
    let writes = cluster.writes();
    let created: Vec<_> =
        of_deployment(&writes, false).into_iter().filter(|write| write.code == 201).collect();
    assert_eq!(created.len(), 1, "{created:#?}");
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_with_proceed_opens_the_gate() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let identity = cluster.install_base().await;
    let prerequisite = Prerequisite::closed();
    let objects = cluster.api::<WaitDeployment>();
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let others = json!({"deadlineSeconds": 2, "onDeadline": "Proceed"});
    let object = waiting_for(&[&prerequisite], &others);
    let made = objects.create(&PostParams::default(), &object).await.expect("created");
    // The deadline is in the status for two seconds only.
    let mut versions = until_opened(&objects, &made).await;
    let deadline = versions.iter().find_map(|web| web.status.as_ref()?.deadline_time.clone());
    let deadline = deadline.expect("a deadline while the gate was closed");
    let created = cluster.api::<Deployment>().get("web").await.expect("the Deployment");
    let at = created.creation_timestamp().expect("a creation time");
    assert!(at.0.as_second() >= deadline.0.as_second(), "made at {at:?}, before {deadline:?}");
    let opened = versions.pop().and_then(|web| web.status).expect("a status");
    assert_eq!(opened.deadline_time, None, "removed once the gate is open");
    let reasons = async || cluster.kubectl(&["get", "events", "-o", "jsonpath={.items[*].reason}"]).await;
    wait::until_so("the Event", async || reasons().await.contains("ProceededAfterDeadline")).await;
    assert!(!reasons().await.contains("GateOpened"), "the dependencies were never ready");
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missed_deadline_is_reported_and_a_late_success_still_opens() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let objects = cluster.api::<WaitDeployment>();
    let mut prerequisite = Prerequisite::closed();
    let object = waiting_for(&[&prerequisite], &json!({"deadlineSeconds": 1}));
    objects.create(&PostParams::default(), &object).await.expect("created");
    let late = |web: &WaitDeployment| condition_of(web, "Stalled") == "True/DeadlineExceeded";
    wait::until(&objects, "web", "the deadline to be over", late).await;
    prerequisite.come_up();
    wait::until(&objects, "web", "Ready", |web| condition_of(web, "Ready") == "True/Available").await;
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_deleted_by_hand_is_created_again_once_the_dependencies_are_ready() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let mut prerequisite = Prerequisite::open();
    let object = waiting_for(&[&prerequisite], &json!({}));
    objects.create(&PostParams::default(), &object).await.expect("created");
    wait::until(&objects, "web", "Ready", |web| condition_of(web, "Ready") == "True/Available").await;
    prerequisite.go_down().await;
    let lost = |web: &WaitDeployment| condition_of(web, "DependenciesReady") == "False/Lost";
    wait::until(&objects, "web", "the loss to be reported", lost).await;
    deployments.delete("web", &DeleteParams::background()).await.expect("deleted");
    let closed = |web: &WaitDeployment| {
        condition_of(web, "Ready") == "False/WaitingForDependencies"
            && web.status.as_ref().is_some_and(|status| status.gate_closed_time.is_some())
    };
    wait::until(&objects, "web", "the gate to be closed again", closed).await;
    assert!(deployments.get_opt("web").await.expect("read").is_none());
    prerequisite.come_up();
    wait::until(&objects, "web", "Ready", |web| condition_of(web, "Ready") == "True/Available").await;
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_killed_between_dry_run_and_creation_leaves_exactly_one_deployment() {
    let Some(cluster) = TestCluster::shared().await else { return };
    cluster.install_base_for(&["mainstay-too"]).await;
    let changes =
        json!({"leaderElection": {"leaseDuration": "5s", "renewDeadline": "3s", "retryPeriod": "1s"}});
    let start = async |user: &'static str| {
        let identity =
            Identity { service_account: user.to_owned(), kubeconfig: cluster.kubeconfig_of(user).await };
        let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
        ManagerProcess::start(binary, &cluster, &identity, user, &changes)
    };
    let leader = start("mainstay").await;
    leader.logged("became leader", |line| line["msg"] == "became leader").await;
    let standby = start("mainstay-too").await;

    let mut prerequisite = Prerequisite::closed();
    let objects = cluster.api::<WaitDeployment>();
    objects
        .create(&PostParams::default(), &waiting_for(&[&prerequisite], &json!({})))
        .await
        .expect("created");
    let tried = |writes: &[Write]| (!of_deployment(writes, true).is_empty()).then_some(());
    cluster.until_written("the trial of the first leader", tried).await;
    leader.signal(Signal::KILL);
    prerequisite.come_up();
    wait::until(&objects, "web", "Ready", |web| condition_of(web, "Ready") == "True/Available").await;
    let writes = cluster.writes();
    let created: Vec<_> =
        of_deployment(&writes, false).into_iter().filter(|write| write.code == 201).collect();
    assert_eq!(created.len(), 1, "{created:#?}");
    assert_eq!(created[0].user, "mainstay-too");
    drop((leader, standby));
}
