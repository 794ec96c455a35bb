//! Transforms of objects on their way into the cache.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::fixtures::{Rig, config_map, object, request};
use super::{bytes, path};
use crate::cache::{CacheSettings, Projection, ResourceVersion, Scope};
use crate::client::{Current as _, Extent, WriteObserver as _, Writer};

#[tokio::test(start_paused = true)]
async fn a_transform_sees_each_version_once_and_before_handlers_and_readers() {
    let mut rig = Rig::start(CacheSettings { resync: Duration::ZERO, ..CacheSettings::default() });
    let seen = Arc::new(AtomicU64::new(0));
    let counting = seen.clone();
    let transform = move |object: &mut Value| {
        counting.fetch_add(1, Ordering::Relaxed);
        match object["metadata"]["name"].as_str() {
            Some("fails") => return Err("on purpose".into()),
            Some("panics") => panic!("on purpose"),
            Some("renamed") => object["metadata"]["name"] = json!("other"),
            _ => {}
        }
        object["metadata"]["labels"] = json!({"seen": "yes"});
        object["data"] = json!({});
        Ok(())
    };
    rig.cache.transform(config_map(), transform.clone()).unwrap();
    let taken = rig.cache.transform(config_map(), transform.clone()).unwrap_err();
    assert_eq!(taken.to_string(), "ConfigMap has a transform already; let one function do the work of both");
    let store = rig.config_maps();
    let stream = rig.server.next().await.stream();
    for (name, uid) in [("a", "u1"), ("fails", "u2"), ("panics", "u3"), ("renamed", "u4")] {
        stream.event("ADDED", &object(name, uid, 5));
    }
    stream.end_of_initial_events(10);
    store.settled().await;
    let view = store.get(&request("a")).unwrap().unwrap();
    let left = serde_json::from_slice::<Value>(&view.json()).unwrap();
    assert_eq!((&left["data"], &left["metadata"]["labels"]), (&json!({}), &json!({"seen": "yes"})));
    assert_eq!((store.status().objects, store.status().decode_errors), (1, 3));
    rig.cache.written(&path(Some("a")), &bytes(&object("a", "u1", 12)), Writer::default());
    stream.event("MODIFIED", &object("a", "u1", 12));
    stream.bookmark(20);
    store.caught_up(&request("a"), &ResourceVersion::new("20")).await.unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 5, "the event of an own write is no new version");
}

#[tokio::test(start_paused = true)]
async fn an_object_changed_by_a_transform_is_marked_as_changed() {
    let mut rig = Rig::start(CacheSettings::default());
    let clear = |object: &mut Value| {
        if object["metadata"]["name"] == "big" {
            object["data"] = json!({});
        }
        Ok(())
    };
    rig.cache.transform(config_map(), clear).unwrap();
    let store = rig.config_maps();
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &object("big", "u1", 5));
    stream.event("ADDED", &object("small", "u2", 6));
    stream.end_of_initial_events(10);
    store.settled().await;
    let extent = |name: &str| store.get(&request(name)).unwrap().unwrap().extent();
    assert_eq!(extent("big"), Extent::Changed, "so that no writer sends its remains");
    assert_eq!(extent("small"), Extent::Whole, "the transform did not change it");
}

#[tokio::test(start_paused = true)]
async fn a_transform_that_removes_labels_and_finalizers_changes_no_selection() {
    let mut rig = Rig::start(CacheSettings::default());
    let strip = |object: &mut Value| {
        for field in ["labels", "finalizers", "ownerReferences"] {
            object["metadata"].as_object_mut().ok_or("no metadata")?.remove(field);
        }
        Ok(())
    };
    rig.cache.transform(config_map(), strip).unwrap();
    let selected =
        rig.cache.kind(config_map(), Scope::all().labels("app=web".parse().unwrap()), Projection::Full);
    let stream = rig.server.next().await.stream();
    let web = |version| {
        let mut web = object("a", "u1", version);
        web["metadata"]["labels"] = json!({"app": "web"});
        web["metadata"]["finalizers"] = json!(["x/y"]);
        web
    };
    stream.event("ADDED", &web(5));
    stream.end_of_initial_events(10);
    selected.settled().await;
    rig.cache.written(&path(Some("a")), &bytes(&web(12)), Writer::default());
    assert_eq!(rig.cache.0.uncovered(), 0, "the selection uses the server's labels");
    let view = selected.get(&request("a")).unwrap().unwrap();
    assert_eq!(view.meta().resource_version.to_string(), "12");
    assert_eq!(view.meta().finalizers.iter().map(AsRef::as_ref).collect::<Vec<_>>(), ["x/y"]);
    assert!(
        !String::from_utf8_lossy(&view.json()).contains("x/y"),
        "the body is the result of the transform"
    );
    let wide = rig.config_maps();
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &web(5));
    stream.end_of_initial_events(10);
    wide.settled().await;
    let part = rig.cache.kind(
        config_map(),
        Scope::namespace("shop").labels("app".parse().unwrap()),
        Projection::Full,
    );
    part.settled().await;
    assert!(
        part.get(&request("a")).unwrap().is_some(),
        "a part of a wider store also uses the server's labels"
    );
}
