use serde_json::{Value, json};

use bytes::Bytes;

use super::*;
use crate::cache::Projection;
use crate::cache::object::{PartialIdentity, Scan, ScanError, StoreContext, View};
use crate::cache::tests::fixtures::{config_map, object, view_of};
use crate::client::Extent;

fn scan(raw: &str, projection: Projection) -> Result<(Meta, Bytes), ScanError> {
    Scan::open(raw.as_bytes())?.finish(&StoreContext::new(config_map(), usize::MAX), projection)
}

fn value(view: &View) -> Value {
    serde_json::from_slice(&view.bytes().unwrap()).unwrap()
}

fn changed(change: impl FnOnce(&mut Value)) -> View {
    let mut object = object("a", "u1", 5);
    change(&mut object);
    view_of(&object)
}

#[test]
fn the_slim_metadata_matches_the_object() {
    let view = changed(|object| {
        object["metadata"]["generation"] = json!(3);
        object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        object["metadata"]["labels"] = json!({"b": "2", "a": "\u{e9}\n"});
        object["metadata"]["finalizers"] = json!(["x/y"]);
        object["metadata"]["annotations"] = json!({"n": "v"});
        object["metadata"]["ownerReferences"] = json!([
            {"uid": "o1", "apiVersion": "v1", "kind": "Node", "name": "n"},
            {"uid": "o2", "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "controller": true,
             "blockOwnerDeletion": true},
        ]);
    });
    let meta = view.meta();
    assert_eq!((meta.name(), meta.namespace(), &meta.uid), ("a", Some("shop"), &Uid::new("u1")));
    assert_eq!(
        (meta.generation, meta.deleting, meta.resource_version.to_string()),
        (Some(3), true, "5".into())
    );
    assert_eq!(meta.labels.iter().collect::<Vec<_>>(), [("a", "\u{e9}\n"), ("b", "2")]);
    assert_eq!(meta.finalizers.iter().map(AsRef::as_ref).collect::<Vec<&str>>(), ["x/y"]);
    assert_eq!(meta.controller().map(|owner| &owner.uid), Some(&Uid::new("o2")));
    assert_eq!((view.annotation("n"), view.annotation("other")), (Some("v".to_owned()), None));
}

#[test]
fn the_annotations_of_this_project_are_read_by_their_full_names() {
    let steering = |annotations: Value| {
        let view = changed(|object| object["metadata"]["annotations"] = annotations);
        (view.meta().paused, view.meta().reconcile_at_hash != 0)
    };
    assert_eq!(steering(json!({"mainstay.dev/paused": "true"})), (true, false));
    assert_eq!(steering(json!({"mainstay.dev/paused": "True"})), (false, false), "only `true` counts");
    assert_eq!(steering(json!({"mainstay.dev/reconcile-at": ""})), (false, true), "any value counts");
    assert_eq!(steering(json!({"x.mainstay.dev/paused": "true", "note": "mainstay.dev"})), (false, false));
    assert_eq!(steering(json!(null)), (false, false));
}

#[test]
fn the_body_is_the_object_without_managed_fields() {
    let mut expected = object("a", "u1", 5);
    let body = value(&view_of(&expected));
    expected["metadata"].as_object_mut().unwrap().remove("managedFields");
    assert_eq!(body, expected);
}

#[test]
fn a_listed_object_has_the_same_bytes_as_a_watched_one() {
    let mut listed = object("a", "u1", 5);
    let watched = view_of(&listed);
    let members = listed.as_object_mut().unwrap();
    members.remove("apiVersion");
    members.remove("kind");
    let listed = view_of(&listed);
    assert_eq!(listed.bytes().unwrap(), watched.bytes().unwrap());
    assert_eq!(listed.meta().content_hash, watched.meta().content_hash);
}

#[test]
fn each_hash_changes_with_its_own_part_only() {
    let hashes = |view: &View| {
        let meta = view.meta();
        (meta.content_hash, meta.status_hash, meta.annotations_hash)
    };
    let plain = hashes(&changed(|_| {}));
    assert_eq!((plain.1, plain.2), (0, 0), "no status and no annotations");
    let spec = hashes(&changed(|object| object["data"] = json!({"x": "y"})));
    assert!(spec.0 != plain.0 && (spec.1, spec.2) == (0, 0));
    let status = hashes(&changed(|object| object["status"] = json!({"ready": true})));
    assert!(status.0 == plain.0 && status.1 != 0 && status.2 == 0);
    let annotated = hashes(&changed(|object| object["metadata"]["annotations"] = json!({"a": "b"})));
    assert!(annotated.0 == plain.0 && annotated.1 == 0 && annotated.2 != 0);
    let labelled = hashes(&changed(|object| object["metadata"]["labels"] = json!({"a": "b"})));
    assert_eq!(labelled, plain);
}

#[test]
fn a_metadata_store_keeps_only_metadata_of_whole_objects() {
    let full = object("a", "u1", 5);
    let mut partial = full.clone();
    partial["kind"] = json!("PartialObjectMetadata");
    partial["apiVersion"] = json!("meta.k8s.io/v1");
    partial.as_object_mut().unwrap().remove("data");
    let (_, from_full) = scan(&full.to_string(), Projection::Metadata).unwrap();
    let (meta, from_partial) = scan(&partial.to_string(), Projection::Metadata).unwrap();
    assert_eq!(from_full, from_partial);
    assert_eq!((meta.content_hash, meta.status_hash, meta.extent), (0, 0, Extent::Metadata));
    let error = scan(&partial.to_string(), Projection::Full).unwrap_err();
    assert_eq!(error.to_string(), "it is a PartialObjectMetadata, not a ConfigMap");
}

#[test]
fn an_invalid_object_is_refused_and_identified_if_possible() {
    let nul = "{\"metadata\":{\"name\":\"a\0\"}}";
    for raw in ["", "[]", "{", "nul", r#"{"metadata":{}}"#, r#"{"metadata":[]}"#, r#"{"metadata":null}"#, nul]
    {
        assert!(scan(raw, Projection::Full).is_err(), "{raw}");
        assert_eq!(PartialIdentity::of(raw.as_bytes()).request, None, "{raw}");
    }
    let without_uid = r#"{"metadata":{"name":"a","namespace":"shop","resourceVersion":"5"}}"#;
    assert_eq!(scan(without_uid, Projection::Full).unwrap_err().to_string(), "metadata.uid is missing");
    assert_eq!(PartialIdentity::of(without_uid.as_bytes()).request.unwrap().to_string(), "shop/a");
}

#[test]
fn only_a_deletion_without_finalizers_and_grace_period_is_immediate() {
    let gone = |change: fn(&mut Value)| {
        let mut object = object("a", "u1", 5);
        change(&mut object["metadata"]);
        let raw = object.to_string();
        Scan::open(raw.as_bytes()).unwrap().is_gone().unwrap()
    };
    assert!(gone(|_| {}));
    assert!(gone(|meta| meta["deletionGracePeriodSeconds"] = json!(0)));
    assert!(!gone(|meta| meta["deletionGracePeriodSeconds"] = json!(30)));
    assert!(!gone(|meta| meta["finalizers"] = json!(["x/y"])));
}

#[test]
fn a_change_shows_in_the_field_or_hash_of_its_part_of_the_object() {
    let old = object("a", "u1", 5);
    for (at, value, expected) in [
        ("/metadata/generation", json!(2), "generation"),
        ("/data", json!({"x": "y"}), "content"),
        ("/status", json!({"phase": "Running"}), "status"),
        ("/metadata/labels", json!({"app": "web"}), "labels"),
        ("/metadata/annotations", json!({"note": "x"}), "annotations"),
        ("/metadata/finalizers", json!(["x/y"]), "finalizers"),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"), "deletion"),
        ("/metadata/managedFields", json!([]), ""),
        (
            "/metadata/ownerReferences",
            json!([{"uid": "o", "apiVersion": "v1", "kind": "ConfigMap", "name": "o"}]),
            "owners",
        ),
    ] {
        let mut new = old.clone();
        let (parent, key) = at.rsplit_once('/').unwrap();
        new.pointer_mut(parent).unwrap()[key] = value;
        let (old, new) = (view_of(&old), view_of(&new));
        let (old, new) = (old.meta(), new.meta());
        let mut changed = [
            ("generation", old.generation != new.generation),
            ("content", old.content_hash != new.content_hash),
            ("status", old.status_hash != new.status_hash),
            ("labels", old.labels != new.labels),
            ("annotations", old.annotations_hash != new.annotations_hash),
            ("finalizers", old.finalizers != new.finalizers),
            ("owners", old.owners != new.owners),
            ("deletion", old.deleting != new.deleting),
        ]
        .to_vec();
        changed.retain(|(_, changed)| *changed);
        let changed: Vec<&str> = changed.into_iter().map(|(part, _)| part).collect();
        assert_eq!(changed.concat(), expected, "{at}");
        let same = matches!(expected, "content" | "status" | "");
        assert_eq!(old.has_same_metadata(new), same, "{at}");
    }
}

#[test]
fn numbers_compare_as_numbers_and_the_rest_only_for_equality() {
    let version = ResourceVersion::new;
    assert!(version("10").is_newer_than(&version("9")));
    assert_eq!(version("abc").compare(&version("abd")), None);
    assert_eq!(version("abc").compare(&version("abc")), Some(std::cmp::Ordering::Equal));
    assert_eq!(version("007").compare(&version("7")), None, "leading zeros are kept");
    assert_eq!(version("007").to_string(), "007");
    assert_eq!(version("99999999999999999999").to_string(), "99999999999999999999");
}
