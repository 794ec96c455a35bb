//! The life of a WaitDeployment: waiting, opened, rolled out, at rest, deleted.

use std::net::Ipv4Addr;
use std::time::Duration;

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::{image, wait_deployment, wait_probe, with_image};
use mainstay_tests::process::{get, sample};
use mainstay_tests::report::figure;
use mainstay_tests::sockets::Prerequisite;
use mainstay_tests::{LocalManager, ManagerProcess, TestCluster, wait};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use super::runnables::{give_up, short_lease, take};

/// The period of [`wait_probe`].
const PERIOD: Duration = Duration::from_secs(1);
/// Limit for the creation of the Deployment beyond one period.
const SLACK: Duration = Duration::from_secs(5);

fn waiting_for(name: &str, prerequisite: &Prerequisite, replicas: u32) -> WaitDeployment {
    let changes = json!({"waitProbe": wait_probe(prerequisite.address()), "spec": {"replicas": replicas}});
    wait_deployment(name, &changes)
}

fn condition<'a>(object: &'a WaitDeployment, type_: &str) -> (&'a str, &'a str) {
    let condition = object.condition(type_);
    condition
        .map_or(("", ""), |condition| (&condition.status, condition.reason.as_deref().unwrap_or_default()))
}

fn is_ready(object: &WaitDeployment) -> bool {
    condition(object, "Ready").0 == "True"
}

/// Returns the counters of a status as the server stores them, which the mirror must copy.
fn counters(object: &impl serde::Serialize) -> Value {
    let object = serde_json::to_value(object).expect("JSON");
    let of = |name: &str| object["status"][name].as_i64().unwrap_or_default();
    json!({
        "replicas": of("replicas"),
        "updatedReplicas": of("updatedReplicas"),
        "readyReplicas": of("readyReplicas"),
        "availableReplicas": of("availableReplicas"),
        "unavailableReplicas": of("unavailableReplicas"),
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deployment_is_created_once_its_prerequisite_answers_and_its_status_is_mirrored() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let mut prerequisite = Prerequisite::closed();
    objects.create(&PostParams::default(), &waiting_for("web", &prerequisite, 2)).await.expect("created");

    let waits = |web: &WaitDeployment| condition(web, "Ready") == ("False", "WaitingForDependencies");
    let web = wait::until(&objects, "web", "a status of waiting", |web| {
        waits(web) && web.status.as_ref().is_some_and(|status| status.waiting_for.is_some())
    })
    .await;
    let status = web.status.expect("a status");
    let waiting_for = status.waiting_for.expect("a dependency");
    assert!(waiting_for.contains(&prerequisite.address().to_string()), "{waiting_for}");
    assert_eq!(status.observed_generation, web.metadata.generation, "the gate has seen this generation");
    assert!(deployments.get_opt("web").await.expect("read").is_none(), "no Deployment while it waits");

    let up = Instant::now();
    prerequisite.come_up();
    let deployment = wait::until(&deployments, "web", "the Deployment", |_| true).await;
    let took = up.elapsed();
    figure("gate.open_after_prerequisite", took.as_secs_f64(), "s");
    assert!(took < PERIOD + SLACK, "created after {took:?}");
    let owner = &deployment.owner_references()[0];
    assert_eq!((owner.kind.as_str(), owner.controller), ("WaitDeployment", Some(true)));

    cluster.kubectl(&["wait", "--for=condition=Available", "--timeout=60s", "waitdeployment/web"]).await;
    let web = wait::until(&objects, "web", "Ready", is_ready).await;
    let deployment = deployments.get("web").await.expect("the Deployment");
    assert_eq!(counters(&web), counters(&deployment), "the mirror copies the counters of the Deployment");
    assert_eq!(counters(&web)["availableReplicas"], 2);
    let reference = web.status.and_then(|status| status.deployment).expect("a reference to the Deployment");
    assert_eq!(Some(reference.uid), deployment.uid());
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prerequisite_that_stays_down_is_probed_with_the_same_period_for_ever() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let objects = cluster.api::<WaitDeployment>();
    let prerequisite = Prerequisite::closed();
    objects.create(&PostParams::default(), &waiting_for("web", &prerequisite, 1)).await.expect("created");
    wait::until(&objects, "web", "a status of waiting", |web| condition(web, "Ready").0 == "False").await;

    // Two windows of observation. An exponential backoff would leave the second one nearly empty. A unit test
    // of the schedule covers two hours of failures with a paused clock.
    let attempts = async || {
        let (status, text) = get(manager.metrics(), "/metrics").await;
        assert_eq!(status, 200);
        let lines = text.lines().filter(|line| line.starts_with("mainstay_waitdeployment_probe_total"));
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum::<f64>()
    };
    let mut counts = vec![attempts().await];
    for _ in 0..2 {
        tokio::time::sleep(6 * PERIOD).await;
        counts.push(attempts().await);
    }
    let (early, late) = (counts[1] - counts[0], counts[2] - counts[1]);
    figure("gate.probes_in_six_periods", late, "probes");
    assert!(early >= 3.0 && (3.0..=9.0).contains(&late), "six periods each: {early}, then {late} probes");
    let metrics = manager.metrics_text().await;
    let errors =
        sample(&metrics, r#"controller_runtime_reconcile_errors_total{controller="wait-deployment"}"#);
    assert_eq!(errors, Some(0.0), "not ready is not an error");
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deleted_waitdeployment_is_deleted_with_its_deployment_and_pods() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let prerequisite = Prerequisite::open();
    objects.create(&PostParams::default(), &waiting_for("web", &prerequisite, 2)).await.expect("created");
    wait::until(&objects, "web", "Ready", is_ready).await;

    objects.delete("web", &DeleteParams::background()).await.expect("deleted");
    wait::until_gone(&deployments, "web").await;
    let pods = ListParams::default().labels("app=web");
    wait::until_all(&cluster.api::<Pod>(), &pods, "no Pods", <[Pod]>::is_empty).await;
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_template_rolls_out_and_leaves_a_users_restart_alone() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let mut prerequisite = Prerequisite::open();
    objects.create(&PostParams::default(), &waiting_for("web", &prerequisite, 2)).await.expect("created");
    wait::until(&objects, "web", "Ready", is_ready).await;
    // From here on an outage of the prerequisite has no effect.
    prerequisite.go_down().await;

    cluster.kubectl(&["rollout", "restart", "deployment/web"]).await;
    cluster.kubectl(&["rollout", "status", "--timeout=60s", "deployment/web"]).await;
    let restarted = deployments.get("web").await.expect("the Deployment");
    let restarted_at = restart_of(&restarted).expect("kubectl's annotation");

    let edit = Patch::Merge(with_image(2));
    let edited = objects.patch("web", &PatchParams::default(), &edit).await.expect("edited");
    let rolled = wait::until(&deployments, "web", "the new image everywhere", |web| {
        let found = web.spec.template.spec.as_ref().and_then(|spec| spec.containers.first()?.image.clone());
        let status = web.status.clone().unwrap_or_default();
        found == Some(image(2))
            && status.observed_generation == web.metadata.generation
            && status.updated_replicas == Some(2)
            && status.available_replicas == Some(2)
            && status.replicas == Some(2)
    })
    .await;
    assert_eq!(restart_of(&rolled), Some(restarted_at), "the user's restart is kept");
    let sets = cluster.api::<ReplicaSet>().list(&ListParams::default()).await.expect("listed").items;
    assert_eq!(sets.len(), 3, "the first, the restarted and the edited template, and no other");

    let generation = edited.metadata.generation;
    wait::until(&objects, "web", "the mirror to show the rollout", |web| {
        let status = web.status.clone().unwrap_or_default();
        is_ready(web) && status.observed_generation == generation && counters(web) == counters(&rolled)
    })
    .await;
    cluster.kubectl(&["wait", "--for=condition=Available", "--timeout=60s", "waitdeployment/web"]).await;

    // At rest there are no writes: both objects keep their versions over a window in which a write loop would
    // show. The last status of the Deployment controller may come late, so the first window may have writes.
    let versions = async || {
        let deployment = deployments.get("web").await.expect("the Deployment").resource_version();
        (objects.get("web").await.expect("the object").resource_version(), deployment)
    };
    let mut windows = Vec::new();
    for _ in 0..5 {
        let before = versions().await;
        tokio::time::sleep(3 * PERIOD).await;
        windows.push((before, versions().await));
        if windows.last().is_some_and(|(before, after)| before == after) {
            break;
        }
    }
    assert!(
        windows.last().is_some_and(|(before, after)| before == after),
        "zero writes at rest: {windows:?}"
    );
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_labels_and_annotations_are_not_passed_on() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let changes = json!({"waitDeployment": {"notPassedOn": ["team", "example.com/*"]}});
    let manager = LocalManager::start(&cluster, &identity, &changes).await;
    let marks = json!({"team": "shop", "example.com/owner": "anna", "tier": "web"});
    let object = wait_deployment("web", &json!({"metadata": {"labels": marks, "annotations": marks}}));
    cluster.api::<WaitDeployment>().create(&PostParams::default(), &object).await.expect("created");
    let web = wait::until(&cluster.api::<Deployment>(), "web", "the Deployment", |_| true).await;
    assert_eq!(json!(web.labels()), json!({"tier": "web"}));
    assert!(web.annotations().contains_key("tier") && !web.annotations().contains_key("team"));
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_leader_counts_no_gates() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &short_lease("Campaign")).await;
    let web: WaitDeployment = wait_deployment("web", &json!({}));
    cluster.api().create(&PostParams::default(), &web).await.expect("created");
    let counts = async |count: f64| {
        let open = r#"mainstay_waitdeployment_gates{state="open"}"#;
        let is_counted = async || sample(&manager.metrics_text().await, open) == Some(count);
        wait::until_so(&format!("{count} open gates"), is_counted).await;
    };
    counts(1.0).await;
    let leases = cluster.api();
    take(&leases).await;
    counts(0.0).await;
    give_up(&leases).await;
    counts(1.0).await;
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn successes_counted_by_a_killed_manager_do_not_count_for_the_next() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    // Without a Lease, so that the next manager starts at once. With a single worker, an object created later
    // is reconciled later.
    let changes = json!({"leaderElection": {"enabled": false}, "controllers": {"*": {"workers": 1}}});
    let binary = env!("CARGO_BIN_EXE_mainstay-under-test");
    let start = |name: &str| ManagerProcess::start(binary, &cluster, &identity, name, &changes);
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("bound");
    let address = listener.local_addr().expect("an address");
    let thrice = json!({
        "name": "a", "httpGet": {"host": address.ip(), "port": address.port()}, "periodSeconds": 1,
        "successThreshold": 3,
    });
    let web = json!({"spec": {"replicas": 0, "waitFor": {"dependencies": [thrice]}}});
    objects.create(&PostParams::default(), &wait_deployment("web", &web)).await.expect("created");

    // The third request shows that two successes were counted.
    let mut killed = start("killed");
    for _ in 0..2 {
        answer(asked(&listener).await).await;
    }
    let _third = asked(&listener).await;
    killed.kill();
    assert!(!killed.ended().await.success());

    let mut next = start("next");
    for _ in 0..2 {
        answer(asked(&listener).await).await;
    }
    let third = asked(&listener).await;
    let later = wait_deployment("later", &json!({"spec": {"replicas": 0}}));
    objects.create(&PostParams::default(), &later).await.expect("created");
    wait::until(&deployments, "later", "the Deployment without dependencies", |_| true).await;
    assert!(
        deployments.get_opt("web").await.expect("read").is_none(),
        "two successes of this manager are too few"
    );
    answer(third).await;
    // Order does not matter: `answer_all` never ends.
    tokio::select! {
        () = answer_all(&listener) => {}
        _ = wait::until(&deployments, "web", "three successes of this manager", |_| true) => {}
    }
    next.terminate();
    assert!(next.ended().await.success(), "{:#?}", next.log());
}

/// Returns the next connection with a complete request, unanswered.
async fn asked(listener: &TcpListener) -> TcpStream {
    let asked = async {
        loop {
            let (mut stream, _) = listener.accept().await.expect("accepted");
            let mut request = Vec::new();
            while let Ok(byte) = stream.read_u8().await {
                request.push(byte);
                if request.ends_with(b"\r\n\r\n") {
                    return stream;
                }
            }
        }
    };
    timeout(wait::PATIENCE, asked).await.expect("a request")
}

async fn answer(mut stream: TcpStream) {
    // A client that has timed out is gone, and sends its request again.
    drop(stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").await);
}

async fn answer_all(listener: &TcpListener) {
    loop {
        answer(asked(listener).await).await;
    }
}

fn restart_of(deployment: &Deployment) -> Option<String> {
    let template = deployment.spec.template.metadata.as_ref()?;
    template.annotations.as_ref()?.get("kubectl.kubernetes.io/restartedAt").cloned()
}
