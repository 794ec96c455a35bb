//! Gate and mirror write one status while everything changes around them: no condition is ever lost, nobody fights, and
//! at rest nothing is written.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::report::{figure, long_form};
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::{Value, json};
use tokio::time::Instant;

/// How long everything changes, and what `MAINSTAY_LONG=1` asks for.
const CHURN: Duration = Duration::from_secs(6);
const CHURN_LONG: Duration = Duration::from_mins(1);
/// Between two changes.
const PACE: Duration = Duration::from_millis(60);
/// What the two writers promise to be there once each has written, the gate's first.
const ALWAYS: [&str; 5] = ["Ready", "DependenciesReady", "Reconciling", "Stalled", "Available"];

fn web() -> WaitDeployment {
    serde_json::from_value(json!({
        "metadata": {"name": "web"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "main", "image": "example.invalid/main:0"}]},
            },
        },
    }))
    .expect("a WaitDeployment")
}

fn conditions(object: &WaitDeployment) -> Vec<&str> {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.map(|condition| condition.type_.as_str()).collect()
}

fn is_whole(object: &WaitDeployment) -> bool {
    ALWAYS.iter().all(|type_| conditions(object).contains(type_))
}

/// One change of many kinds, to either object.
async fn change(random: &mut fastrand::Rng, round: usize, cluster: &TestCluster) {
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let image = format!("example.invalid/main:{round}");
    let containers = json!([{"name": "main", "image": image}]);
    let of_object = |patch: Value| async {
        let objects: Api<WaitDeployment> = objects.clone();
        objects.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    };
    let of_deployment = |patch: Value| async {
        let deployments: Api<Deployment> = deployments.clone();
        deployments.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
    };
    let done = match random.u8(..6) {
        0 => of_object(json!({"spec": {"replicas": random.u8(..4)}})).await,
        1 => of_object(json!({"spec": {"template": {"spec": {"containers": containers}}}})).await,
        2 => of_object(json!({"spec": {"paused": random.bool()}})).await,
        3 => of_deployment(json!({"metadata": {"annotations": {"example.com/round": image}}})).await,
        4 => of_deployment(json!({"spec": {"replicas": random.u8(..4)}})).await,
        _ => {
            let restart = json!({"annotations": {"kubectl.kubernetes.io/restartedAt": image}});
            of_deployment(json!({"spec": {"template": {"metadata": restart}}})).await
        }
    };
    done.unwrap_or_else(|error| panic!("round {round}: {error}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_of_one_status_lose_no_condition() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let objects = cluster.api::<WaitDeployment>();
    objects.create(&PostParams::default(), &web()).await.expect("created");
    let whole = wait::until(&objects, "web", "both to have written", is_whole).await;

    let version = whole.metadata.resource_version.expect("a version");
    let only = WatchParams::default().fields("metadata.name=web");
    let mut events = Box::pin(objects.watch(&only, &version).await.expect("a watch"));
    let duration = if long_form() { CHURN_LONG } else { CHURN };
    let (mut random, began) = (fastrand::Rng::with_seed(5), Instant::now());
    let (mut changes, mut seen) = (0_u32, 0_u32);
    let mut pace = tokio::time::interval(PACE);
    while began.elapsed() < duration {
        // Order does not matter: both go on until the time is over.
        tokio::select! {
            _ = pace.tick() => {
                changes += 1;
                change(&mut random, changes as usize, &cluster).await;
            }
            event = events.try_next() => match event.expect("a watch") {
                Some(WatchEvent::Modified(object)) => {
                    seen += 1;
                    assert!(is_whole(&object), "after {changes} changes there is only {:?}", conditions(&object));
                }
                Some(WatchEvent::Bookmark(_)) => {}
                other => panic!("the watch ended: {other:?}"),
            },
        }
    }
    figure("two_writers.changes", f64::from(changes), "changes");
    figure("two_writers.versions_seen", f64::from(seen), "versions");

    objects
        .patch(
            "web",
            &PatchParams::default(),
            &Patch::Merge(json!({"spec": {"paused": false, "replicas": 1}})),
        )
        .await
        .expect("edited");
    let last = wait::until(&objects, "web", "rest", |web| {
        let ready = web.condition("Ready");
        let available = web.condition("Available");
        ready.is_some_and(|ready| {
            ready.status == "True" && ready.observed_generation == web.metadata.generation
        }) && available.is_some_and(|available| available.observed_generation == web.metadata.generation)
            && web
                .status
                .as_ref()
                .is_some_and(|status| status.replicas == Some(1) && status.ready_replicas == Some(1))
    })
    .await;
    assert!(is_whole(&last));
    let status = |write: &mainstay_tests::audit::Write| write.resource == "waitdeployments/status";
    let writes: Vec<_> = cluster.writes().into_iter().filter(status).collect();
    let conflicts = writes.iter().filter(|write| write.code == 409).count();
    figure("two_writers.status_writes", f64::from(u32::try_from(writes.len()).expect("few")), "writes");
    figure("two_writers.conflicts", f64::from(u32::try_from(conflicts).expect("few")), "writes");
    // A write may meet a change that its cache has not seen; a fight would go on by itself. Every change leads to a few
    // versions, and each of them can be met once by each of the two.
    assert!(conflicts <= 2 * changes as usize, "{conflicts} conflicts after {changes} changes");
    let wrong: Vec<_> = writes.iter().filter(|write| !write.is_accepted() && write.code != 409).collect();
    assert!(wrong.is_empty(), "{wrong:?}");

    // The last words of the Deployment controller may still be coming, so the first window is not always one of rest.
    let mut counts = vec![cluster.writes().len()];
    for _ in 0..5 {
        tokio::time::sleep(Duration::from_secs(2)).await;
        counts.push(cluster.writes().iter().filter(|write| write.is_work()).count());
        if counts.len() > 2 && counts[counts.len() - 1] == counts[counts.len() - 2] {
            break;
        }
    }
    assert_eq!(counts[counts.len() - 1], counts[counts.len() - 2], "writes at rest: {counts:?}");
    manager.stop().await.expect("stopped in order");
}
