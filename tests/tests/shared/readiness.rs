//! The state of a kind shows in its own readiness check, within the promised time and not earlier.
//!
//! Each test polls every check of the manager all the time, so that no other check changes. The short form
//! has a shorter limit for a watch that is down, and longer bounds.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::networking::v1::Ingress;
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use mainstay::cache::{Required, Scope, Store};
use mainstay::key::KindId;
use mainstay::manager::ManagerOptions;
use mainstay_tests::checks::{Checks, Took};
use mainstay_tests::impostor::Impostor;
use mainstay_tests::report::{figure_of_time, long_form};
use mainstay_tests::{LocalManager, TestCluster};
use serde_json::{Value, json};
use tokio::time::Instant;

const MAPS: &str = "/readyz/cache-ConfigMap";
const INGRESSES: &str = "cache-Ingress.networking.k8s.io";
const GROUP: &str = "readiness.tests.mainstay.dev";

/// Promised time until a removed right or definition is reported.
const TOLD_GONE: Duration = Duration::from_mins(1);
/// Promised time until a kind that is served again passes.
const BACK: Duration = Duration::from_secs(10);
/// Promised time until a mended watch passes.
const MENDED: Duration = Duration::from_secs(5);

/// Returns how long a watch may be down in these tests before its check fails.
fn limit() -> Duration {
    if long_form() { Duration::from_mins(1) } else { Duration::from_secs(4) }
}

/// Extra time for a slow machine: half of the longest relist backoff.
const SLACK: Duration = Duration::from_secs(15);

/// Asserts the promised time: exactly in the long form, with [`SLACK`] in the short one.
fn within(took: Took, promised: Duration, what: &str) {
    figure_of_time(&format!("readiness.{what}"), took.last);
    let most = if long_form() { promised } else { promised + SLACK };
    assert!(took.last <= most, "{what} took {took:?}, at most {most:?} is allowed, {promised:?} promised");
}

/// Returns the rule to read a kind.
fn to_read(group: &str, resource: &str) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"]})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cut_watch_fails_its_own_check_after_the_limit_and_passes_again_once_mended() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let rules = json!([to_read("", "configmaps"), to_read("networking.k8s.io", "ingresses")]);
    let identity = cluster.install_base_with(&rules).await;
    let impostor = Impostor::before(&cluster, &identity).await;
    let replica = ManagerOptions::replica("mainstay");
    let options = ManagerOptions { signals: false, watch_down_limit: limit(), ..replica };
    let mut stores: Option<(Store<ConfigMap>, Store<Ingress>)> = None;
    let manager = LocalManager::start_as(options, &cluster, impostor.identity(), &json!({}), |manager| {
        manager.required(KindId::of::<Ingress>(), Required::Never);
        stores = Some((manager.store(Scope::all()), manager.store(Scope::all())));
    })
    .await;
    let mut checks = Checks::of(manager.probes(), &[INGRESSES]).await;

    let cut = Instant::now();
    impostor.sever("configmaps");
    let took = checks.turned(false, &["/readyz", MAPS], cut).await;
    assert!(took.first >= limit(), "failed after {took:?}");
    within(took, limit() + Duration::from_secs(2), "cut_told");
    let mended = Instant::now();
    impostor.mend();
    within(checks.turned(true, &["/readyz", MAPS], mended).await, MENDED, "cut_mended");

    // A kind that is not required does not affect `/readyz`.
    impostor.sever("ingresses");
    let ingresses = format!("/readyz/{INGRESSES}");
    checks.turned(false, &[&ingresses], Instant::now()).await;
    impostor.mend();
    checks.turned(true, &[&ingresses], Instant::now()).await;

    checks.are_unchanged();
    drop((checks, stores));
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn rights_revoked_during_a_watch_fail_the_check_of_their_kind_only_and_in_time() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let rights = json!([to_read("networking.k8s.io", "ingresses")]);
    cluster.grant(&identity, &rights).await;
    let mut store: Option<Store<Ingress>> = None;
    let manager = LocalManager::start_with(&cluster, &identity, &json!({}), |manager| {
        store = Some(manager.store(Scope::all()));
    })
    .await;
    let mut checks = Checks::of(manager.probes(), &[]).await;
    let own = [format!("/readyz/{INGRESSES}"), format!("/readyz lists {INGRESSES}")];

    cluster.revoke(&identity, &rights).await;
    within(checks.turned(false, &own, Instant::now()).await, TOLD_GONE, "rights_told");
    cluster.grant(&identity, &rights).await;
    within(checks.turned(true, &own, Instant::now()).await, BACK, "rights_back");

    checks.are_unchanged();
    drop((checks, store));
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_definition_fails_its_own_check_only_unless_the_kind_is_required() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let definitions = ["Spare", "Vital"].map(definition);
    for definition in &definitions {
        cluster.define(definition).await;
    }
    let identity =
        cluster.install_base_with(&json!([to_read(GROUP, "spares"), to_read(GROUP, "vitals")])).await;
    let mut stores: Vec<Store<DynamicObject>> = Vec::new();
    let manager = LocalManager::start_with(&cluster, &identity, &json!({}), |manager| {
        let [spare, vital] = ["Spare", "Vital"].map(|kind| {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
            KindId::of_resource(&resource, true)
        });
        manager.required(vital.clone(), Required::Always);
        stores.extend([spare, vital].map(|kind| manager.store(Scope::all().of(kind))));
    })
    .await;
    let mut checks = Checks::of(manager.probes(), &[]).await;

    let spare = [format!("/readyz/cache-Spare.{GROUP}"), format!("/readyz lists cache-Spare.{GROUP}")];
    let vital = [format!("/readyz/cache-Vital.{GROUP}"), "/readyz".to_owned()];
    for (name, definition, own) in [("spare", &definitions[0], spare), ("vital", &definitions[1], vital)] {
        let removed = Instant::now();
        cluster.undefine(definition).await;
        let took = checks.turned(false, &own, removed).await;
        within(took, TOLD_GONE, &format!("definition_told.{name}"));
        cluster.define(definition).await;
        let took = checks.turned(true, &own, Instant::now()).await;
        within(took, BACK, &format!("definition_back.{name}"));
    }

    checks.are_unchanged();
    drop((checks, stores));
    manager.stop().await.expect("stopped in order");
}

fn definition(kind: &str) -> Value {
    let singular = kind.to_lowercase();
    let plural = format!("{singular}s");
    json!({
        "metadata": {"name": format!("{plural}.{GROUP}")},
        "spec": {
            "group": GROUP,
            "names": {"kind": kind, "plural": plural, "singular": singular,
                "listKind": format!("{kind}List")},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}
