//! Objects for the tests of this room.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::Projection;
use super::meta::{Labels, Scan};
use super::view::View;
use crate::key::{KindId, Request};

pub(super) fn config_map() -> KindId {
    KindId::of::<ConfigMap>()
}

pub(super) fn request(name: &str) -> Request {
    Request::namespaced("shop", name)
}

/// A `ConfigMap` in namespace `shop`.
pub(super) fn object(name: &str, uid: &str, version: u64) -> Value {
    object_in("shop", name, uid, version)
}

pub(super) fn object_in(namespace: &str, name: &str, uid: &str, version: u64) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": version.to_string(),
            "managedFields": [{"manager": "test"}],
        },
        "data": {"at": version.to_string()},
    })
}

pub(super) fn view_of(object: &Value) -> View {
    let raw = object.to_string();
    let (meta, body) = Scan::open(raw.as_bytes()).unwrap().finish(&config_map(), Projection::Full).unwrap();
    View::new(config_map(), meta, body)
}

pub(super) fn view(name: &str, uid: &str, version: u64) -> View {
    view_of(&object(name, uid, version))
}

pub(super) fn labels(pairs: &[(&str, &str)]) -> Labels {
    let mut object = object("labelled", "u", 1);
    object["metadata"]["labels"] = json!(pairs.iter().copied().collect::<BTreeMap<_, _>>());
    view_of(&object).meta().labels.clone()
}
