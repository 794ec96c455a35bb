//! Gate and mirror write one status while everything changes around them: no condition is ever lost, nobody fights, and
//! at rest nothing is written.

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

/// How long everything changes, and what `MAINSTAY_LONG=1` asks for.
const CHURN: Duration = Duration::from_secs(6);
const CHURN_LONG: Duration = Duration::from_mins(1);
/// Between two changes.
const PACE: Duration = Duration::from_millis(60);
/// Changes of the Deployment alone, while nobody else writes the object, and how often these are made until both have
/// written: others say how fast its status follows, and the mirror gathers.
const DEPLOYMENT_CHANGES: usize = 40;
const MOST_TIMES: usize = 10;
/// Writes of each of the two that are enough.
const ENOUGH: usize = 5;
/// What the two writers promise to be there once each has written, the gate's first.
const ALWAYS: [&str; 5] = ["Ready", "DependenciesReady", "Reconciling", "Stalled", "Available"];

fn conditions(object: &WaitDeployment) -> Vec<&str> {
    let conditions = object.status.iter().flat_map(|status| &status.conditions);
    conditions.map(|condition| condition.type_.as_str()).collect()
}

fn of_status(cluster: &TestCluster) -> Vec<Write> {
    let writes = cluster.writes().into_iter();
    writes.filter(|write| write.resource == "waitdeployments/status").collect()
}

/// Returns the writes that another one had come before, and those that the server had no time for. All others were
/// accepted.
fn refused<'a>(name: &str, writes: &'a [Write]) -> (Vec<&'a Write>, Vec<&'a Write>) {
    let all = writes.iter().filter(|write| !write.is_accepted());
    // Without a code nobody waited for the answer any more.
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

/// Starts a manager and, when both have written its status, returns an object as it is then.
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

/// What is changed: the first three are of the WaitDeployment, the others of its Deployment.
const CHANGES: std::ops::Range<u8> = 0..6;
const OF_DEPLOYMENT: std::ops::Range<u8> = 3..6;

/// One change of many kinds.
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
        // Order does not matter: both go on until the time is over.
        tokio::select! {
            _ = pace.tick() => {
                changes += 1;
                change(random.u8(CHANGES), &mut random, changes as usize, &cluster).await;
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
    // A write may meet an edit of the object that its cache has not seen, again and again until the watch brings it: how
    // often says nothing but how fast that is.
    refused("two_writers", &of_status(&cluster));

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

#[tokio::test(flavor = "multi_thread")]
async fn two_writers_never_meet_while_nobody_else_writes() {
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
    // What came too late for an answer may have been done all the same, and meets its own repetition.
    assert!(conflicts.is_empty() || !late.is_empty(), "{conflicts:#?}");
    manager.stop().await.expect("stopped in order");
}
