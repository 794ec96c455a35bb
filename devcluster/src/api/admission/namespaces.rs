//! An admission hook that refuses creations in missing or terminating namespaces.

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::Value;

use super::{Admission, Attributes, Operation};
use crate::api::Status;
use crate::api::object;
use crate::api::status::{Cause, Details};
use crate::kinds::builtin;
use crate::store::{GroupResource, Key, Store};

/// Namespaces that cannot be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];

/// The hook; reads namespaces from the store.
#[derive(Debug)]
pub(crate) struct NamespaceLifecycle {
    store: Store,
    namespaces: GroupResource,
}

// === impl NamespaceLifecycle ===

impl NamespaceLifecycle {
    pub(crate) fn new(store: Store) -> Self {
        Self { store, namespaces: GroupResource::new("", "namespaces") }
    }

    fn check(&self, attributes: &Attributes<'_>) -> Result<Vec<String>, Status> {
        let Attributes { operation, kind, target, .. } = attributes;
        let is_namespace = kind.group.is_empty() && kind.kind == "Namespace";
        if *operation == Operation::Delete && is_namespace && IMMORTAL.contains(&target.name.as_str()) {
            return Err(Status::forbidden(kind, &target.name, "this namespace may not be deleted"));
        }
        // Access reviews are allowed for a namespace that does not exist.
        let exempt = is_namespace || kind.group == "authorization.k8s.io";
        if *operation != Operation::Create || target.namespace.is_empty() || !kind.namespaced || exempt {
            return Ok(Vec::new());
        }
        let namespace = self.store.get(&self.namespaces, &Key::new("", &target.namespace));
        let Some(namespace) = namespace else {
            let missing =
                Status::new(404, "NotFound", format!("namespaces \"{}\" not found", target.namespace));
            return Err(match builtin::find("", "v1", "Namespace") {
                Some(kind) => Status::not_found(kind, &target.namespace),
                None => missing,
            });
        };
        let phase = namespace.value().pointer("/status/phase").and_then(Value::as_str);
        if phase != Some("Terminating") && !object::is_terminating(namespace.value()) {
            return Ok(Vec::new());
        }
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            target.namespace
        );
        let cause = Cause {
            reason: "NamespaceTerminating".to_owned(),
            message: format!("namespace {} is being terminated", target.namespace),
            field: "metadata.namespace".to_owned(),
        };
        let details = Details { causes: vec![cause], ..Details::of(kind, &target.name) };
        Err(Status::forbidden(kind, &target.name, why).with_details(details))
    }
}

impl Admission for NamespaceLifecycle {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        _object: &'a mut Value,
    ) -> BoxFuture<'a, Result<Vec<String>, Status>> {
        std::future::ready(self.check(attributes)).boxed()
    }
}
