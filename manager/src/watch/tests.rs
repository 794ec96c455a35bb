//! The keys that a delta concerns, and the strength of their adds.

mod predicate;
mod sources;
mod store;

use std::time::Duration;

use serde_json::{Value, json};

use super::store::strength;
use super::*;
use crate::cache::tests::fixtures::view_of;
use crate::cache::{Delta, View};
use crate::client::Writer;
use crate::key::{Cause, KindId, NamespacedName, Trigger};
use crate::queue::{Add, Strength};

fn base() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": "web",
            "namespace": "shop",
            "uid": "u1",
            "resourceVersion": "5",
            "generation": 1,
            "labels": {"app": "web"},
        },
        "spec": {"replicas": 1},
        "status": {"ready": 0},
    })
}

/// The base with one value changed, named as a JSON pointer.
fn with(pointer: &str, value: Value) -> Value {
    let mut object = base();
    object["metadata"]["resourceVersion"] = json!("6");
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    object.pointer_mut(parent).expect("the parent is there")[key] = value;
    object
}

fn delta<'a>(old: Option<&'a View>, new: Option<&'a View>) -> Delta<'a> {
    Delta { old, new, initial: false, resync: false, own_write: None }
}

/// The keys a handler names for a delta, in order.
fn keys(handler: &impl EventHandler<NamespacedName>, delta: &Delta<'_>) -> Vec<String> {
    let mut keys = Enqueue::new(Add::strong(Cause::bare(Trigger::Updated)), None);
    handler.handle(delta, &mut keys);
    keys.into_adds().map(|(key, _)| key.to_string()).collect()
}

#[test]
fn only_what_says_nothing_new_is_weak() {
    let old = view_of(&base());
    let of = |new: &Value| format!("{:?}", strength(&delta(Some(&old), Some(&view_of(new))), true, false));
    let changed = [
        ("status", with("/status/ready", json!(1))),
        ("managedFields", with("/metadata/managedFields", json!([{"manager": "x"}]))),
        ("generation", with("/metadata/generation", json!(2))),
        ("labels", with("/metadata/labels", json!({"app": "api"}))),
        ("annotations", with("/metadata/annotations", json!({"note": "x"}))),
        ("finalizers", with("/metadata/finalizers", json!(["a/b"]))),
        (
            "owners",
            with(
                "/metadata/ownerReferences",
                json!([{"apiVersion": "v1", "kind": "A", "name": "a", "uid": "o"}]),
            ),
        ),
        ("deletion", with("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"))),
        ("uid", with("/metadata/uid", json!("u2"))),
    ];
    let table: Vec<String> = changed.iter().map(|(what, new)| format!("{what}: {}", of(new))).collect();
    assert_eq!(
        table,
        [
            "status: Weak",
            "managedFields: Weak",
            "generation: Strong",
            "labels: Strong",
            "annotations: Strong",
            "finalizers: Strong",
            "owners: Strong",
            "deletion: Strong",
            "uid: Strong",
        ]
    );

    let new = view_of(&with("/metadata/generation", json!(2)));
    let resync = Delta { resync: true, ..delta(Some(&old), Some(&old)) };
    let created = delta(None, Some(&new));
    let deleted = delta(Some(&old), None);
    let status = view_of(&with("/status/ready", json!(1)));
    let reported = delta(Some(&old), Some(&status));
    let of = |primary| {
        [&resync, &created, &deleted, &reported].map(|delta| format!("{:?}", strength(delta, primary, false)))
    };
    assert_eq!(of(true), ["Weak", "Strong", "Strong", "Weak"], "of the primary");
    assert_eq!(of(false), ["Weak", "Strong", "Strong", "Strong"], "a child's status is news");
}

#[test]
fn an_own_write_is_strong_if_its_answer_shows_foreign_edits() {
    let web = NamespacedName::namespaced("shop", "web");
    let unknown = Writer::controller("test").in_run_of(&web);
    let (seen, unseen) = (unknown.for_version(Some(5)), unknown.for_version(Some(4)));
    let old = view_of(&base());
    let generation = with("/metadata/generation", json!(2));
    let finalizers = with("/metadata/finalizers", json!(["a/b"]));
    let deletion = with("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"));
    for (what, writer, new, primary, other) in [
        ("status", unknown, with("/status/ready", json!(1)), "Weak", "Weak"),
        ("labels", unknown, with("/metadata/labels", json!({})), "Weak", "Weak"),
        ("generation", unknown, generation.clone(), "Strong", "Weak"),
        ("generation, of the version it had seen", seen, generation.clone(), "Weak", "Weak"),
        ("generation, of one it had not seen", unseen, generation, "Strong", "Weak"),
        ("finalizers", unknown, finalizers.clone(), "Strong", "Weak"),
        ("finalizers, of the version it had seen", seen, finalizers, "Weak", "Weak"),
        ("deletion, of the version it had seen", seen, deletion, "Strong", "Weak"),
    ] {
        let new = view_of(&new);
        let delta = Delta { own_write: Some(writer), ..delta(Some(&old), Some(&new)) };
        let of = |primary| format!("{:?}", strength(&delta, primary, true));
        assert_eq!((&*of(true), &*of(false)), (primary, other), "{what}");
    }
    // Without generations, any difference may be an edit by another writer.
    let bare = |mut object: Value| {
        object["metadata"].as_object_mut().expect("metadata").remove("generation");
        view_of(&object)
    };
    let before = bare(base());
    for (what, writer, new, expected) in [
        ("content", unknown, with("/spec/replicas", json!(2)), "Strong"),
        ("content, of the version it had seen", seen, with("/spec/replicas", json!(2)), "Weak"),
        ("status", unknown, with("/status/ready", json!(1)), "Weak"),
        ("labels", unknown, with("/metadata/labels", json!({})), "Weak"),
    ] {
        let new = bare(new);
        let delta = Delta { own_write: Some(writer), ..delta(Some(&before), Some(&new)) };
        assert_eq!(format!("{:?}", strength(&delta, true, true)), expected, "{what}, without a generation");
    }
    let own = |old, new| Delta { own_write: Some(unknown), ..delta(old, new) };
    for delta in [own(None, Some(&old)), own(Some(&old), None)] {
        assert_eq!(format!("{:?}", strength(&delta, true, true)), "Weak", "made or removed by it: {delta:?}");
    }
}

#[test]
fn what_a_person_asks_for_by_annotation_counts_also_as_an_own_write() {
    let annotated = |annotations: Value| view_of(&with("/metadata/annotations", annotations));
    let plain = view_of(&base());
    let (paused, first, second) = (
        annotated(json!({"mainstay.dev/paused": "true"})),
        annotated(json!({"mainstay.dev/reconcile-at": "1"})),
        annotated(json!({"mainstay.dev/reconcile-at": "2"})),
    );
    let no = annotated(json!({"mainstay.dev/paused": "no", "note": "x"}));
    let own = |old, new| {
        let delta = Delta { own_write: Some(Writer::controller("test")), ..delta(Some(old), Some(new)) };
        format!("{:?}", strength(&delta, true, true))
    };
    assert_eq!(own(&plain, &paused), "Strong", "a pause");
    assert_eq!(own(&paused, &plain), "Strong", "its end");
    assert_eq!(own(&plain, &no), "Weak", "only `true` is a pause");
    assert_eq!(own(&plain, &first), "Strong", "a request");
    assert_eq!(own(&first, &second), "Strong", "another one");
    assert_eq!(own(&second, &plain), "Weak", "taking it back asks for nothing");
    assert_eq!(own(&second, &second), "Weak", "the same one again");
}

#[test]
fn every_update_counts_for_a_kind_without_generations() {
    let mut old = with("/status/ready", json!(0));
    let mut new = with("/status/ready", json!(1));
    for object in [&mut old, &mut new] {
        object["metadata"].as_object_mut().expect("metadata").remove("generation");
    }
    let (old, new) = (view_of(&old), view_of(&new));
    assert_eq!(format!("{:?}", strength(&delta(Some(&old), Some(&new)), true, false)), "Strong");
}

#[test]
fn the_object_itself_is_named_once_whatever_happened_to_it() {
    let (old, new) = (view_of(&base()), view_of(&with("/status/ready", json!(1))));
    let of = |old, new| keys(&EnqueueForObject, &delta(old, new));
    assert_eq!(of(None, Some(&new)), ["shop/web"], "created");
    assert_eq!(of(Some(&old), Some(&new)), ["shop/web"], "updated");
    assert_eq!(of(Some(&old), None), ["shop/web"], "deleted");
    assert_eq!(of(None, None), [""; 0], "an event about nothing");
}

#[test]
fn a_change_of_owner_concerns_the_old_owner_and_the_new_one() {
    let owned_by = |name: &str, api_version: &str, controller: bool| {
        let mut owner = json!({"kind": "Set", "name": name, "uid": name, "controller": controller});
        owner["apiVersion"] = json!(api_version);
        view_of(&with("/metadata/ownerReferences", json!([owner])))
    };
    let kind = KindId::new("apps", "v1", "Set", "sets", true);
    let keys =
        |handler: &EnqueueForOwner, old: &View, new: &View| keys(handler, &delta(Some(old), Some(new)));
    let controller = EnqueueForOwner::controller(kind.clone());
    let (first, second) = (owned_by("first", "apps/v1beta1", true), owned_by("second", "apps/v1", true));
    assert_eq!(keys(&controller, &first, &second), ["shop/first", "shop/second"], "whatever the version");
    assert_eq!(keys(&controller, &second, &second), ["shop/second"], "once");
    let (foreign, guest) = (owned_by("foreign", "other/v1", true), owned_by("guest", "apps/v1", false));
    assert_eq!(keys(&controller, &foreign, &guest), [""; 0], "another group, and no controller");
    assert_eq!(keys(&EnqueueForOwner::any(kind), &foreign, &guest), ["shop/guest"]);
    let cluster = EnqueueForOwner::controller(KindId::new("apps", "v1", "Set", "sets", false));
    assert_eq!(keys(&cluster, &second, &second), ["second"], "a cluster-scoped owner has no namespace");
    let nonsense = owned_by("nonsense", "apps/v1/v2", true);
    assert_eq!(keys(&controller, &nonsense, &nonsense), [""; 0], "an apiVersion that is none");
}

#[test]
fn a_map_gets_both_states_and_each_key_is_enqueued_once() {
    let handler = map_view(|view: &View| {
        vec![
            NamespacedName::cluster(view.meta().resource_version.to_string()),
            NamespacedName::cluster("all"),
        ]
    });
    let (old, new) = (view_of(&base()), view_of(&with("/status/ready", json!(1))));
    assert_eq!(keys(&handler, &delta(Some(&old), Some(&new))), ["5", "all", "6"]);
    let maybe =
        map_view(|view: &View| view.meta().controller().map(|owner| NamespacedName::cluster(&*owner.name)));
    assert_eq!(keys(&maybe, &delta(Some(&old), Some(&new))), [""; 0], "an `Option` will do");
}

#[test]
fn a_typed_map_gets_both_states_and_an_object_that_is_none_enqueues_no_key() {
    #[derive(serde::Deserialize)]
    struct Status {
        ready: u32,
    }
    #[derive(serde::Deserialize)]
    struct Ready {
        status: Status,
    }
    let handler = map(|object: &Ready| [NamespacedName::cluster(object.status.ready.to_string())]);
    let (one, two) = (view_of(&with("/status/ready", json!(1))), view_of(&with("/status/ready", json!(2))));
    assert_eq!(keys(&handler, &delta(Some(&one), Some(&two))), ["1", "2"]);
    let odd = view_of(&with("/status/ready", json!("many")));
    assert_eq!(keys(&handler, &delta(Some(&odd), Some(&two))), ["2"]);
}

#[test]
fn a_key_named_many_times_among_many_stands_there_once() {
    let many = |_: &Delta<'_>, out: &mut Enqueue<NamespacedName>| {
        for number in (0..1000).chain(0..1000) {
            out.add(NamespacedName::cluster(number.to_string()));
        }
    };
    let view = view_of(&base());
    let expected: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    assert_eq!(keys(&many, &delta(None, Some(&view))), expected, "in the order they were named");
}

#[test]
fn a_handler_may_say_how_a_key_is_added() {
    let mut out = Enqueue::new(Add::strong(Cause::bare(Trigger::Updated)), None);
    let (minute, weak) = (Duration::from_mins(1), Add::weak(Cause::bare(Trigger::Generic)));
    assert_eq!(out.usual().strength, Strength::Strong);
    out.add_after(NamespacedName::cluster("later"), minute);
    out.add_with(NamespacedName::cluster("weakly"), weak.clone());
    out.add(NamespacedName::cluster("weakly"));
    let usual = out.usual().clone();
    let adds: Vec<_> = out.into_adds().map(|(key, add)| (key.to_string(), add)).collect();
    let expected = [("later", usual.clone().after(minute)), ("weakly", weak), ("weakly", usual)];
    assert_eq!(adds, expected.map(|(key, add)| (key.to_owned(), add)));
}
