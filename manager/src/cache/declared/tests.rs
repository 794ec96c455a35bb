use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::cache::tests::fixtures::{ByHand, object};
use crate::cache::{ReadError, Store};

fn handle(by_hand: &ByHand) -> Store {
    Store::new(Arc::clone(&by_hand.store))
}

/// Declares an index by one closure that captures a value, as a controller does each time it is added.
fn declare(store: &Store, value: &'static str) -> Result<(), IndexError> {
    store.index_view("by-value", move |_| Ok(vec![value.to_owned()]))
}

fn found(store: &Store, value: &str) -> usize {
    store.list(&Select::index("by-value", value)).unwrap().len()
}

/// Returns the number of index functions that are called for each new version.
fn functions(by_hand: &ByHand) -> usize {
    by_hand.store.core().functions().len()
}

#[tokio::test]
async fn an_index_is_removed_with_the_last_clone_or_view_of_its_handle_and_may_be_declared_again() {
    let by_hand = ByHand::listed(&[object("a", "u1", 5)]);
    for value in ["first", "second"] {
        // `by_hand` keeps the store alive between the rounds.
        let store = handle(&by_hand);
        declare(&store, value).unwrap();
        let (clone, view) = (store.clone(), store.view::<serde_json::Value>());
        drop(store);
        assert_eq!(found(&clone, value), 1);
        drop(clone);
        assert_eq!(view.list(&Select::index("by-value", value)).unwrap().len(), 1);
        assert_eq!(functions(&by_hand), 1);
        drop(view);
        assert_eq!(functions(&by_hand), 0);
    }
}

#[tokio::test]
async fn an_object_is_found_under_each_of_its_values_and_once_under_each() {
    let by_hand = ByHand::unlisted();
    let store = handle(&by_hand);
    // Declared before the first list.
    let letters = |view: &View| Ok(view.meta().name().chars().map(String::from).collect());
    store.index_view("by-letter", letters).unwrap();
    assert!(matches!(store.list(&Select::index("by-letter", "a")), Err(ReadError::NotSynced { .. })));
    by_hand.relisted(&[object("anna", "u1", 5), object("ben", "u2", 6)], 10);
    let found = |letter: &str| store.list(&Select::index("by-letter", letter)).unwrap().len();
    assert_eq!((found("a"), found("n"), found("b"), found("x")), (1, 2, 1, 0));
    let both = Select::index("by-letter", "n").indexed("by-letter", "b");
    assert_eq!(store.list(&both).unwrap().len(), 1, "only the object with both values");
    by_hand.deleted(&object("anna", "u1", 11));
    assert_eq!((found("a"), found("n")), (0, 1));
}

#[tokio::test]
async fn handles_of_one_store_have_separate_index_names() {
    let by_hand = ByHand::listed(&[object("a", "u1", 5), object("b", "u2", 6)]);
    let (one, other, third) = (handle(&by_hand), handle(&by_hand), handle(&by_hand));
    declare(&one, "one").unwrap();
    other.index_view("by-value", |view| Ok(vec![view.meta().name().to_owned()])).unwrap();
    assert_eq!((found(&one, "one"), found(&one, "a")), (2, 0));
    assert_eq!((found(&other, "one"), found(&other, "a")), (0, 1));
    let error = third.list(&Select::index("by-value", "a")).map(drop).unwrap_err();
    assert!(matches!(error, ReadError::UnknownIndex { .. }));
    assert_eq!(
        error.to_string(),
        "this handle of the cache of ConfigMap has no index \"by-value\"; \
         declare it with index() first"
    );
    drop(one);
    by_hand.changed(&object("c", "u3", 11));
    assert_eq!(found(&other, "c"), 1, "the other index is still updated");
}

#[tokio::test]
async fn an_index_name_may_be_declared_again_only_by_the_same_code() {
    let by_hand = ByHand::listed(&[object("a", "u1", 5)]);
    let store = handle(&by_hand);
    declare(&store, "old").unwrap();
    declare(&store, "new").unwrap();
    assert_eq!((found(&store, "old"), found(&store, "new")), (0, 1), "the newer function replaces the older");
    by_hand.changed(&object("b", "u2", 11));
    assert_eq!((found(&store, "old"), found(&store, "new")), (0, 2));
    assert_eq!(functions(&by_hand), 1);

    let error = store.index_view("by-value", |_| Ok(Vec::new())).unwrap_err();
    assert_eq!(
        error.to_string(),
        "this handle of the cache of ConfigMap has another index \"by-value\" already; \
         give one of them another name"
    );
    assert_eq!(found(&store, "new"), 2, "the earlier index stays");
    assert_eq!(functions(&by_hand), 1);
}

#[tokio::test]
async fn a_closure_without_captures_is_indexed_only_once() {
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let by_hand = ByHand::listed(&[object("a", "u1", 5)]);
    let store = handle(&by_hand);
    for _ in 0..3 {
        let declared = store.index_view("counting", |_| {
            CALLS.fetch_add(1, Ordering::Relaxed);
            Ok(Vec::new())
        });
        declared.unwrap();
    }
    assert_eq!(CALLS.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_list_holds_the_index_it_reads_by() {
    let by_hand = ByHand::listed(&[object("a", "u1", 5)]);
    let store = handle(&by_hand);
    declare(&store, "x").unwrap();
    let (select, held) = store.declared.resolve(&Select::index("by-value", "x"));
    declare(&store, "y").unwrap();
    drop(store);
    assert_eq!(by_hand.store.list(&select).unwrap().len(), 1);
    drop(held);
    assert!(by_hand.store.list(&select).is_err());
    assert_eq!(functions(&by_hand), 0);
}

#[tokio::test]
async fn failures_of_an_index_leave_the_status_with_its_last_handle() {
    let by_hand = ByHand::listed(&[object("a", "u1", 5)]);
    let (one, other) = (handle(&by_hand), handle(&by_hand));
    for store in [&one, &other] {
        store.index_view("fails", |_| Err("on purpose".into())).unwrap();
    }
    drop(one);
    assert_eq!(by_hand.store.status().unindexed["fails"], 2, "the other handle has an index of this name");
    drop(other);
    assert!(by_hand.store.status().unindexed.is_empty());
}

#[test]
fn indexes_added_and_removed_during_changes_do_not_corrupt_lists() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _entered = runtime.enter();
    let by_hand = ByHand::listed(&[]);
    let steady = handle(&by_hand);
    steady.index_view("by-name", |view| Ok(vec![view.meta().name().to_owned()])).unwrap();
    std::thread::scope(|scope| {
        let churning = scope.spawn(|| {
            for _ in 0..300 {
                let (one, other) = (handle(&by_hand), handle(&by_hand));
                declare(&one, "one").unwrap();
                declare(&other, "other").unwrap();
                // Removing the first index moves the later ones to other positions.
                drop(one);
                assert_eq!(found(&other, "one"), 0);
            }
        });
        for version in 11.. {
            let name = format!("n{}", version % 7);
            by_hand.changed(&object(&name, &name, version));
            let entries = steady.list(&Select::index("by-name", &*name)).unwrap();
            let names: Vec<&str> = entries.iter().map(|entry| entry.meta().name()).collect();
            assert_eq!(names, [name]);
            if churning.is_finished() {
                break;
            }
        }
    });
    assert_eq!(functions(&by_hand), 1);
}
