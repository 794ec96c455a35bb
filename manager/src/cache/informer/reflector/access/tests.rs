use tokio::time::Instant;

use super::*;
use crate::cache::informer::reflector::tests::{between, never_resync};
use crate::cache::tests::fixtures::{Rig, config_map, object};
use crate::cache::{CacheSettings, Projection};

#[tokio::test(start_paused = true)]
async fn a_right_revoked_during_a_watch_is_reported_within_a_minute() {
    let (mut rig, store, _stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    rig.server.allow(false);
    let began = Instant::now();
    for _ in 0..5 {
        assert!(!store.status().absent);
        let call = rig.server.next().await;
        assert!(call.is_watch_at(10), "{}", call.uri);
        call.refuse(403, "Forbidden");
    }
    tokio::task::yield_now().await;
    assert!(store.status().absent);
    between(42.0..54.1, began.elapsed());
    rig.server.allow(true);
    let began = Instant::now();
    let _stream = rig.server.next().await.stream();
    tokio::time::sleep(Duration::from_millis(1001)).await;
    assert_eq!((store.status().down_since, store.status().absent), (None, false));
    between(4.0..6.0, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn false_denials_make_reviews_rarer_until_a_watch_is_denied_too() {
    let (mut rig, store, stream) = Rig::synced(&[]).await;
    rig.server.allow(false);
    let mut began = Instant::now();
    let mut open = vec![stream];
    for times in [1.0, 2.0, 4.0] {
        let call = rig.server.next().await;
        between(30.0 * times..36.1 * times, began.elapsed());
        began = Instant::now();
        assert!(call.is_watch_at(10), "{}", call.uri);
        assert_eq!(store.status().down_since, None);
        let stream = call.stream();
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert!(!stream.is_closed() && store.status().down_since.is_none());
        open.push(stream);
    }
    // A confirmed denial restores the period.
    drop(open);
    rig.server.next().await.refuse(403, "Forbidden");
    let _stream = rig.server.next().await.stream();
    let began = Instant::now();
    let call = rig.server.next().await;
    assert!(call.is_watch_at(10), "{}", call.uri);
    between(30.0..36.1, began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_watch_goes_on_if_its_review_is_allowed_or_refused() {
    for allowed in [Some(true), None] {
        let (mut rig, store, stream) = Rig::synced(&[]).await;
        match allowed {
            Some(allowed) => rig.server.allow(allowed),
            None => rig.server.refuse_reviews(),
        }
        let call = tokio::time::timeout(Duration::from_mins(4), rig.server.next()).await;
        assert!(call.is_err() && !stream.is_closed(), "one watch all the time");
        assert!((6..=8).contains(&rig.server.take_reviews().len()));
        assert_eq!(store.status().down_since, None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_review_has_the_kind_namespace_name_and_selectors_of_the_watch() {
    let mut rig = Rig::start(CacheSettings { namespaces: vec!["shop".into()], ..never_resync() });
    let scope = Scope::all().fields("metadata.name=x,spec.a=b").labels("app in (a,b)".parse().unwrap());
    let store = rig.cache.kind(config_map(), scope, Projection::Full);
    let stream = rig.server.next().await.stream();
    stream.end_of_initial_events(10);
    store.settled().await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    let reviews = rig.server.take_reviews();
    let review: Value = serde_json::from_str(&reviews[0]).unwrap();
    let expected = json!({
        "verb": "watch", "group": "", "version": "v1", "resource": "configmaps",
        "namespace": "shop", "name": "x",
        "fieldSelector": {"rawSelector": "metadata.name=x,spec.a=b"},
        "labelSelector": {"rawSelector": "app in (a,b)"},
    });
    assert_eq!(review["spec"]["resourceAttributes"], expected);
    assert_eq!(only_name("spec.metadata.name=x"), None);
    assert_eq!(only_name("spec.a=b, metadata.name==y"), Some("y"));
}
