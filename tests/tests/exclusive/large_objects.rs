//! The worst objects that the API server admits: two managers stay below the memory that we ship them with, and nobody
//! else's gates notice.
//!
//! An ordinary run makes some twenty of each sort; `MAINSTAY_LONG=1` makes a hundred, and holds the figures against their
//! bounds, which are for a release build:
//! `MAINSTAY_LONG=1 cargo test --release -p mainstay-tests --test exclusive large_objects -- --nocapture`.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::manifests::documents_of_base;
use mainstay_tests::process::{get, memory, sample};
use mainstay_tests::report::{figure, long_form, percentile};
use mainstay_tests::{ManagerProcess, TestCluster, wait};
use serde_json::value::RawValue;
use serde_json::{from_value, json};
use tokio::time::Instant;

const TENANT: &str = "tenant";
/// Bytes of the largest objects: just below what etcd takes.
const LARGEST: usize = 1_400_000;
/// Just below what the cache keeps, and what the gate decodes.
const KEPT: usize = 255_000;
const DECODED: usize = 64_000;

/// How much is done.
struct Form {
    /// Objects of each sort.
    of_each: u32,
    gates: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_worst_objects_that_are_admitted_fit_into_the_memory_we_ship() {
    let form = if long_form() { Form { of_each: 100, gates: 100 } } else { Form { of_each: 20, gates: 20 } };
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let identity = cluster.install_base().await;
    let namespace: Namespace = from_value(json!({"metadata": {"name": TENANT}})).expect("a Namespace");
    Api::all(cluster.client()).create(&PostParams::default(), &namespace).await.expect("a new namespace");
    let start = |name: &str| {
        let changes = json!({"cache": {"namespaces": []}});
        ManagerProcess::start(env!("CARGO_BIN_EXE_mainstay-under-test"), &cluster, &identity, name, &changes)
    };
    let first = start("first");
    leads(&first).await;
    let second = start("second");
    let undisturbed = gates(&cluster, "before", form.gates).await;

    let text = text(LARGEST);
    let objects = worst(form.of_each, &text);
    for object in &objects {
        create(&cluster, object).await;
    }
    told(&first, form.of_each).await;
    let large: Api<WaitDeployment> = Api::namespaced(cluster.client(), TENANT);
    let says = large.get("large-0").await.expect("it is there");
    let ready = says.condition("Ready").expect("told");
    let message = ready.message.as_deref().unwrap_or_default();
    assert_eq!(ready.reason.as_deref(), Some("TooLarge"), "{message}");
    assert!(message.contains("has 14") && message.contains("more than 65536"), "{message}");

    // What can be decoded is reconciled again and again beside them.
    let disturbed = tokio::select! {
        disturbed = gates(&cluster, "beside", form.gates) => disturbed,
        () = touch(&large, form.of_each) => Vec::new(),
    };

    // The next leader, and a new replica, meet all of them at once.
    let most = memory(first.id(), "VmHWM").expect("it runs");
    first.kill();
    let third = start("third");
    leads(&second).await;
    told(&second, form.of_each).await;
    second.kill();
    leads(&third).await;
    told(&third, form.of_each).await;
    let most = [&second, &third]
        .map(|one| memory(one.id(), "VmHWM").expect("it runs"))
        .into_iter()
        .fold(most, f64::max);

    // It shrinks, and goes on.
    let shrink = Patch::Merge(json!({"spec": {"x": null}}));
    large.patch("large-0", &PatchParams::default(), &shrink).await.expect("patched");
    wait::until(&large, "large-0", "to wait again", wait::says("Ready", "WaitingForDependencies")).await;

    let limit = shipped_limit();
    figure("worst.rss_mb", most, "MB");
    figure("worst.limit_mb", limit, "MB");
    let [undisturbed, disturbed] = [undisturbed, disturbed].map(|mut took| {
        took.sort_by(f64::total_cmp);
        percentile(&took, 99)
    });
    figure("worst.gate_ms_p99", disturbed, "ms");
    figure("worst.undisturbed_gate_ms_p99", undisturbed, "ms");
    assert!(most < 0.9 * limit, "{most} MB were resident; deploy/base allows {limit} MB");
    assert!(
        !long_form() || disturbed < 2.0 * undisturbed,
        "{disturbed} ms beside them, {undisturbed} ms before"
    );
    cluster.stop().await;
}

/// Returns the objects: WaitDeployments that are too large by far, by zeros, maps or text; some that are just small enough
/// for the gate, and take most memory when decoded; and Deployments of which metadata, or all, is kept.
fn worst(of_each: u32, text: &str) -> Vec<Box<RawValue>> {
    // The shapes that cost a server most are few: it keeps all objects decoded.
    let large = |number: u32| match number {
        0 | 3 => format!("[{}0]", "0,".repeat(LARGEST / 2)),
        1 | 4 => format!("[{}0]", r#"{"":0},"#.repeat(LARGEST / 7)),
        _ => format!("{text:?}"),
    };
    // A map of one member takes as much memory as one of eleven, and five bytes.
    let nested = format!("{}0{}", r#"{"":"#.repeat(80), "}".repeat(80));
    let nested = format!("[{}0]", format!("{nested},").repeat(DECODED / (nested.len() + 1)));
    let object = |json: String| RawValue::from_string(json).expect("JSON");
    let waiting = |name: String, x: &str| {
        let spec = r#""selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"x"}]}}"#;
        let wait_for = r#""waitFor":{"dependencies":[{"name":"n","service":{"name":"nobody"}}]}"#;
        object(format!(
            r#"{{"apiVersion":"apps.mainstay.dev/v1alpha1","kind":"WaitDeployment","metadata":{{"name":"{name}","namespace":"{TENANT}"}},"spec":{{"replicas":0,{spec},{wait_for},"x":{x}}}}}"#
        ))
    };
    let deployment = |name: String, bytes: usize| {
        let text = &text[..bytes];
        object(format!(
            r#"{{"apiVersion":"apps/v1","kind":"Deployment","metadata":{{"name":"{name}","namespace":"{TENANT}"}},"spec":{{"replicas":0,"selector":{{"matchLabels":{{"a":"b"}}}},"template":{{"metadata":{{"labels":{{"a":"b"}}}},"spec":{{"containers":[{{"name":"c","image":"x","env":[{{"name":"E","value":"{text}"}}]}}]}}}}}}}}"#
        ))
    };
    (0..of_each)
        .flat_map(|number| {
            [
                waiting(format!("large-{number}"), &large(number)),
                waiting(format!("decoded-{number}"), &nested),
                deployment(format!("image-{number}"), LARGEST),
                deployment(format!("kept-{number}"), KEPT),
            ]
        })
        .collect()
}

async fn create(cluster: &TestCluster, object: &RawValue) {
    let object: DynamicObject = serde_json::from_str(object.get()).expect("an object");
    let types = object.types.clone().expect("with its kind");
    let resource = if types.kind == "Deployment" {
        ApiResource::erase::<Deployment>(&())
    } else {
        ApiResource::erase::<WaitDeployment>(&())
    };
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.client(), TENANT, &resource);
    api.create(&PostParams::default(), &object).await.expect("the API server takes it");
}

/// Changes the objects that can be decoded, one after the other, for ever.
async fn touch(api: &Api<WaitDeployment>, count: u32) {
    for turn in 0_u64.. {
        let name = format!("decoded-{}", turn % u64::from(count));
        let change = Patch::Merge(json!({"metadata": {"annotations": {"turn": turn.to_string()}}}));
        api.patch(&name, &PatchParams::default(), &change).await.expect("patched");
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
}

/// Waits until the manager leads.
async fn leads(manager: &ManagerProcess) {
    let metrics = manager.address("metrics").await;
    let leading = async || {
        sample(&get(metrics, "/metrics").await.1, r#"leader_election_master_status{name="mainstay"}"#)
            == Some(1.0)
    };
    wait::until_so("this replica to lead", leading).await;
}

/// Waits until the manager has all the objects, and has decided about each.
async fn told(manager: &ManagerProcess, of_each: u32) {
    let metrics = manager.address("metrics").await;
    let told = async || {
        let text = get(metrics, "/metrics").await.1;
        for line in text.lines().filter(|line| line.starts_with("mainstay_cache_too_large") || line.starts_with("mainstay_waitdeployment_gates{") || line.starts_with("mainstay_cache_objects") || line.starts_with("controller_runtime_reconcile_total")) {
            if !line.ends_with(" 0") { eprintln!("DBG {line}"); }
        }
        for line in manager.log().iter().rev().take(3) { eprintln!("LOG {}", line.to_string().chars().take(600).collect::<String>()); }
        tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        let has = |series: &str| sample(&text, series).is_some_and(|value| value >= f64::from(of_each));
        [
            r#"mainstay_cache_too_large_objects{kind="WaitDeployment",group="apps.mainstay.dev"}"#,
            r#"mainstay_cache_too_large_objects{kind="Deployment",group="apps"}"#,
            r#"mainstay_waitdeployment_gates{state="too_large"}"#,
            r#"mainstay_waitdeployment_gates{state="closed"}"#,
        ]
        .into_iter()
        .all(has)
    };
    wait::until_so("all objects to be decided about", told).await;
}

/// Opens so many gates in the namespace of the test, one after the other, and returns the milliseconds from the answer to
/// the write of the endpoint to the Deployment.
async fn gates(cluster: &TestCluster, prefix: &str, count: usize) -> Vec<f64> {
    let (services, slices): (Api<Service>, Api<EndpointSlice>) = (cluster.api(), cluster.api());
    let (objects, deployments): (Api<WaitDeployment>, Api<Deployment>) = (cluster.api(), cluster.api());
    let params = PostParams::default();
    let mut took = Vec::new();
    for number in 0..count {
        let name = format!("{prefix}-{number}");
        let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}});
        services.create(&params, &from_value(service).expect("a Service")).await.expect("created");
        let dependency = json!({"name": "it", "service": {"name": name, "port": 80}});
        let changes = json!({"spec": {"replicas": 0, "waitFor": {"dependencies": [dependency]}}});
        objects.create(&params, &wait_deployment(&name, &changes)).await.expect("created");
        wait::until(&objects, &name, "to wait", wait::says("Ready", "WaitingForDependencies")).await;
        let slice = json!({
            "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
            "addressType": "IPv4",
            "ports": [{"port": 80, "protocol": "TCP", "name": ""}],
            "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": true}}],
        });
        slices.create(&params, &from_value(slice).expect("a slice")).await.expect("created");
        let began = Instant::now();
        wait::until(&deployments, &name, "to be there", |_: &Deployment| true).await;
        took.push(began.elapsed().as_secs_f64() * 1000.0);
    }
    took
}

/// Returns text that cannot be packed.
fn text(bytes: usize) -> String {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let draw = || {
        // xorshift64: the same in every run.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"[(state % 64) as usize])
    };
    std::iter::repeat_with(draw).take(bytes).collect()
}

/// Returns the memory limit of `deploy/base` in megabytes.
fn shipped_limit() -> f64 {
    let documents = documents_of_base();
    let deployment =
        documents.iter().find(|document| document["kind"] == "Deployment").expect("a Deployment");
    let limit = &deployment["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["memory"];
    let mebibytes = limit.as_str().and_then(|limit| limit.strip_suffix("Mi")).expect("a limit in Mi");
    mebibytes.parse::<f64>().expect("a number") * 1.048_576
}
