//! The roles and bindings of a new cluster.
//!
//! They are those of Kubernetes, in `data/policy.jsonl`, and are read when a request first needs one of their
//! resources.

use serde_json::{Value, json};

use super::super::served::{Author, Served};
use super::super::{Api, object};
use super::GROUP;
use crate::store::Key;

/// An object on each line.
static POLICY: &str = include_str!("../../../data/policy.jsonl");

/// The kinds of the objects and their plural names.
const KINDS: [(&str, &str); 4] = [
    ("ClusterRole", "clusterroles"),
    ("ClusterRoleBinding", "clusterrolebindings"),
    ("Role", "roles"),
    ("RoleBinding", "rolebindings"),
];

// === impl Api ===

impl Api {
    /// Puts the roles and bindings of a new cluster into the store; `seed` determines their uids. A store
    /// with a file gets those that it lacks.
    pub(in super::super) fn prepare_policy(&self, seed: u64) {
        for (index, (kind, plural)) in (0..).zip(KINDS) {
            let Some(served) = self.served(GROUP, "v1", plural) else { continue };
            let (random, now) = (fastrand::Rng::with_seed(seed ^ (index + 1)), self.now());
            let (store, resource) = (&self.shared.store, served.resource.clone());
            let load = move || objects(kind, &served, random, now);
            if store.has_file() {
                for (key, value) in load() {
                    // One that exists stays as it is.
                    drop(store.create(&resource, key, value));
                }
            } else {
                store.prepare(&resource, load);
            }
        }
    }
}

fn objects(
    kind: &str,
    served: &Served,
    mut random: fastrand::Rng,
    now: jiff::Timestamp,
) -> Vec<(Key, Value)> {
    // The kind of the object itself is the first in its line.
    let has_kind =
        |line: &&str| line.split("\"kind\":\"").nth(1).and_then(|rest| rest.split('"').next()) == Some(kind);
    let author = Author { manager: "kube-apiserver", subresource: "", now, conversions: None };
    let mut objects = Vec::new();
    for line in POLICY.lines().filter(has_kind) {
        let Ok(mut value) = serde_json::from_str::<Value>(line) else { continue };
        object::set_text(&mut value, "apiVersion", served.api_version());
        if served.admit(&mut value).is_err() {
            continue;
        }
        // A controller has written the rules of aggregated roles.
        let aggregated = value.get("aggregationRule").is_some().then(|| value["rules"].take());
        let mut value = served.own(None, value, &author);
        if let Some(rules) = aggregated {
            let metadata = json!({"name": object::meta(&value, "name")});
            let configuration = json!({
                "apiVersion": served.api_version(), "kind": kind, "metadata": metadata, "rules": rules,
            });
            let author = Author { manager: "clusterrole-aggregation-controller", ..author };
            if let Ok(applied) = served.apply(Some(&value), &configuration, &author, true) {
                value = applied;
            }
        }
        object::set_meta(&mut value, "uid", object::uid(&mut random));
        object::set_meta(&mut value, "creationTimestamp", object::time(now));
        served.settle(&mut value);
        objects.push((Key::new(object::meta(&value, "namespace"), object::meta(&value, "name")), value));
    }
    objects
}
