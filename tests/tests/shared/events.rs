//! Events on a real API server, written by the recorder and read with kubectl.

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Resource as _, ResourceExt as _};
use mainstay::client::{EventType, EventWriter, Recorder};
use mainstay::metrics::{Format, Registry};
use mainstay_tests::process::sample;
use mainstay_tests::report::figure;
use mainstay_tests::{TestCluster, wait};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Number of equal events emitted.
const EMISSIONS: i32 = 20;

async fn new_object(cluster: &TestCluster, name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    let object = ConfigMap { metadata, ..ConfigMap::default() };
    cluster.api().create(&PostParams::default(), &object).await.expect("created")
}

async fn ended(stop: CancellationToken, mut writer: JoinSet<()>) {
    stop.cancel();
    writer.join_next().await.expect("a writer").expect("no panic");
}

fn start(writer: EventWriter) -> (CancellationToken, JoinSet<()>) {
    let stop = CancellationToken::new();
    let tasks = JoinSet::from_iter([writer.run(stop.clone(), wait::PATIENCE)]);
    (stop, tasks)
}

fn outcome(registry: &Registry, outcome: &str) -> Option<f64> {
    let text = registry.encode(Format::Text).expect("text");
    sample(&text, &format!(r#"mainstay_events_total{{outcome="{outcome}"}}"#))
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_emissions_over_changing_versions_become_one_event_with_count_twenty() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let objects = cluster.api::<ConfigMap>();
    new_object(&cluster, "web").await;
    let registry = Registry::new();
    let (recorder, writer) = Recorder::new("mainstay.dev/test", "replica-1", cluster.client(), &registry);
    let (stop, writer) = start(writer);

    let began = Instant::now();
    for number in 0..EMISSIONS {
        let patch = Patch::Merge(json!({"data": {"number": number.to_string()}}));
        let changed = objects.patch("web", &PatchParams::default(), &patch).await.expect("patched");
        let version = changed.resource_version();
        let regarding = ObjectReference { resource_version: version, ..changed.object_ref(&()) };
        let note = format!("attempt {number}: db:5432 does not answer");
        recorder.event(&regarding, EventType::Warning, "Waiting", "Probe", &note);
    }
    let count = |event: &Event| event.series.as_ref().map_or(1, |series| series.count);
    let about = ListParams::default().fields("regarding.name=web");
    let events = wait::until_all(&cluster.api::<Event>(), &about, "a count of 20", |events| {
        events.iter().map(count).sum::<i32>() == EMISSIONS
    })
    .await;
    // Only a figure: the limit is that of the wait. A count that lags by several seconds is a defect.
    figure("events.count_visible_after", began.elapsed().as_secs_f64(), "s");
    let [event] = &events[..] else { panic!("expected one event: {events:?}") };
    assert_eq!(event.note.as_deref(), Some("attempt 0: db:5432 does not answer"));

    let listed = cluster.kubectl(&["events", "--for", "configmap/web"]).await;
    let shown = |line: &str| line.contains(&format!("(x{EMISSIONS} over")) && line.contains("Waiting");
    assert!(listed.lines().any(shown), "kubectl events:\n{listed}");
    let wide = cluster.kubectl(&["get", "events", "--output", "wide"]).await;
    assert!(wide.contains("Waiting") && wide.contains("mainstay.dev/test"), "kubectl get events:\n{wide}");
    ended(stop, writer).await;
    assert_eq!((outcome(&registry, "new"), outcome(&registry, "repeated")), (Some(1.0), Some(19.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn events_with_texts_of_any_length_and_a_related_object_are_accepted() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let object = new_object(&cluster, "web").await;
    let related = new_object(&cluster, "other").await;
    let registry = Registry::new();
    let (recorder, writer) =
        Recorder::new("mainstay.dev/test", &"i".repeat(300), cluster.client(), &registry);
    let (long, note) = ("Reason".repeat(100), "é".repeat(2000));
    let regarding = object.object_ref(&());
    recorder.event(&regarding, EventType::Normal, &long, "", &note);
    let related = related.object_ref(&());
    recorder.event_with_related(&regarding, &related, EventType::Normal, "Paired", "Pair", "");
    let (stop, writer) = start(writer);
    ended(stop, writer).await;
    assert_eq!(outcome(&registry, "refused"), None);

    let about = ListParams::default().fields("regarding.name=web");
    let events = cluster.api::<Event>().list(&about).await.expect("listed").items;
    assert_eq!(events.len(), 2, "{events:?}");
    let paired = events.iter().find(|event| event.reason.as_deref() == Some("Paired")).expect("both");
    assert_eq!(paired.related, Some(ObjectReference { resource_version: None, ..related }));
}
