use std::sync::Arc;

use super::*;
use crate::workloads::client::Verb;
use crate::workloads::resources;

/// A view of ConfigMaps. Each is `namespace/name`, its owners as `namespace/name` too, and further metadata.
fn view(maps: &[(&str, &[&str], Value)]) -> View {
    let mut view = View::default();
    view.set_kinds(crate::kinds::builtin::kinds().to_vec());
    for (path, owners, more) in maps {
        let (namespace, name) = path.split_once('/').expect("a namespace and a name");
        let references: Vec<_> = owners
            .iter()
            .map(|owner| {
                let (_, name) = owner.split_once('/').expect("a namespace and a name");
                json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner, "blockOwnerDeletion": true,
                })
            })
            .collect();
        let mut object = json!({"metadata": {
            "namespace": namespace, "name": name, "uid": path, "resourceVersion": "1", "ownerReferences": references,
        }});
        for (key, value) in more.as_object().into_iter().flatten() {
            object["metadata"][key] = value.clone();
        }
        view.put(&resources::config_maps(), Arc::new(object));
    }
    view
}

fn deleting(finalizer: &str) -> Value {
    json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer]})
}

/// The requests about an object, in short.
fn requests(view: &View, uid: &str) -> Vec<String> {
    let (resource, object) = view.by_uid(uid).expect("the object");
    decide(view, resource, object)
        .into_iter()
        .map(|request| match request.verb {
            Verb::Delete => format!("delete {} {}", request.name, request.body.text("/propagationPolicy")),
            _ => {
                let (owners, finalizers) = (request.body.owners(), request.body.list("/metadata/finalizers"));
                let owners: Vec<_> = owners.iter().map(|owner| owner.text("/uid")).collect();
                format!("patch {} owners {owners:?} finalizers {}", request.name, finalizers.len())
            }
        })
        .collect()
}

#[test]
fn an_object_goes_when_its_last_owner_is_absent() {
    let one = view(&[("a/child", &["a/gone"], json!({}))]);
    assert_eq!(requests(&one, "a/child"), ["delete child Background"]);
    let both = view(&[("a/owner", &[], json!({})), ("a/child", &["a/owner", "a/gone"], json!({}))]);
    assert_eq!(requests(&both, "a/child"), ["patch child owners [\"a/owner\"] finalizers 0"]);
    let kept = view(&[("a/owner", &[], json!({})), ("a/child", &["a/owner"], json!({}))]);
    assert!(requests(&kept, "a/child").is_empty());
    assert!(requests(&kept, "a/owner").is_empty());
}

#[test]
fn an_owner_in_another_namespace_is_absent() {
    let view = view(&[("b/owner", &[], json!({})), ("a/child", &["b/owner"], json!({}))]);
    assert_eq!(requests(&view, "a/child"), ["delete child Background"]);
}

#[test]
fn an_owner_of_an_unknown_kind_protects_its_dependents() {
    let mut view = view(&[("a/child", &["a/gone"], json!({}))]);
    view.set_kinds(Vec::new());
    assert!(requests(&view, "a/child").is_empty());
}

#[test]
fn foreground_deletion_goes_from_the_leaves_to_the_root() {
    let mut chain = view(&[
        ("a/root", &[], deleting(FOREGROUND)),
        ("a/middle", &["a/root"], json!({})),
        ("a/leaf", &["a/middle"], json!({})),
    ]);
    assert!(requests(&chain, "a/root").is_empty());
    assert_eq!(requests(&chain, "a/middle"), ["delete middle Foreground"]);
    assert!(requests(&chain, "a/leaf").is_empty());

    chain = view(&[
        ("a/root", &[], deleting(FOREGROUND)),
        ("a/middle", &["a/root"], deleting(FOREGROUND)),
        ("a/leaf", &["a/middle"], json!({})),
    ]);
    assert_eq!(requests(&chain, "a/leaf"), ["delete leaf Background"]);
    chain = view(&[("a/root", &[], deleting(FOREGROUND)), ("a/middle", &["a/root"], deleting(FOREGROUND))]);
    assert!(requests(&chain, "a/root").is_empty());
    assert_eq!(requests(&chain, "a/middle"), ["patch middle owners [] finalizers 0"]);
    chain = view(&[("a/root", &[], deleting(FOREGROUND))]);
    assert_eq!(requests(&chain, "a/root"), ["patch root owners [] finalizers 0"]);
}

#[test]
fn orphaned_dependents_lose_their_reference_before_the_owner_goes() {
    let view = view(&[
        ("a/owner", &[], deleting(ORPHAN)),
        ("a/child", &["a/owner", "a/other"], json!({})),
        ("a/other", &[], json!({})),
    ]);
    assert_eq!(
        requests(&view, "a/owner"),
        ["patch child owners [\"a/other\"] finalizers 0", "patch owner owners [] finalizers 0"]
    );
}
