use std::sync::atomic::AtomicU64;

use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::cache::object::View;
use crate::cache::store::Select;
use crate::cache::tests::fixtures::{ByHand, object, object_in};
use crate::cache::{HookFailure, LabelSelector, Store};
use crate::client::Writer;

fn labelled(name: &str, version: u64, label: &str) -> Value {
    let mut object = object(name, name, version);
    object["metadata"]["labels"] = json!({"app": label});
    object
}

fn handle(by_hand: &ByHand) -> Store {
    Store::new(Arc::clone(&by_hand.store))
}

/// The names of the selected objects, sorted.
fn picked(store: &Store, select: &Select) -> Vec<String> {
    let entries = store.list(select).unwrap();
    let mut names: Vec<String> = entries.iter().map(|entry| entry.meta().name().to_owned()).collect();
    names.sort();
    names
}

/// An index function: the length of the name, which is not in any label.
#[expect(clippy::unnecessary_wraps, reason = "the shape of an index function")]
fn length(view: &View) -> Result<Vec<String>, HookFailure> {
    Ok(vec![view.meta().name().len().to_string()])
}

#[tokio::test]
async fn an_index_by_function_follows_every_change_whenever_it_was_declared() {
    let by_hand = ByHand::listed(&[object("a", "u1", 5), object("bb", "u2", 6)]);
    let store = &handle(&by_hand);
    store.index_view("length", length).unwrap();
    assert_eq!(picked(store, &Select::index("length", "2")), ["bb"]);
    by_hand.changed(&object("cc", "u3", 11));
    by_hand.deleted(&object("bb", "u2", 12));
    by_hand.written(&object("d", "u4", 13), Writer::default());
    assert_eq!(picked(store, &Select::index("length", "2")), ["cc"]);
    assert_eq!(picked(store, &Select::index("length", "1")), ["a", "d"]);
    assert_eq!(picked(store, &Select::index("length", "1").within("bank")), [""; 0]);
    let visited = |select: &Select| {
        let (select, _kept) = store.declared.resolve(select);
        by_hand.store.core().table.read().estimate(&select)
    };
    assert_eq!(visited(&Select::index("length", "2")), 1, "only the result is visited");
    assert_eq!(visited(&Select::index("length", "7")), 0, "no bucket, no visit");
}

#[tokio::test]
async fn a_typed_index_function_receives_the_decoded_struct() {
    #[derive(Deserialize)]
    struct Dated {
        data: Data,
    }
    #[derive(Deserialize)]
    struct Data {
        at: String,
    }
    let by_hand = ByHand::listed(&[object("a", "u1", 5)]);
    let dated: Store<Dated> = Store::new(Arc::clone(&by_hand.store));
    dated.index("at", |object| vec![object.data.at.clone()]).unwrap();
    by_hand.changed(&object("b", "u2", 11));
    let found = dated.list(&Select::index("at", "11")).unwrap();
    assert_eq!(found.iter().map(|entry| entry.meta().name()).collect::<Vec<_>>(), ["b"]);
}

#[tokio::test]
async fn a_failing_index_function_only_leaves_the_object_out_of_its_index() {
    let by_hand = ByHand::listed(&[object("a", "u1", 5), object("panics", "u2", 6)]);
    let store = &handle(&by_hand);
    let judge = |view: &View| match view.meta().name() {
        "fails" => Err("on purpose".into()),
        "panics" => panic!("on purpose"),
        _ => Ok(vec!["good".to_owned()]),
    };
    store.index_view("judge", judge).unwrap();
    by_hand.changed(&object("fails", "u3", 11));
    by_hand.changed(&object("b", "u4", 12));
    assert_eq!(picked(store, &Select::index("judge", "good")), ["a", "b"]);
    assert_eq!(picked(store, &Select::all()), ["a", "b", "fails", "panics"]);
    assert_eq!(by_hand.store.status().unindexed["judge"], 2);
}

#[tokio::test]
async fn an_index_function_is_called_once_per_version() {
    let by_hand = ByHand::listed(&[object("a", "u1", 5)]);
    let calls = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&calls);
    let counting = move |_: &View| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Vec::new())
    };
    let store = handle(&by_hand);
    store.index_view("counting", counting).unwrap();
    by_hand.relisted(&[object("a", "u1", 5)], 20);
    by_hand.changed(&object("a", "u1", 21));
    by_hand.deleted(&object("a", "u1", 22));
    assert_eq!(calls.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_list_by_an_indexed_label_visits_matching_objects_only() {
    let by_hand = ByHand::listed(&[labelled("a", 5, "web"), labelled("b", 6, "api"), object("c", "c", 7)]);
    let store = &handle(&by_hand);
    let select = |selector: &str| Select::all().labels(selector.parse::<LabelSelector>().unwrap());
    let check = |selector: &str, names: &[&str], visited: usize| {
        assert_eq!(picked(store, &select(selector)), names, "{selector}");
        assert_eq!(by_hand.store.core().table.read().estimate(&select(selector)), visited, "{selector}");
    };
    check("app=web", &["a"], 3);
    by_hand.store.index_label("app");
    by_hand.store.index_label("app");
    check("app=web", &["a"], 1);
    check("app in (web, api)", &["a", "b"], 2);
    check("app", &["a", "b"], 2);
    check("app!=web", &["b", "c"], 3);
    check("app=none", &[], 0);
    by_hand.changed(&labelled("a", 11, "api"));
    by_hand.deleted(&labelled("b", 12, "api"));
    check("app=web", &[], 0);
    check("app=api", &["a"], 1);
}

#[tokio::test]
async fn a_selection_uses_its_narrowest_index() {
    let elsewhere = object_in("bank", "x", "u9", 9);
    let by_hand = ByHand::listed(&[
        labelled("a", 5, "web"),
        labelled("b", 6, "web"),
        labelled("c", 7, "api"),
        elsewhere,
    ]);
    let table = || by_hand.store.core().table.read();
    by_hand.store.index_label("app");
    assert_eq!(table().estimate(&Select::namespace("shop").label("app", "web")), 2, "by label");
    assert_eq!(table().estimate(&Select::namespace("bank").label("app", "web")), 1, "by namespace");
    assert_eq!(table().estimate(&Select::owned_by("nobody").within("shop")), 0, "by owner");
    assert_eq!(table().estimate(&Select::all()), 4);
}

proptest::proptest! {
    // Each step makes a dozen lists, so there are only few histories.
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(24))]
    #[test]
    fn every_index_agrees_with_a_full_scan(
        steps in proptest::collection::vec((0_u8..6, 0_u8..4, 0_usize..3), 1..30),
        declared in 0_usize..30,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _entered = runtime.enter();
        let by_hand = ByHand::listed(&[]);
        let store = &handle(&by_hand);
        let mut version = 10;
        for (at, (name, act, value)) in steps.into_iter().enumerate() {
            if at == declared {
                by_hand.store.index_label("app");
                store.index_view("length", length).unwrap();
            }
            version += 1;
            let name = "x".repeat(usize::from(name) + 1);
            let mut object = labelled(&name, version, ["web", "api", "db"][value]);
            if act == 1 {
                object["metadata"]["uid"] = json!(version.to_string());
            }
            if act == 2 {
                object["metadata"]["labels"] = json!({});
            }
            if act == 3 { by_hand.deleted(&object) } else { by_hand.changed(&object) }
            let all = store.list(&Select::all()).unwrap();
            for selector in ["app=web", "app in (web, api)", "app", "!app", "app!=db"] {
                let selector = selector.parse::<LabelSelector>().unwrap();
                let expected = all.iter().filter(|view| selector.matches(&view.meta().labels)).count();
                let select = Select::namespace("shop").labels(selector);
                proptest::prop_assert_eq!(store.list(&select).unwrap().len(), expected);
            }
            if at >= declared {
                for wanted in 1..=6 {
                    let expected = all.iter().filter(|view| view.meta().name().len() == wanted).count();
                    let select = Select::index("length", wanted.to_string());
                    proptest::prop_assert_eq!(store.list(&select).unwrap().len(), expected);
                }
            }
        }
    }
}
