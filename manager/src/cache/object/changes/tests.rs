use serde_json::json;

use super::*;
use crate::cache::tests::fixtures::{object, view_of};

#[test]
fn an_update_reports_the_changed_aspects() {
    let old = object("a", "u1", 5);
    for (at, value, expected) in [
        ("/metadata/generation", json!(2), "{Generation}"),
        ("/data", json!({"x": "y"}), "{Content}"),
        ("/status", json!({"phase": "Running"}), "{Status}"),
        ("/metadata/labels", json!({"app": "web"}), "{Labels}"),
        ("/metadata/annotations", json!({"note": "x"}), "{Annotations}"),
        ("/metadata/finalizers", json!(["x/y"]), "{Finalizers}"),
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z"), "{Deletion}"),
        ("/metadata/managedFields", json!([]), "{}"),
        (
            "/metadata/ownerReferences",
            json!([{"uid": "o", "apiVersion": "v1", "kind": "ConfigMap", "name": "o"}]),
            "{Owners}",
        ),
    ] {
        let mut new = old.clone();
        let (parent, key) = at.rsplit_once('/').unwrap();
        new.pointer_mut(parent).unwrap()[key] = value;
        let (old, new) = (view_of(&old), view_of(&new));
        let delta =
            Delta { old: Some(&old), new: Some(&new), initial: false, resync: false, own_write: None };
        let changes = delta.changes().unwrap();
        assert_eq!(format!("{changes:?}"), expected, "{at}");
        assert_eq!(changes.iter().count(), usize::from(expected != "{}"));
        assert!(Delta { old: None, ..delta }.changes().is_none());
    }
}
