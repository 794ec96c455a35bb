//! The largest objects that the API server accepts: two replicas stay below the memory limit of
//! `deploy/base`, and the gates of another namespace open as before.
//!
//! The short form creates 20 such objects, the long form (`MAINSTAY_LONG=1`) a hundred. Both fail if the
//! memory is above its bound.

mod tenant;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::manifests::documents_of_base;
use mainstay_tests::process::{memory, sample};
use mainstay_tests::report::{figure, long_form, percentile};
use mainstay_tests::{ManagerProcess, TestCluster, wait};
use serde_json::{Value, from_value, json};
use tenant::{LARGEST, Tenant, pods, text};
use tokio::time::{Duration, Instant, sleep};

const TENANT: &str = "tenant";
/// A Service of the tenant that has a ready endpoint.
const READY: &str = "ready";
/// Milliseconds that the API server may add to the opening of a gate. On two processors these objects keep
/// the API server busy for nine tenths of the time, so that even the control, which involves no manager, is
/// slow.
const SLACK_MS: f64 = 5000.0;
/// Name of a large WaitDeployment whose bulk is one string, so that the API server can patch it at little
/// cost.
const TEXT: &str = "large-9";

/// The size of the test.
struct Form {
    /// Objects so large that the cache keeps only their metadata.
    large: u32,
    /// Objects just small enough for the gate to decode, and as many just small enough for the cache.
    small: u32,
    /// Gates that are opened per measurement.
    gates: usize,
}

/// Milliseconds from the response to the write of an endpoint until the Deployment exists, sorted.
#[derive(Default)]
struct Latencies {
    gate_ms: Vec<f64>,
    /// The control: without a manager, the test itself waits for the endpoint and applies the Deployment.
    control_ms: Vec<f64>,
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_objects_fit_into_the_memory_limit_and_delay_no_other_namespace() {
    let form = if long_form() {
        Form { large: 100, small: 100, gates: 200 }
    } else {
        Form { large: 20, small: 10, gates: 15 }
    };
    let Some(cluster) = TestCluster::exclusive().await else { return };
    let identity = cluster.install_base().await;
    let namespace: Namespace = from_value(json!({"metadata": {"name": TENANT}})).expect("a Namespace");
    Api::all(cluster.client()).create(&PostParams::default(), &namespace).await.expect("a new namespace");
    let start = |name: &str| {
        let changes = json!({"cache": {"namespaces": []}});
        ManagerProcess::start(env!("CARGO_BIN_EXE_mainstay-under-test"), &cluster, &identity, name, &changes)
    };
    let mut first = start("first");
    first.leads().await;
    let mut second = start("second");
    service(&cluster, TENANT, READY).await;
    endpoint(&cluster, TENANT, READY).await;
    let undisturbed = gates(&cluster, "before", form.gates).await;
    let at_rest = most_memory(&first);

    let text = text(LARGEST);
    let tenant = Tenant::of(&form, &text);
    for (kind, object) in &tenant.objects {
        create(&cluster, kind, object).await;
    }
    decided(&first, &tenant, form.gates).await;
    let large: Api<WaitDeployment> = Api::namespaced(cluster.client(), TENANT);
    let object = large.get("large-0").await.expect("the object exists");
    let ready = object.condition("Ready").expect("a condition");
    let message = ready.message.as_deref().unwrap_or_default();
    assert_eq!(ready.reason.as_deref(), Some("TooLarge"), "{message}");
    assert!(message.contains("has 14") && message.contains("more than 65536"), "{message}");

    let beside = gates(&cluster, "beside", form.gates).await;
    let changing = tokio::select! {
        changing = gates(&cluster, "changing", form.gates) => changing,
        () = touch(&large, form.small) => Latencies::default(),
    };

    // The next leader and a new replica list all objects at once.
    let mut most = most_memory(&first).max(most_memory(&second));
    assert!(stopped(&mut first).await, "{:#?}", first.log());
    let mut third = start("third");
    second.leads().await;
    decided(&second, &tenant, 3 * form.gates).await;
    most = most.max(most_memory(&second));
    assert!(stopped(&mut second).await, "{:#?}", second.log());
    third.leads().await;
    decided(&third, &tenant, 3 * form.gates).await;

    // After the object has become small, its gate works like any other.
    let shrink = Patch::Merge(json!({"spec": {"x": null}}));
    large.patch("large-0", &PatchParams::default(), &shrink).await.expect("patched");
    wait::until(&large, "large-0", "to wait again", wait::has_reason("Ready", "WaitingForDependencies"))
        .await;
    most = most.max(most_memory(&third));
    assert!(stopped(&mut third).await, "{:#?}", third.log());
    let alone = tokio::select! {
        alone = controls(&cluster, "alone", form.gates) => alone,
        () = touch(&large, form.small) => Vec::new(),
    };

    let limit = shipped_limit();
    figure("worst.rss_mb", most, "MB");
    figure("worst.at_rest_mb", at_rest, "MB");
    figure("worst.limit_mb", limit, "MB");
    for percent in [50, 99] {
        figure(&format!("worst.no_manager.control_ms_p{percent}"), percentile(&alone, percent), "ms");
        for (name, took) in [("before", &undisturbed), ("beside", &beside), ("changing", &changing)] {
            let [gate, control] = [&took.gate_ms, &took.control_ms].map(|ms| percentile(ms, percent));
            figure(&format!("worst.{name}.gate_ms_p{percent}"), gate, "ms");
            figure(&format!("worst.{name}.control_ms_p{percent}"), control, "ms");
        }
    }
    assert!(most <= 0.9 * limit, "{most} MB were resident; deploy/base allows {limit} MB");
    let before = percentile(&undisturbed.gate_ms, 99);
    for (name, took) in [("beside", &beside), ("changing", &changing)] {
        let gate = percentile(&took.gate_ms, 99);
        assert!(gate <= 2.0 * before + SLACK_MS, "{gate} ms {name}, {before} ms before");
    }
    cluster.stop().await;
}

async fn create(cluster: &TestCluster, kind: &str, object: &str) {
    let request = http::Request::post(format!("/{kind}")).header("content-type", "application/json");
    let request = request.body(object.as_bytes().to_vec()).expect("a request");
    cluster.client().request_text(request).await.expect("the API server accepts it");
}

/// Patches objects of the tenant for ever: decoded ones in turn, and every tenth time the large one named
/// `TEXT`.
async fn touch(api: &Api<WaitDeployment>, count: u32) {
    for turn in 0_u32.. {
        let name = if turn % 10 == 0 { TEXT.to_owned() } else { format!("decoded-{}", turn % count) };
        let change = Patch::Merge(json!({"metadata": {"annotations": {"turn": turn.to_string()}}}));
        api.patch_metadata(&name, &PatchParams::default(), &change).await.expect("patched");
        sleep(Duration::from_millis(500)).await;
    }
}

/// Waits until the manager has listed all objects of the tenant, and has reconciled each of them and `others`
/// more.
async fn decided(manager: &ManagerProcess, tenant: &Tenant, others: usize) {
    let others = u32::try_from(others).expect("hundreds");
    for (series, count) in [
        (r#"cache_too_large_objects{kind="WaitDeployment",group="apps.mainstay.dev"}"#, tenant.large_waiting),
        (r#"cache_too_large_objects{kind="Deployment",group="apps"}"#, tenant.large_deployments),
        (r#"cache_too_large_objects{kind="Service",group=""}"#, tenant.large_services),
        (r#"waitdeployment_gates{state="too_large"}"#, tenant.large_waiting),
        (r#"waitdeployment_gates{state="closed"}"#, tenant.closed),
        (r#"waitdeployment_gates{state="open"}"#, tenant.open + others),
    ] {
        let series = format!("mainstay_{series}");
        let reached = async || sample(&manager.metrics_text().await, &series) == Some(count.into());
        wait::until_so(&format!("{series} to be {count}"), reached).await;
    }
}

/// Opens `count` gates in the namespace of the test, one after the other, each followed by its control.
async fn gates(cluster: &TestCluster, prefix: &str, count: usize) -> Latencies {
    let objects: Api<WaitDeployment> = cluster.api();
    let mut took = Latencies::default();
    for number in 0..count {
        let name = format!("{prefix}-{number}");
        service(cluster, cluster.namespace(), &name).await;
        let dependency = json!({"name": "it", "service": {"name": name, "port": 80}});
        let changes = json!({"spec": {"replicas": 0, "waitFor": {"dependencies": [dependency]}}});
        objects.create(&PostParams::default(), &wait_deployment(&name, &changes)).await.expect("created");
        wait::until(&objects, &name, "to wait", wait::has_reason("Ready", "WaitingForDependencies")).await;
        took.gate_ms.push(opening(cluster, &name, async || ()).await);
        took.control_ms.extend(controls(cluster, &name, 1).await);
    }
    took.gate_ms.sort_by(f64::total_cmp);
    took.control_ms.sort_by(f64::total_cmp);
    took
}

/// Runs `count` controls and returns their milliseconds, sorted.
async fn controls(cluster: &TestCluster, prefix: &str, count: usize) -> Vec<f64> {
    let mut took = Vec::new();
    for number in 0..count {
        let name = format!("{prefix}-control-{number}");
        took.push(opening(cluster, &name, async || apply(cluster, &name).await).await);
    }
    took.sort_by(f64::total_cmp);
    took
}

/// Creates an endpoint of this name, and returns how many milliseconds later the Deployment of this name
/// exists.
async fn opening(cluster: &TestCluster, name: &str, react: impl AsyncFnOnce()) -> f64 {
    let deployments: Api<Deployment> = cluster.api();
    endpoint(cluster, cluster.namespace(), name).await;
    let began = Instant::now();
    react().await;
    wait::until(&deployments, name, "to be there", |_: &Deployment| true).await;
    began.elapsed().as_secs_f64() * 1000.0
}

/// Does the work of a gate: waits for the endpoint and applies the Deployment.
async fn apply(cluster: &TestCluster, name: &str) {
    let (slices, deployments): (Api<EndpointSlice>, Api<Deployment>) = (cluster.api(), cluster.api());
    wait::until(&slices, name, "to be there", |_: &EndpointSlice| true).await;
    let spec = format!(r#"{{"replicas":0,{}}}"#, pods(""));
    let spec: Value = serde_json::from_str(&spec).expect("JSON");
    let meta = json!({"name": name});
    let body = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec});
    let patch = PatchParams::apply("control");
    deployments.patch(name, &patch, &Patch::Apply(body)).await.expect("applied");
}

async fn service(cluster: &TestCluster, namespace: &str, name: &str) {
    let service: Service = from_value(json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 80}]}}))
        .expect("a Service");
    Api::namespaced(cluster.client(), namespace)
        .create(&PostParams::default(), &service)
        .await
        .expect("created");
}

/// Gives a Service a ready endpoint.
async fn endpoint(cluster: &TestCluster, namespace: &str, name: &str) {
    let slice: EndpointSlice = from_value(json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "ports": [{"port": 80, "protocol": "TCP", "name": ""}],
        "endpoints": [{"addresses": ["192.0.2.1"], "conditions": {"ready": true}}],
    }))
    .expect("an EndpointSlice");
    Api::namespaced(cluster.client(), namespace)
        .create(&PostParams::default(), &slice)
        .await
        .expect("created");
}

/// Stops the replica by SIGTERM, and returns whether it exited with success.
async fn stopped(replica: &mut ManagerProcess) -> bool {
    replica.terminate();
    replica.ended().await.success()
}

/// Returns the peak memory of the replica in megabytes. Panics if the replica has ended.
fn most_memory(replica: &ManagerProcess) -> f64 {
    memory(replica.id(), "VmHWM").expect("a running process")
}

/// Returns the memory limit of `deploy/base` in megabytes.
fn shipped_limit() -> f64 {
    let documents = documents_of_base();
    let deployment = documents.iter().find(|document| document["kind"] == "Deployment");
    let containers = "/spec/template/spec/containers/0/resources/limits/memory";
    let limit = deployment.and_then(|deployment| deployment.pointer(containers)).and_then(Value::as_str);
    let mebibytes = limit.and_then(|limit| limit.strip_suffix("Mi")).expect("a limit in Mi");
    mebibytes.parse::<f64>().expect("a number") * 1.048_576
}
