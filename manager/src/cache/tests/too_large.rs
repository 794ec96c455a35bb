//! Objects over `cache.maxObjectBytes`: metadata is kept, and reads of the rest fail.

use std::num::NonZeroUsize;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::fixtures::{Rig, config_map, object, request};
use crate::cache::{CacheSettings, ReadError, ResourceVersion, Scope, Select, View};
use crate::client::{Current, Extent, Writer};

const LIMIT: usize = 2000;

fn settings() -> CacheSettings {
    CacheSettings { max_object_bytes: LIMIT, resync: Duration::ZERO, ..CacheSettings::default() }
}

fn padded(name: &str, uid: &str, version: u64, bytes: usize) -> Value {
    let mut object = object(name, uid, version);
    object["metadata"]["labels"] = json!({"app": "web"});
    object["data"]["x"] = "x".repeat(bytes).into();
    object
}

fn size_and_limit(error: &ReadError) -> (usize, usize) {
    let ReadError::TooLarge { size, limit, .. } = error else { panic!("{error}") };
    (*size, *limit)
}

fn kept(view: &View) -> Value {
    serde_json::from_slice(&view.json()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn of_an_object_over_the_limit_metadata_is_kept_and_reads_of_the_rest_fail_with_its_size() {
    let (rig, store, stream) = Rig::synced_with(settings(), &[padded("a", "u1", 5, 3000)]).await;
    let view = store.get(&request("a")).unwrap().unwrap();
    let mut whole = padded("a", "u1", 5, 3000);
    whole["metadata"].as_object_mut().unwrap().remove("managedFields");
    let size = whole.to_string().len();
    assert_eq!(view.extent(), Extent::TooLarge { size: size.try_into().unwrap(), bare: false });
    assert_eq!(size_and_limit(&view.bytes().unwrap_err()), (size, LIMIT));
    let typed = rig.cache.store::<ConfigMap>(Scope::all());
    let error = typed.get(&request("a")).unwrap_err();
    assert_eq!(size_and_limit(&error), (size, LIMIT));
    assert_eq!(
        error.to_string(),
        format!(
            "ConfigMap shop/a has {size} bytes, more than {LIMIT}; shrink it, or raise cache.maxObjectBytes"
        )
    );
    assert_eq!(kept(&view), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": whole["metadata"]}));
    let web = Select::all().labels("app=web".parse().unwrap());
    assert_eq!(typed.list(&web).unwrap().len(), 1, "selected by its labels");
    let status = store.status();
    assert_eq!((status.objects, status.too_large, status.decode_errors), (1, 1, 0));
    assert!(status.left_out.is_empty());
    assert!(status.bytes < 1000, "{}", status.bytes);

    // Below the limit, over it again, and deleted.
    stream.event("MODIFIED", &padded("a", "u1", 12, 10));
    stream.bookmark(13);
    store.caught_up(&request("a"), &ResourceVersion::new("13")).await.unwrap();
    assert_eq!(store.status().too_large, 0);
    assert_eq!(typed.get(&request("a")).unwrap().unwrap().data.as_ref().unwrap()["x"].len(), 10);
    let small = store.get(&request("a")).unwrap().unwrap();
    stream.event("MODIFIED", &padded("a", "u1", 14, 3000));
    stream.bookmark(15);
    store.caught_up(&request("a"), &ResourceVersion::new("15")).await.unwrap();
    let large = store.get(&request("a")).unwrap().unwrap();
    assert!(large.bytes().is_err() && store.status().too_large == 1);
    assert_ne!(large.meta().content_hash, small.meta().content_hash, "so that predicates see the change");
    stream.event("DELETED", &padded("a", "u1", 16, 3000));
    stream.bookmark(17);
    store.caught_up(&request("a"), &ResourceVersion::new("17")).await.unwrap();
    assert_eq!((store.status().objects, store.status().too_large), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn managed_fields_do_not_count_and_of_metadata_over_the_limit_only_the_identity_is_kept() {
    let mut managed = object("managed", "u1", 5);
    managed["metadata"]["managedFields"] = json!([{"manager": "x".repeat(3000)}]);
    let mut labelled = padded("labelled", "u2", 6, 3000);
    labelled["metadata"]["annotations"] = json!({"x": "x".repeat(3000)});
    let (_rig, store, _stream) = Rig::synced_with(settings(), &[managed, labelled]).await;
    assert!(store.get(&request("managed")).unwrap().unwrap().bytes().is_ok());
    let view = store.get(&request("labelled")).unwrap().unwrap();
    let metadata = json!({"name": "labelled", "namespace": "shop", "uid": "u2", "resourceVersion": "6"});
    assert_eq!(kept(&view), json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}));
    assert!(view.bytes().is_err());
    assert!(matches!(view.extent(), Extent::TooLarge { bare: true, .. }), "{:?}", view.extent());
    assert_eq!(view.meta().labels.get("app"), Some("web"), "short label lists are kept");
    assert_eq!((store.status().too_large, store.status().left_out.len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn long_label_lists_are_seen_by_index_functions_and_selectors_but_not_kept() {
    let mut long = padded("a", "u1", 5, 10);
    long["metadata"]["finalizers"] = json!(["shop/a"]);
    let labels = long["metadata"]["labels"].as_object_mut().unwrap();
    labels.extend((0..500).map(|number| (format!("label-{number}"), json!("x"))));
    let mut rig = Rig::start(settings());
    let scope = Scope::all().labels("app=web".parse().unwrap());
    let store = rig.cache.store::<ConfigMap>(scope);
    let app = |view: &View| Ok(view.meta().labels.get("app").map(String::from).into_iter().collect());
    store.index_view("app", app).unwrap();
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &long);
    stream.end_of_initial_events(10);
    store.untyped().settled().await;
    let found = store.list(&Select::index("app", "web")).unwrap();
    assert!(found[0].meta().labels.is_empty());
    assert_eq!(found[0].meta().finalizers.len(), 1);
    long["metadata"]["resourceVersion"] = "12".into();
    store.untyped().core().written(long.to_string().as_bytes(), Writer::default());
    let kept = store.entry(&request("a")).unwrap().expect("selected by its labels");
    assert_eq!(kept.meta().resource_version.to_string(), "12");
}

#[tokio::test(start_paused = true)]
async fn a_transform_is_not_called_for_an_object_over_the_limit() {
    let mut rig = Rig::start(settings());
    rig.cache.transform(config_map(), |_| Err("decoded".into())).unwrap();
    let store = rig.config_maps();
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &padded("a", "u1", 5, 3000));
    stream.end_of_initial_events(10);
    store.settled().await;
    assert!(store.get(&request("a")).unwrap().unwrap().is_too_large());
}

#[tokio::test(start_paused = true)]
async fn a_handle_may_have_a_lower_limit_than_the_cache() {
    let (rig, _store, _stream) = Rig::synced_with(settings(), &[padded("a", "u1", 5, 1000)]).await;
    let whole = rig.cache.store::<ConfigMap>(Scope::all());
    let limited = whole.limited_to_share(NonZeroUsize::new(4).unwrap());
    assert!(whole.get(&request("a")).unwrap().is_some());
    let error = limited.view::<ConfigMap>().get(&request("a")).unwrap_err();
    assert_eq!(size_and_limit(&error).1, LIMIT / 4);
    assert_eq!(limited.entry(&request("a")).unwrap().unwrap().meta().name(), "a");
}

#[tokio::test(start_paused = true)]
async fn an_index_function_sees_the_whole_object_before_it_is_cut_to_metadata() {
    let mut rig = Rig::start(settings());
    let typed = rig.cache.store::<ConfigMap>(Scope::all());
    typed
        .index_view("by-at", |view| {
            Ok(view.decode::<ConfigMap>()?.data.clone().unwrap_or_default().into_values().collect())
        })
        .unwrap();
    typed.index("typed", |map| vec![map.metadata.name.clone().unwrap_or_default()]).unwrap();
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &padded("a", "u1", 5, 3000));
    stream.end_of_initial_events(10);
    typed.untyped().settled().await;
    let found = typed.list(&Select::index("by-at", "5")).unwrap();
    assert_eq!(found.len(), 1);
    assert!(found[0].decode().is_err(), "only metadata is kept");
    assert!(
        typed.list(&Select::index("typed", "a")).unwrap().is_empty(),
        "a typed index function is not called"
    );
}
