//! Tests of single behaviours of the store; `model` compares it with a simple model.

use std::sync::atomic::{AtomicI64, Ordering};

use serde_json::json;

use super::*;

mod model;

fn widgets() -> GroupResource {
    GroupResource::new("example.com", "widgets")
}

fn clock_at(second: &Arc<AtomicI64>) -> Clock {
    let second = Arc::clone(second);
    Arc::new(move || Timestamp::from_second(second.load(Ordering::Relaxed)).unwrap())
}

fn store_with(window: Window) -> Store {
    Store::new(window, clock_at(&Arc::default()))
}

fn small(min_changes: usize) -> Window {
    Window { min_changes, max_changes: min_changes, min_age: Duration::ZERO, watch_buffer: min_changes }
}

fn revisions(changes: &[Arc<Change>]) -> Vec<u64> {
    changes.iter().map(|change| change.revision()).collect()
}

#[test]
fn an_object_carries_the_revision_of_its_write() {
    let store = store_with(Window::default());
    let key = Key::new("a", "x");
    let first = store.create(&widgets(), key.clone(), json!({"metadata": {}})).unwrap();
    assert_eq!(first.value(), &json!({"metadata": {"resourceVersion": "2"}}));
    let second =
        store.update(&widgets(), &key, json!({"v": 1, "metadata": {"resourceVersion": "2"}}), 2).unwrap();
    assert_eq!(second.json(), r#"{"metadata":{"resourceVersion":"3"},"v":1}"#);
    let gone = store.delete(&widgets(), &key, 3).unwrap();
    assert_eq!(gone.json(), r#"{"metadata":{"resourceVersion":"4"},"v":1}"#);
    assert!(store.get(&widgets(), &key).is_none());
}

#[test]
fn a_write_against_another_revision_is_refused() {
    let store = store_with(Window::default());
    let key = Key::new("", "x");
    store.create(&widgets(), key.clone(), json!({})).unwrap();
    assert!(matches!(store.create(&widgets(), key.clone(), json!({})), Err(WriteError::Exists(_))));
    assert!(matches!(store.update(&widgets(), &key, json!({}), 1), Err(WriteError::Conflict(Some(_)))));
    assert!(matches!(store.delete(&widgets(), &key, 3), Err(WriteError::Conflict(Some(_)))));
    assert!(matches!(store.delete(&widgets(), &Key::new("", "y"), 3), Err(WriteError::Conflict(None))));
    assert_eq!(store.revision(), 2, "a refused write takes no revision");
}

#[test]
fn frames_of_one_version_hold_the_same_object() {
    let store = store_with(Window::default());
    let version = store.create(&widgets(), Key::new("", "x"), json!({})).unwrap();
    let object = r#"{"metadata":{"resourceVersion":"2"}}"#;
    assert_eq!(version.json(), object);
    for event in [EventType::Added, EventType::Modified, EventType::Deleted] {
        let expected = format!("{{\"type\":\"{}\",\"object\":{object}}}\n", event.as_str());
        assert_eq!(version.frame(event), expected);
    }
    let (json, frame) = (version.json(), version.frame(EventType::Added));
    assert_eq!(json.as_ptr(), frame[25..].as_ptr(), "the object is encoded once");
}

#[test]
fn changes_expire_by_number_and_beyond_the_minimum_by_age() {
    let second = Arc::default();
    let window = Window { min_changes: 2, max_changes: 4, min_age: Duration::from_secs(75), watch_buffer: 0 };
    let store = Store::new(window, clock_at(&second));
    let create = |name: &str| store.create(&widgets(), Key::new("", name), json!({})).unwrap();
    for name in ["a", "b", "c", "d"] {
        create(name);
    }
    assert!(store.watch(&widgets(), 1).is_ok(), "four changes fit");
    create("e");
    assert_eq!(store.watch(&widgets(), 1).unwrap_err(), ReadError::Expired { requested: 1, floor: 2 });
    second.store(75, Ordering::Relaxed);
    create("f");
    assert!(store.watch(&widgets(), 3).is_ok(), "75 seconds are not too old");
    second.store(76, Ordering::Relaxed);
    create("g");
    assert_eq!(store.watch(&widgets(), 5).unwrap_err(), ReadError::Expired { requested: 5, floor: 6 });
}

#[tokio::test]
async fn after_compaction_older_reads_expire_and_connected_watchers_go_on() {
    let store = store_with(Window::default());
    let mut watcher = store.watch(&widgets(), 1).unwrap();
    store.create(&widgets(), Key::new("", "a"), json!({})).unwrap();
    store.create(&widgets(), Key::new("", "b"), json!({})).unwrap();
    store.compact();
    let expired = ReadError::Expired { requested: 2, floor: 3 };
    assert_eq!(store.list(&widgets(), None, None, At::Exact(2)).unwrap_err(), expired);
    assert_eq!(store.watch(&widgets(), 2).unwrap_err(), expired);
    assert_eq!(store.watch(&GroupResource::new("", "pods"), 2).unwrap_err(), expired);
    assert!(store.list(&widgets(), None, None, At::Exact(3)).is_ok());
    assert_eq!(revisions(&watcher.next().await.unwrap()), [2, 3]);
}

#[tokio::test]
async fn a_watcher_that_falls_behind_is_cut() {
    let store = store_with(small(3));
    let (mut slow, mut fast) = (store.watch(&widgets(), 1).unwrap(), store.watch(&widgets(), 1).unwrap());
    for name in ["a", "b", "c"] {
        store.create(&widgets(), Key::new("", name), json!({})).unwrap();
    }
    assert_eq!(revisions(&fast.next().await.unwrap()), [2, 3, 4]);
    store.create(&widgets(), Key::new("", "d"), json!({})).unwrap();
    assert!(slow.next().await.is_none());
    assert_eq!(revisions(&fast.next().await.unwrap()), [5]);
}

#[tokio::test]
async fn ended_watches_return_only_changes_made_before_the_end() {
    let store = store_with(Window::default());
    let mut watcher = store.watch(&widgets(), 1).unwrap();
    store.create(&widgets(), Key::new("", "a"), json!({})).unwrap();
    store.end_watches(&widgets());
    store.create(&widgets(), Key::new("", "b"), json!({})).unwrap();
    let mut later = store.watch(&widgets(), 1).unwrap();
    assert_eq!(revisions(&watcher.next().await.unwrap()), [2]);
    assert!(watcher.next().await.is_none());
    assert_eq!(revisions(&later.next().await.unwrap()), [2, 3]);
}

#[tokio::test]
async fn a_waiting_watcher_wakes_on_a_write_and_skips_other_resources() {
    let store = store_with(Window::default());
    let mut watcher = store.watch(&widgets(), 1).unwrap();
    store.create(&GroupResource::new("", "pods"), Key::new("", "p"), json!({})).unwrap();
    assert!(watcher.ready().unwrap().is_empty());
    assert_eq!(watcher.seen(), 2, "writes to other resources count as seen");
    let write = async {
        tokio::task::yield_now().await;
        store.create(&widgets(), Key::new("", "a"), json!({})).unwrap()
    };
    let (changes, _) = tokio::join!(watcher.next(), write);
    assert_eq!(revisions(&changes.unwrap()), [3]);
}

#[test]
fn an_imported_object_keeps_its_revision_and_later_writes_get_higher_ones() {
    let store = store_with(Window::default());
    let key = Key::new("", "x");
    let mut watcher = store.watch(&widgets(), 1).unwrap();
    store.import(&widgets(), key.clone(), json!({}), 70);
    store.import(&widgets(), Key::new("", "old"), json!({}), 5);
    assert_eq!(store.get(&widgets(), &key).unwrap().revision(), 70);
    assert_eq!(store.get(&widgets(), &Key::new("", "old")).unwrap().revision(), 5);
    let expired = ReadError::Expired { requested: 69, floor: 70 };
    assert_eq!(store.list(&widgets(), None, None, At::Exact(69)).unwrap_err(), expired);
    assert_eq!(store.update(&widgets(), &key, json!({}), 70).unwrap().revision(), 71);
    assert_eq!(revisions(&watcher.ready().unwrap()), [71], "an import is no change");
}

#[test]
fn lists_are_in_byte_order_of_keys_and_stay_in_their_namespace() {
    let store = store_with(Window::default());
    for (namespace, name) in [("a", "x"), ("a-b", "x"), ("a", "w"), ("b", "x")] {
        store.create(&widgets(), Key::new(namespace, name), json!({})).unwrap();
    }
    let list = |namespace, after| -> Vec<String> {
        let listing = store.list(&widgets(), namespace, after, At::Newest).unwrap();
        listing.items.iter().map(|version| version.key().as_str().to_owned()).collect()
    };
    assert_eq!(list(None, None), ["a-b/x", "a/w", "a/x", "b/x"]);
    assert_eq!(list(Some("a"), None), ["a/w", "a/x"]);
    assert_eq!(list(Some("a"), Some("a/w")), ["a/x"]);
    assert_eq!(list(Some("a"), Some("")), ["a/w", "a/x"], "a start before the namespace does not leave it");
    assert_eq!(list(Some("a"), Some("b/a")), ["a/w", "a/x"]);
}

#[test]
fn a_future_revision_is_refused_by_lists_and_accepted_by_watches() {
    let store = store_with(Window::default());
    let future = ReadError::Future { requested: 9, current: 1 };
    assert_eq!(store.list(&widgets(), None, None, At::Exact(9)).unwrap_err(), future);
    assert_eq!(store.list(&widgets(), None, None, At::NotOlderThan(9)).unwrap_err(), future);
    assert!(store.watch(&widgets(), 9).is_ok());
}
