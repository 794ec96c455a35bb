//! Gate and mirror write one status while objects change: no condition is ever lost, conflicts end, and at
//! rest there are no writes.

use std::time::Duration;

use futures_util::TryStreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::audit::Write;
use mainstay_tests::fixtures::{wait_deployment, with_image};
use mainstay_tests::report::{figure, long_form};
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::{Value, json};
use tokio::time::Instant;

/// Duration of the changes, by default and with `MAINSTAY_LONG=1`.
const CHURN: Duration = Duration::from_secs(6);
const CHURN_LONG: Duration = Duration::from_mins(1);
/// Pause between two changes.
const PACE: Duration = Duration::from_millis(60);
/// Number of changes of the Deployment alone, without other writers of the object, and the most rounds of
/// them until both writers have written: the pace of its status varies, and the mirror batches.
const DEPLOYMENT_CHANGES: usize = 40;
const MOST_TIMES: usize = 10;
/// Sufficient number of writes of each writer.
const ENOUGH: usize = 5;
/// Conditions that exist once each writer has written, those of the gate first.
const ALWAYS: [&str; 5] = ["Ready", "DependenciesReady", "Reconciling", "Stalled", "Available"];

fn conditions(object: &WaitDeployment) -> Vec<&str> {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.map(|condition| condition.type_.as_str()).collect()
}

fn of_status(cluster: &TestCluster) -> Vec<Write> {
    let writes = cluster.writes().into_iter();
    writes.filter(|write| write.resource == "waitdeployments/status").collect()
}

/// Returns the refused writes: conflicts with another write, and requests that the server timed out or
/// rejected under load. Asserts that there are no other refusals.
fn refused<'a>(name: &str, writes: &'a [Write]) -> (Vec<&'a Write>, Vec<&'a Write>) {
    let all = writes.iter().filter(|write| !write.is_accepted());
    // Code 0: the client gave up before the answer.
    let (late, others): (Vec<_>, Vec<_>) = all.partition(|write| matches!(write.code, 0 | 429 | 500..));
    let (conflicts, wrong): (Vec<_>, Vec<_>) = others.into_iter().partition(|write| write.code == 409);
    for (what, count) in
        [("status_writes", writes.len()), ("conflicts", conflicts.len()), ("late", late.len())]
    {
        figure(&format!("{name}.{what}"), f64::from(u32::try_from(count).expect("few")), "writes");
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    (conflicts, late)
}

/// Starts a manager, creates an object and returns it once both writers have written its status.
async fn set_up() -> Option<(TestCluster, LocalManager, WaitDeployment)> {
    let cluster = TestCluster::shared().await?;
    let identity = cluster.install_base().await;
    let manager = LocalManager::start(&cluster, &identity, &json!({})).await;
    let objects = cluster.api::<WaitDeployment>();
    let web = wait_deployment("web", &json!({"spec": {"replicas": 2}}));
    objects.create(&PostParams::default(), &web).await.expect("created");
    let whole = wait::until(&objects, "web", "both to have written", is_whole).await;
    Some((cluster, manager, whole))
}

fn is_whole(object: &WaitDeployment) -> bool {
    ALWAYS.iter().all(|type_| conditions(object).contains(type_))
}

/// Kinds of changes: the first three change the WaitDeployment, the others its Deployment.
const CHANGES: std::ops::Range<u8> = 0..6;
const OF_DEPLOYMENT: std::ops::Range<u8> = 3..6;

/// Makes one change of this kind.
async fn change(kind: u8, random: &mut fastrand::Rng, round: usize, cluster: &TestCluster) {
    let (objects, deployments) = (cluster.api::<WaitDeployment>(), cluster.api::<Deployment>());
    let mark = round.to_string();
    let of_object = |patch: Value| async {
        let objects: Api<WaitDeployment> = objects.clone();
        objects.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    };
    let of_deployment = |patch: Value| async {
        let deployments: Api<Deployment> = deployments.clone();
        deployments.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await.map(drop)
    };
    let done = match kind {
        0 => of_object(json!({"spec": {"replicas": random.u8(..4)}})).await,
        1 => of_object(with_image(round)).await,
        2 => of_object(json!({"spec": {"paused": random.bool()}})).await,
        3 => of_deployment(json!({"metadata": {"annotations": {"example.com/round": mark}}})).await,
        4 => of_deployment(json!({"spec": {"replicas": random.u8(..4)}})).await,
        _ => {
            let restart = json!({"annotations": {"kubectl.kubernetes.io/restartedAt": mark}});
            of_deployment(json!({"spec": {"template": {"metadata": restart}}})).await
        }
    };
    done.unwrap_or_else(|error| panic!("round {round}: {error}"));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_of_one_status_lose_no_condition() {
    let Some((cluster, manager, whole)) = set_up().await else { return };
    let objects = cluster.api::<WaitDeployment>();

    let version = whole.metadata.resource_version.expect("a version");
    let only = WatchParams::default().fields("metadata.name=web");
    let mut events = Box::pin(objects.watch(&only, &version).await.expect("a watch"));
    let duration = if long_form() { CHURN_LONG } else { CHURN };
    let (mut random, began) = (fastrand::Rng::with_seed(5), Instant::now());
    let (mut changes, mut seen) = (0_u32, 0_u32);
    let mut pace = tokio::time::interval(PACE);
    while began.elapsed() < duration {
        // Order does not matter: both branches go on until the time is over.
        tokio::select! {
            _ = pace.tick() => {
                changes += 1;
                change(random.u8(CHANGES), &mut random, changes as usize, &cluster).await;
            }
            event = events.try_next() => match event.expect("a watch") {
                Some(WatchEvent::Modified(object)) => {
                    seen += 1;
                    assert!(is_whole(&object), "after {changes} changes only {:?}", conditions(&object));
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
    // A write may conflict with an edit that its cache has not seen, several times until the watch delivers
    // it: the number depends on the speed of the watch only.
    refused("two_writers", &of_status(&cluster));

    // The last status of the Deployment controller may come late, so the first window may have writes.
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

#[tokio::test(flavor = "multi_thread")]
async fn two_status_writers_never_conflict_without_other_writers() {
    let Some((cluster, manager, _)) = set_up().await else { return };
    let objects = cluster.api::<WaitDeployment>();
    let (mut random, mut pace) = (fastrand::Rng::with_seed(5), tokio::time::interval(PACE));
    let by = |manager: &str| of_status(&cluster).iter().filter(|write| write.uri.contains(manager)).count();
    let both = || [by("waitdeployment-gate"), by("waitdeployment-status")];
    let enough = || both().iter().all(|writes| *writes >= ENOUGH);
    for round in 0..DEPLOYMENT_CHANGES * MOST_TIMES {
        if round >= DEPLOYMENT_CHANGES && enough() {
            break;
        }
        pace.tick().await;
        change(random.u8(OF_DEPLOYMENT), &mut random, round, &cluster).await;
    }
    wait::until(&objects, "web", "rest", |web| {
        let is = |type_| web.condition(type_).is_some_and(|condition| condition.status == "True");
        let status = web.status.as_ref();
        is("Ready") && is("Available") && status.is_some_and(|status| status.updated_replicas == Some(2))
    })
    .await;
    assert!(enough(), "{:?} writes of gate and mirror", both());
    let writes = of_status(&cluster);
    let (conflicts, late) = refused("two_writers.undisturbed", &writes);
    // A timed-out write may have succeeded, and then conflicts with its own retry.
    assert!(conflicts.is_empty() || !late.is_empty(), "{conflicts:#?}");
    manager.stop().await.expect("stopped in order");
}
