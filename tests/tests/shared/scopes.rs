//! A store holds the objects that its scope selects, as the real server evaluates selectors.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::PostParams;
use kube::core::DynamicObject;
use mainstay::cache::{Cache, CacheSettings, Projection, ReadError, Scope, Select, Store};
use mainstay::key::{KindId, NamespacedName};
use mainstay::metrics::Registry;
use mainstay_tests::TestCluster;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// Starts a cache of one test's namespace. Dropping the `JoinSet` stops it.
fn start(cluster: &TestCluster) -> (Cache, JoinSet<()>) {
    let settings =
        CacheSettings { namespaces: vec![cluster.namespace().to_owned()], ..CacheSettings::default() };
    let cache = Cache::new(settings, cluster.client(), &Registry::new());
    let (mut running, to_run) = (JoinSet::new(), cache.clone());
    running.spawn(async move { to_run.run(CancellationToken::new()).await });
    (cache, running)
}

async fn create(cluster: &TestCluster, name: &str, labels: &Value) {
    let map = json!({"metadata": {"name": name, "labels": labels}});
    let map: ConfigMap = serde_json::from_value(map).expect("a ConfigMap");
    cluster.api().create(&PostParams::default(), &map).await.expect("created");
}

fn names<K>(store: &Store<K>, select: &Select) -> BTreeSet<String> {
    let entries = store.list(select).expect("a synced store");
    entries.iter().map(|entry| entry.meta().name().to_owned()).collect()
}

#[tokio::test]
async fn a_store_holds_the_objects_of_its_selectors_in_both_projections() {
    let Some(cluster) = TestCluster::shared().await else { return };
    create(&cluster, "a", &json!({"app": "web", "tier": "front"})).await;
    create(&cluster, "b", &json!({"app": "web"})).await;
    create(&cluster, "c", &json!({"app": "api"})).await;
    let namespace = cluster.namespace();
    let cases: [(Scope, &[&str]); 9] = [
        (Scope::all().labels("app".parse().expect("a selector")), &["a", "b", "c"]),
        (Scope::all().labels("app=web".parse().expect("a selector")), &["a", "b"]),
        (Scope::all().labels("app in (web, api),!tier".parse().expect("a selector")), &["b", "c"]),
        (Scope::all().labels("app=none".parse().expect("a selector")), &[]),
        (Scope::all().fields("metadata.name=b"), &["b"]),
        (Scope::all().fields("metadata.name=b").labels("app=web".parse().expect("a selector")), &["b"]),
        (Scope::all().fields("metadata.name=b").labels("app=api".parse().expect("a selector")), &[]),
        (Scope::all().fields(format!("metadata.namespace={namespace},metadata.name=c")), &["c"]),
        (Scope::namespace(namespace).labels("app=api".parse().expect("a selector")), &["c"]),
    ];
    for projection in [Projection::Full, Projection::Metadata] {
        // A cache per projection: a metadata store would read from an existing store of whole objects.
        let (cache, _running) = start(&cluster);
        let declared = cases.iter().map(|(scope, expected)| {
            let store = cache.kind(KindId::of::<ConfigMap>(), scope.clone(), projection);
            (Store::<DynamicObject>::new(store), *expected)
        });
        let declared: Vec<_> = declared.collect();
        timeout(mainstay_tests::wait::PATIENCE, cache.settled()).await.expect("listed");
        for (store, expected) in declared {
            let scope = store.untyped().scope();
            let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(names(&store, &Select::all()), expected, "{projection:?} {scope}");
            for name in ["a", "b", "c"] {
                let found =
                    store.entry(&NamespacedName::namespaced(namespace, name)).expect("a synced store");
                assert_eq!(found.is_some(), expected.contains(name), "{projection:?} {scope}: {name}");
            }
            for entry in store.list(&Select::all()).expect("a synced store") {
                let types = entry.decode().expect("an object").types.clone().unwrap_or_default();
                assert_eq!(
                    (&*types.api_version, &*types.kind),
                    ("v1", "ConfigMap"),
                    "{projection:?} {scope}"
                );
            }
        }
    }
}

#[tokio::test]
async fn a_cache_of_some_namespaces_reads_kinds_without_namespaces_and_refuses_others() {
    let Some(cluster) = TestCluster::shared().await else { return };
    create(&cluster, "a", &json!({})).await;
    let (cache, _running) = start(&cluster);
    let namespaces = cache.store::<Namespace>(Scope::all());
    let maps = cache.store::<ConfigMap>(Scope::all());
    let elsewhere = cache.store::<ConfigMap>(Scope::namespace("kube-system"));
    namespaces
        .index("by-first-label", |namespace| {
            namespace.metadata.labels.iter().flat_map(|labels| labels.values().cloned()).collect()
        })
        .expect("an index");
    timeout(mainstay_tests::wait::PATIENCE, cache.settled()).await.expect("listed");

    let own = cluster.namespace();
    for name in [own, "kube-system"] {
        assert!(namespaces.get(&NamespacedName::cluster(name)).expect("a synced store").is_some(), "{name}");
        // The server labels each namespace with its name.
        assert_eq!(
            names(&namespaces, &Select::index("by-first-label", name)),
            BTreeSet::from([name.to_owned()])
        );
    }
    assert!(maps.get(&NamespacedName::namespaced(own, "a")).expect("in scope").is_some());
    assert!(maps.get(&NamespacedName::namespaced(own, "none")).expect("in scope").is_none());
    let root = NamespacedName::namespaced("kube-system", "kube-root-ca.crt");
    for store in [&maps, &elsewhere] {
        let refused = store.get(&root).expect_err("out of scope");
        assert!(matches!(refused, ReadError::OutOfScope { .. }), "{refused}");
    }
}
