use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::*;
use crate::cache::tests::fixtures::server::Stream;
use crate::cache::tests::fixtures::{Rig, config_map, object, object_in, recorder, request};
use crate::cache::{CacheSettings, Store};

fn labelled(name: &str, version: u64, label: &str) -> Value {
    let mut object = object(name, "u1", version);
    object["metadata"]["labels"] = json!({"app": label});
    object
}

/// The names and versions of the stored objects, sorted.
fn held(store: &UntypedStore) -> Vec<String> {
    let views = store.list(&Select::all()).unwrap();
    let line = |view: &View| format!("{}@{}", view.meta().name(), view.meta().resource_version);
    let mut lines: Vec<String> = views.iter().map(line).collect();
    lines.sort();
    lines
}

fn requests(rig: &Rig) -> usize {
    rig.server.waiting()
}

/// Lets every task run until it waits; under a paused clock no time passes.
async fn rest() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_ends_with_its_last_user_and_a_new_declaration_starts_anew() {
    let (mut rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let (handler, _recorded) = recorder();
    let subscription = store.subscribe(handler);
    let core = Arc::downgrade(store.core());
    drop(store);
    rest().await;
    assert!(!stream.is_closed(), "the subscription still uses the store");
    drop(subscription);
    rest().await;
    assert!(stream.is_closed(), "the watch has ended");
    assert!(core.upgrade().is_none(), "the memory is freed");
    assert_eq!(rig.cache.kinds().len(), 0, "its health check and metrics are gone");
    let again = rig.config_maps();
    let stream = rig.server.next().await.stream();
    stream.event("ADDED", &object("b", "u2", 12));
    stream.end_of_initial_events(20);
    again.settled().await;
    assert_eq!(held(&again), ["b@12"]);
}

#[tokio::test(start_paused = true)]
async fn a_held_entry_keeps_no_watch_open() {
    let (_rig, store, stream) = Rig::synced(&[object("a", "u1", 5)]).await;
    let typed: crate::cache::Store = crate::cache::Store::new(store);
    let entry = typed.entry(&request("a")).unwrap().unwrap();
    drop(typed);
    rest().await;
    assert!(stream.is_closed());
    assert_eq!(entry.decode().unwrap().metadata.name.as_deref(), Some("a"));
}

#[tokio::test(start_paused = true)]
async fn waiting_for_all_stores_skips_a_dropped_one() {
    let mut rig = Rig::start(CacheSettings::default());
    let store = rig.config_maps();
    let call = rig.server.next().await;
    let settled = rig.cache.settled();
    tokio::pin!(settled);
    assert!(futures_util::poll!(settled.as_mut()).is_pending());
    drop(store);
    settled.await;
    drop(call);
}

/// A wide store with `objects`, and a narrower store that was declared before it and is a part of it.
async fn wide_and_narrow(
    scope: Scope,
    objects: &[Value],
) -> (Rig, Arc<UntypedStore>, Arc<UntypedStore>, Stream) {
    let mut rig = Rig::start(CacheSettings::default());
    let narrow = rig.cache.kind(config_map(), scope, Projection::Full);
    let wide = rig.config_maps();
    let stream = rig.server.next().await.stream();
    for object in objects {
        stream.event("ADDED", object);
    }
    stream.end_of_initial_events(10);
    wide.settled().await;
    narrow.settled().await;
    rest().await;
    assert_eq!(requests(&rig), 0, "one list and watch for both");
    (rig, narrow, wide, stream)
}

#[tokio::test(start_paused = true)]
async fn a_narrower_scope_declared_before_the_start_reads_through_the_wider_one() {
    let objects = [object("a", "u1", 5), object_in("bank", "b", "u2", 6)];
    let (rig, narrow, wide, _stream) = wide_and_narrow(Scope::namespace("shop"), &objects).await;
    assert_eq!((held(&narrow), held(&wide)), (vec!["a@5".into()], vec!["a@5".into(), "b@6".into()]));
    assert_eq!(rig.cache.kinds().len(), 1);
    assert!(narrow.get(&request("a")).unwrap().is_some());
    let error = narrow.get(&NamespacedName::namespaced("bank", "b")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "namespace bank of ConfigMap is outside the cache's scope (namespace shop); declare the store with a \
         wider scope"
    );
    assert!(matches!(narrow.list(&Select::namespace("bank")), Err(ReadError::OutOfScope { .. })));
}

#[tokio::test(start_paused = true)]
async fn an_object_entering_a_part_is_created_and_one_leaving_it_is_deleted() {
    let objects = [labelled("a", 5, "web"), labelled("b", 6, "api")];
    let (_rig, narrow, _wide, stream) =
        wide_and_narrow(Scope::all().labels("app=web".parse().unwrap()), &objects).await;
    let (handler, mut recorded) = recorder();
    let mut subscription = narrow.subscribe(handler);
    subscription.synced().await;
    stream.event("MODIFIED", &labelled("b", 11, "api"));
    stream.event("MODIFIED", &labelled("b", 12, "web"));
    stream.event("MODIFIED", &labelled("b", 13, "web"));
    stream.event("MODIFIED", &labelled("a", 14, "api"));
    stream.event("DELETED", &labelled("a", 15, "api"));
    stream.event("DELETED", &labelled("b", 16, "web"));
    assert_eq!(recorded.take(5).await, ["+ a@5 initial", "+ b@12", "b@12 -> b@13", "- a@5", "- b@13"]);
    assert!(recorded.is_empty());
    assert_eq!(held(&narrow), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_part_keeps_its_wider_store_and_moves_its_indexes_and_handlers_there() {
    let mut rig = Rig::start(CacheSettings::default());
    let narrow = rig.cache.kind(config_map(), Scope::namespace("shop"), Projection::Full);
    let (handler, mut recorded) = recorder();
    let mut subscription = narrow.subscribe(handler);
    let by_name: Store = Store::new(narrow.clone());
    by_name.index_view("name", |view| Ok(vec![view.meta().name().to_owned()])).unwrap();
    drop(rig.config_maps());
    // The wide store was dropped before the start, so the narrow one lists its own scope.
    let stream = rig.server.next().await;
    assert!(stream.has("/namespaces/shop/"));
    drop(stream);
    drop((narrow, by_name, subscription));
    rest().await;

    let narrow = rig.cache.kind(config_map(), Scope::namespace("shop"), Projection::Full);
    let (handler, mut recorded_again) = recorder();
    subscription = narrow.subscribe(handler);
    let by_name: Store = Store::new(narrow.clone());
    by_name.index_view("name", |view| Ok(vec![view.meta().name().to_owned()])).unwrap();
    let (wide, asked) = (rig.config_maps(), Arc::new(AtomicUsize::new(0)));
    let same: Store = Store::new(wide.clone());
    let counted = asked.clone();
    same.index_view("name", move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(vec!["same".to_owned()])
    })
    .unwrap();
    let call = loop {
        let call = rig.server.next().await;
        if !call.has("/namespaces/shop/") {
            break call;
        }
    };
    drop(wide);
    let stream = call.stream();
    stream.event("ADDED", &object("a", "u1", 5));
    stream.event("ADDED", &object_in("bank", "b", "u2", 6));
    stream.end_of_initial_events(10);
    subscription.synced().await;
    assert_eq!(recorded_again.take(1).await, ["+ a@5 initial"]);
    assert!(recorded.is_empty() && recorded_again.is_empty());
    assert_eq!(by_name.list(&Select::index("name", "a")).unwrap().len(), 1);
    assert_eq!(by_name.list(&Select::index("name", "b")).unwrap().len(), 0, "outside the part");
    assert!(matches!(by_name.list(&Select::index("other", "b")), Err(ReadError::UnknownIndex { .. })));
    assert_eq!(
        same.list(&Select::index("name", "same")).unwrap().len(),
        2,
        "the same name on another handle is another index"
    );

    drop(same);
    stream.event("MODIFIED", &object("a", "u1", 11));
    stream.bookmark(20);
    narrow.caught_up(&request("a"), &ResourceVersion::new("20")).await.unwrap();
    assert_eq!(asked.load(Ordering::Relaxed), 2, "the function of a removed index is not called");
    assert_eq!(by_name.list(&Select::index("name", "a")).unwrap().len(), 1, "the other index stays");
    let source = narrow.source().clone();
    assert_eq!(source.functions().len(), 1);
    drop(by_name);
    assert_eq!(source.functions().len(), 0, "also removed from the wide store");
}

#[tokio::test(start_paused = true)]
async fn a_narrower_scope_declared_later_reads_through_a_running_store() {
    let (rig, wide, stream) = Rig::synced(&[object("a", "u1", 5), object_in("bank", "b", "u2", 6)]).await;
    let narrow = rig.cache.kind(config_map(), Scope::namespace("bank"), Projection::Full);
    narrow.settled().await;
    assert_eq!(held(&narrow), ["b@6"]);
    drop(wide);
    stream.event("MODIFIED", &object_in("bank", "b", "u2", 11));
    let (handler, mut recorded) = recorder();
    let _subscription = narrow.subscribe(handler);
    assert_eq!(recorded.next().await, "+ b@6 initial");
    assert_eq!(recorded.next().await, "b@6 -> b@11");
    assert_eq!(requests(&rig), 0);
}

#[tokio::test(start_paused = true)]
async fn a_full_part_does_not_widen_a_metadata_store() {
    let mut rig = Rig::start(CacheSettings::default());
    let _metadata = rig.cache.kind(config_map(), Scope::all(), Projection::Metadata);
    let _shop = rig.cache.kind(config_map(), Scope::namespace("shop"), Projection::Full);
    let (one, two) = (rig.server.next().await, rig.server.next().await);
    assert_eq!((one.has("/namespaces/shop/"), two.has("/namespaces/shop/")), (false, true));
    assert_eq!((one.accept.contains("PartialObjectMetadata"), &*two.accept), (true, "application/json"));
}

#[tokio::test(start_paused = true)]
async fn a_full_store_does_not_share_a_part_of_a_metadata_store() {
    let mut rig = Rig::start(CacheSettings::default());
    let _wide = rig.cache.kind(config_map(), Scope::all(), Projection::Metadata);
    rig.server.next().await.stream().end_of_initial_events(10);
    let part = rig.cache.kind(config_map(), Scope::namespace("shop"), Projection::Metadata);
    part.settled().await;
    assert!(part.is_synced());
    let whole = rig.cache.kind(config_map(), Scope::namespace("shop"), Projection::Full);
    assert!(!Arc::ptr_eq(&part, &whole));
    assert!(rig.server.next().await.has("/namespaces/shop/"));
    assert_eq!((part.projection(), whole.projection()), (Projection::Metadata, Projection::Full));
}
