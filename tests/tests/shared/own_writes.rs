//! A process reads its own writes at once, however late the watch is; handlers receive each change once.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use mainstay::cache::Store;
use mainstay::key::{Key as _, NamespacedName};
use mainstay_tests::follow::{Change, Follower};
use mainstay_tests::report::{figure, long_form};
use mainstay_tests::{TestCluster, wait};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// Concurrent writers, each of which creates, changes and deletes an object of its own in a loop.
const WRITERS: usize = 4;
/// Writes of one round: create, update, patch, apply, delete.
const PER_ROUND: usize = 5;
/// Writes of all writers together, by default and with `MAINSTAY_LONG=1`.
const WRITES: usize = 1_000;
const WRITES_IN_FULL: usize = 10_000;
/// Time for which the watch is held back, and then passes, in turn.
const DELAY: Duration = Duration::from_millis(300);

/// One object and all its changes.
struct Written {
    maps: Api<ConfigMap>,
    store: Store<ConfigMap>,
    request: NamespacedName,
    changes: Vec<Change>,
}

impl Written {
    fn object(&self, step: usize) -> ConfigMap {
        serde_json::from_value(json!({
            "metadata": {"name": self.request.name(), "labels": {"step": step.to_string()}},
            "data": {"step": step.to_string()},
        }))
        .expect("a ConfigMap")
    }

    /// Asserts that the store returns exactly the written object.
    fn reads(&mut self, written: &ConfigMap) {
        let read = self.store.get(&self.request).expect("a read").expect("the written object");
        assert_eq!(read.uid(), written.uid());
        assert_eq!(read.resource_version(), written.resource_version(), "of {}", self.request);
        assert_eq!(read.data, written.data);
        let before = self.changes.last().and_then(|(_, after)| after.clone());
        self.changes.push((before, written.resource_version()));
    }

    async fn round(&mut self, round: usize) {
        let (name, step) = (self.request.name().to_owned(), round * PER_ROUND);
        let params = PatchParams::apply("mainstay-test").force();
        let made = self.maps.create(&PostParams::default(), &self.object(step)).await.expect("created");
        self.reads(&made);
        let mut changed = self.object(step + 1);
        changed.metadata.resource_version = made.resource_version();
        let changed = self.maps.replace(&name, &PostParams::default(), &changed).await.expect("updated");
        self.reads(&changed);
        let patch: Value = json!({"data": {"step": (step + 2).to_string()}});
        let patched = self.maps.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
        self.reads(&patched.expect("patched"));
        let applied = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name},
            "data": {"step": (step + 3).to_string()},
        });
        let applied = self.maps.patch(&name, &params, &Patch::Apply(applied)).await;
        self.reads(&applied.expect("applied"));
        self.maps.delete(&name, &DeleteParams::default()).await.expect("deleted");
        assert_eq!(self.store.get(&self.request).expect("a read"), None, "{} was deleted", self.request);
        let last = self.changes.last().and_then(|(_, after)| after.clone());
        self.changes.push((last, None));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_after_an_own_write_is_never_older_and_each_change_is_delivered_once() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let follower = Follower::start(&cluster).await;
    let writes = if long_form() { WRITES_IN_FULL } else { WRITES };
    let rounds = writes / WRITERS / PER_ROUND;

    let mut writing = JoinSet::new();
    for number in 0..WRITERS {
        let mut written = Written {
            maps: Api::namespaced(follower.writer.clone(), cluster.namespace()),
            store: follower.store.clone(),
            request: NamespacedName::namespaced(cluster.namespace(), format!("written-{number}")),
            changes: Vec::new(),
        };
        writing.spawn(async move {
            for round in 0..rounds {
                written.round(round).await;
            }
            (written.request.name().to_owned(), written.changes)
        });
    }
    let mut expected = BTreeMap::new();
    let delay = async {
        loop {
            follower.middlebox.hold();
            tokio::time::sleep(DELAY).await;
            follower.middlebox.release();
            tokio::time::sleep(DELAY).await;
        }
    };
    let finish = async {
        while let Some(ended) = writing.join_next().await {
            expected.extend([ended.expect("no writer read an older version")]);
        }
    };
    // `delay` never ends.
    tokio::select! {
        () = delay => {}
        () = finish => {}
    }

    // A write of another client comes last on the watch.
    follower.middlebox.release();
    let marker = ConfigMap {
        metadata: kube::api::ObjectMeta { name: Some("marker".to_owned()), ..Default::default() },
        ..ConfigMap::default()
    };
    cluster.api::<ConfigMap>().create(&PostParams::default(), &marker).await.expect("created");
    let caught_up = follower.books.until(|kept| kept.objects.contains_key("marker"));
    tokio::time::timeout(wait::PATIENCE, caught_up).await.expect("the watch delivers the last write");

    let kept = follower.books.kept();
    assert_eq!(kept.wrong, Vec::<String>::new());
    for (name, changes) in &expected {
        assert_eq!(
            kept.changes.get(name),
            Some(changes),
            "each change of {name} was delivered once, in order"
        );
    }
    let told: u32 = expected.values().map(|changes| u32::try_from(changes.len()).expect("few")).sum();
    let status = follower.status();
    assert_eq!((status.relists, status.decode_errors), (0, 0));
    figure("cache.own_writes.read_at_once", told.into(), "count");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_deleted_by_an_own_write_is_read_for_as_long_as_it_terminates() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let follower = Follower::start(&cluster).await;
    let store = follower.namespaces().await;
    let namespaces = Api::<Namespace>::all(follower.writer.clone());
    let name = format!("{}-held", cluster.namespace());
    let read = || store.get(&NamespacedName::cluster(name.as_str())).expect("a read");
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}})).expect("a Namespace");
    namespaces.create(&PostParams::default(), &namespace).await.expect("created");
    assert!(read().is_some(), "the written object is read");
    let maps = Api::<ConfigMap>::namespaced(cluster.client(), &name);
    let held = json!({"metadata": {"name": "held", "finalizers": ["mainstay.dev/test"]}});
    let held: ConfigMap = serde_json::from_value(held).expect("a ConfigMap");
    maps.create(&PostParams::default(), &held).await.expect("created");

    namespaces.delete(&name, &DeleteParams::default()).await.expect("its deletion to begin");
    assert!(read().expect("a terminating namespace").metadata.deletion_timestamp.is_some());
    let label = Patch::Merge(json!({"metadata": {"labels": {"step": "labelled"}}}));
    namespaces.patch(&name, &PatchParams::default(), &label).await.expect("labelled");
    assert_eq!(
        read().expect("a terminating namespace").labels().get("step").map(String::as_str),
        Some("labelled")
    );
    // The namespace controller writes the remaining content into the status: the watch delivers it.
    let says_why = async || read().and_then(|namespace| namespace.status.clone()?.conditions).is_some();
    wait::until_so("the namespace to name its remaining content", says_why).await;

    let release = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    maps.patch("held", &PatchParams::default(), &release).await.expect("released");
    wait::until_so("the namespace to be gone", async || read().is_none()).await;
}
