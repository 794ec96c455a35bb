//! Kinds that are missing: a definition that is created, deleted and created again, and rights that are
//! granted and revoked.
//!
//! Runs on the shared cluster: the definition belongs to this test alone, and the rights to its
//! ServiceAccount.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{NamespaceResourceScope, Resource};
use mainstay::cache::{Scope, Select, Store};
use mainstay::controller::Controller;
use mainstay::key::NamespacedName;
use mainstay::reconcile::{Action, Context, Outcome};
use mainstay_tests::middlebox::Middlebox;
use mainstay_tests::process::{get, sample};
use mainstay_tests::report::figure_of_time;
use mainstay_tests::wait::until_so;
use mainstay_tests::witness::{Runs, witness};
use mainstay_tests::{LocalManager, TestCluster};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Limit for "within seconds": a missing kind is polled every three to four and a half seconds, on a machine
/// that also compiles.
const SECONDS: Duration = Duration::from_secs(30);

const GROUP: &str = "kinds.tests.mainstay.dev";

/// A kind whose definition is created while the test runs.
#[derive(Clone, Debug, Deserialize)]
struct Widget {
    metadata: ObjectMeta,
}

impl Resource for Widget {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "Widget".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        "v1".into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        "widgets".into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

fn definition() -> Value {
    json!({
        "metadata": {"name": format!("widgets.{GROUP}")},
        "spec": {
            "group": GROUP,
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget", "listKind": "WidgetList"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    })
}

/// Returns the rule to read a kind.
fn to_read(group: &str, resource: &str) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": ["list", "watch"]})
}

async fn done(_: NamespacedName, _: Context) -> Outcome {
    Ok(Action::Done)
}

// === tests ===

#[tokio::test(flavor = "multi_thread")]
async fn a_created_or_deleted_definition_affects_its_own_controllers_only() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let rules = json!([to_read(GROUP, "widgets"), to_read("", "configmaps")]);
    let mut scene = Scene::begin::<Widget>(&cluster, &rules).await;
    let widgets: Api<DynamicObject> =
        Api::namespaced_with(cluster.client(), cluster.namespace(), &ApiResource::erase::<Widget>(&()));
    let create = async |name: &str| {
        let widget = DynamicObject::new(name, &ApiResource::erase::<Widget>(&()));
        widgets.create(&PostParams::default(), &widget).await.expect("created");
    };

    scene.waits(false, "404").await;
    scene.others_run("before").await;
    assert!(scene.subject.list(&Select::all()).is_err(), "before the first list the store fails");

    scene.picked_up("defined", cluster.define(&definition())).await;
    create("a").await;
    create("b").await;
    assert_eq!(scene.next(2).await, ["a", "b"]);

    // The server deletes the objects first, and the watch delivers each deletion.
    cluster.undefine(&definition()).await;
    assert_eq!(scene.next(2).await, ["a", "b"]);
    assert_eq!(scene.held(), [""; 0]);
    scene.waits(true, "404").await;
    scene.others_run("gone").await;

    scene.picked_up("returned", cluster.define(&definition())).await;
    create("a").await;
    create("c").await;
    assert_eq!(scene.next(2).await, ["a", "c"], "new objects of these names");

    // The kind goes while the watch is cut: a 404 does not delete cached objects, they stay until a list.
    scene.middlebox.hold();
    cluster.undefine(&definition()).await;
    scene.middlebox.cut();
    scene.middlebox.release();
    scene.waits(true, "404").await;
    scene.others_run("gone-unseen").await;
    assert_eq!(scene.held(), ["a", "c"], "as last known");
    scene.picked_up("returned_unseen", cluster.define(&definition())).await;
    create("d").await;
    assert_eq!(scene.next(3).await, ["a", "c", "d"], "two deletions and a creation");
    assert_eq!(scene.held(), ["d"]);
    scene.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_revoked_and_granted_rights_affect_their_own_controllers_only() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let mut scene = Scene::begin::<Ingress>(&cluster, &json!([to_read("", "configmaps")])).await;
    let rights = json!([to_read("networking.k8s.io", "ingresses")]);
    let ingresses = cluster.api::<Ingress>();
    let create = async |name: &str| {
        let backend = json!({"service": {"name": "web", "port": {"number": 80}}});
        let ingress = json!({"metadata": {"name": name}, "spec": {"defaultBackend": backend}});
        let ingress: Ingress = serde_json::from_value(ingress).expect("an Ingress");
        ingresses.create(&PostParams::default(), &ingress).await.expect("created");
    };

    scene.waits(false, "403").await;
    scene.others_run("before").await;

    let identity = scene.identity.clone();
    scene.picked_up("granted", cluster.grant(&identity, &rights)).await;
    for name in ["stays", "changes", "goes"] {
        create(name).await;
    }
    assert_eq!(scene.next(3).await, ["changes", "goes", "stays"]);
    let relists = scene.page().await["relists"].clone();

    // The server checks rights when a watch begins, not while it lasts.
    cluster.revoke(&identity, &rights).await;
    scene.middlebox.cut();
    scene.waits(true, "403").await;
    scene.others_run("revoked").await;
    let label = Patch::Merge(json!({"metadata": {"labels": {"changed": "yes"}}}));
    ingresses.patch("changes", &PatchParams::default(), &label).await.expect("changed");
    ingresses.delete("goes", &DeleteParams::default()).await.expect("deleted");
    create("comes").await;
    assert_eq!(scene.held(), ["changes", "goes", "stays"], "as last known");

    scene.picked_up("granted_again", cluster.grant(&identity, &rights)).await;
    assert_eq!(scene.next(3).await, ["changes", "comes", "goes"], "only the changes since the revocation");
    assert_eq!(scene.held(), ["changes", "comes", "stays"]);
    assert_eq!(scene.page().await["relists"], relists, "the watch resumed without a list");
    scene.end().await;
}

// === a manager with two kinds ===

/// A manager with a controller of the kind under test, and one of a kind that is always served.
struct Scene<'a> {
    cluster: &'a TestCluster,
    identity: mainstay_tests::manifests::Identity,
    /// Between the manager and the server; requests of the test bypass it.
    middlebox: Middlebox,
    manager: LocalManager,
    subject: Store,
    subjects: Runs,
    others: Runs,
    /// The kind as kubectl takes it.
    kind: String,
}

impl<'a> Scene<'a> {
    async fn begin<K>(cluster: &'a TestCluster, rules: &Value) -> Self
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let identity = cluster.install_base_with(rules).await;
        let middlebox = Middlebox::before(cluster.address()).await;
        // Without a Lease: while the middlebox holds everything back, a deleted definition goes more slowly
        // than a Lease expires.
        let changes =
            json!({"leaderElection": {"enabled": false}, "inspect": {"bindAddress": "127.0.0.1:0"}});
        let ((subject, subjects), (other, others)) = (witness(done), witness(done));
        let mut store = None;
        let manager =
            LocalManager::start_with(cluster, &identity.through(middlebox.address()), &changes, |manager| {
                let subjects = manager.store::<K>(Scope::all());
                let maps =
                    manager.store::<ConfigMap>(Scope::all().labels("of=kinds".parse().expect("a selector")));
                let subject = Controller::new("subject").reconciles(&subjects).reconciler(subject);
                let other = Controller::new("other").reconciles(&maps).reconciler(other);
                for registration in [subject, other] {
                    drop(manager.register(registration).expect("registered"));
                }
                store = Some(subjects.view());
            })
            .await;
        let subject = store.expect("declared");
        let kind = subject.untyped().kind().to_string();
        Self { cluster, identity, middlebox, manager, subject, subjects, others, kind }
    }

    /// Waits until the check, the page and the metrics report the kind as missing; asserts that only its own
    /// controller waits.
    async fn waits(&self, was_there: bool, code: &str) {
        let check = async || get(self.manager.probes(), &format!("/readyz/cache-{}", self.kind)).await;
        let prefix = if was_there {
            format!("{} cannot be watched any more", self.kind)
        } else {
            format!("{} has not been listed", self.kind)
        };
        let fails = async || {
            let (status, body) = check().await;
            status == 500 && body.contains(&prefix) && body.contains(&format!("the server answered {code}"))
        };
        until_so(&format!("{} to fail its check ({code})", self.kind), fails).await;
        // At the start the kind counts as absent only after another two or three such answers.
        let believed = async || self.page().await["absent"] == true;
        until_so(&format!("{} to be absent", self.kind), believed).await;

        let page = self.page().await;
        assert_eq!((&page["absent"], &page["synced"]), (&json!(true), &json!(was_there)), "{page}");
        assert!(page["downSeconds"].is_number(), "{page}");
        assert!(page["lastError"].as_str().is_some_and(|error| error.contains(code)), "{page}");
        let unsynced = if was_there { 0.0 } else { 1.0 };
        self.counts([("unsynced", unsynced), ("down", 1.0), ("absent", 1.0)]).await;
        assert_eq!(self.synced("subject").await, was_there, "its controller starts no work before the list");

        until_so("the other kind to be listed", async || self.synced("other").await).await;
        until_so("the replica to be ready", async || get(self.manager.probes(), "/readyz").await.0 == 200)
            .await;
    }

    /// Does `doing`, and waits until the kind is watched.
    async fn picked_up(&self, how: &str, doing: impl Future<Output = ()>) {
        doing.await;
        let there = Instant::now();
        let works = async || self.page().await["downSeconds"].is_null();
        until_so(&format!("{} to be picked up", self.kind), works).await;
        let took = there.elapsed();
        figure_of_time(&format!("kind.picked_up.{how}"), took);
        assert!(took < SECONDS, "picked up after {took:?}");
        let page = self.page().await;
        assert_eq!((&page["absent"], &page["synced"]), (&json!(false), &json!(true)), "{page}");
        self.counts([("unsynced", 0.0), ("down", 0.0), ("absent", 0.0)]).await;
        let path = format!("/readyz/cache-{}", self.kind);
        assert_eq!(get(self.manager.probes(), &path).await, (200, "ok".to_owned()));
        until_so("its controller to have synced", async || self.synced("subject").await).await;
    }

    /// Creates an object of the other kind, and waits until its controller runs.
    async fn others_run(&mut self, name: &str) {
        let map = json!({"metadata": {"name": name, "labels": {"of": "kinds"}}});
        let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
        self.cluster.api().create(&PostParams::default(), &map).await.expect("created");
        assert_eq!(self.others.next().await.name, name);
    }

    /// Returns the names of the next runs, until there are `count` different ones.
    async fn next(&mut self, count: usize) -> Vec<String> {
        let mut names = BTreeSet::new();
        while names.len() < count {
            let run = self.subjects.next().await;
            // A finalizer or a status may bring several changes of an object.
            names.insert(run.name);
        }
        names.into_iter().collect()
    }

    /// Returns the names of the objects in the store, sorted.
    fn held(&self) -> Vec<String> {
        let entries = self.subject.list(&Select::all()).expect("it has been listed");
        let mut names: Vec<String> = entries.iter().map(|entry| entry.meta().name().to_owned()).collect();
        names.sort();
        names
    }

    /// Returns the entry of `/debug/caches` for the kind.
    async fn page(&self) -> Value {
        let stores = self.inspect("/debug/caches").await["caches"].take();
        let store = stores.as_array().into_iter().flatten().find(|store| store["kind"] == self.kind.as_str());
        store.unwrap_or_else(|| panic!("no {} in {stores}", self.kind)).clone()
    }

    /// Returns whether all kinds of a controller have been listed.
    async fn synced(&self, controller: &str) -> bool {
        let controllers = self.inspect("/debug/controllers").await["controllers"].take();
        let mut all = controllers.as_array().into_iter().flatten();
        all.any(|one| one["name"] == controller && one["synced"] == true)
    }

    async fn inspect(&self, path: &str) -> Value {
        let inspect = self.manager.manager.inspect_addr().expect("an address");
        serde_json::from_str(&get(inspect, path).await.1).expect("a page")
    }

    async fn counts<const N: usize>(&self, expected: [(&str, f64); N]) {
        let (kind, group) = self.kind.split_once('.').expect("a kind of a group");
        let metrics = self.manager.metrics_text().await;
        for (name, value) in expected {
            let series = format!(r#"mainstay_cache_{name}{{kind="{kind}",group="{group}"}}"#);
            assert_eq!(sample(&metrics, &series), Some(value), "{series}");
        }
    }

    async fn end(self) {
        self.manager.stop().await.expect("stopped in order");
        assert_eq!(self.subjects.to_the_end().await, [""; 0], "no other run");
    }
}
