//! The parameters of admission policies: objects that bindings refer to.

use std::sync::Arc;

use serde_json::Value;

use super::super::Api;
use super::super::object;
use super::super::served::Served;
use crate::kinds::builtin::validation::selects;
use crate::store::{At, Key};

/// The kind of a policy's parameters.
#[derive(Debug)]
pub(super) struct ParamKind {
    served: Arc<Served>,
}

// === impl ParamKind ===

impl ParamKind {
    /// Finds the kind that a policy names; `None` if the policy has no parameters.
    ///
    /// # Errors
    /// Returns the text of the real server if the kind is not served.
    pub(super) fn find(api: &Api, kind: &Value) -> Result<Option<Self>, String> {
        if kind.is_null() {
            return Ok(None);
        }
        let (api_version, name) = (object::text(kind, "apiVersion"), object::text(kind, "kind"));
        let registry = api.registry();
        let served = registry.all().find(|of| of.kind.kind == name && of.api_version() == api_version);
        if let Some(served) = served {
            return Ok(Some(Self { served: Arc::clone(served) }));
        }
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let wanted = format!("{group}/{version}, Kind={name}");
        Err(format!("failed to find resource referenced by paramKind: '{wanted}'"))
    }
}

/// Returns the parameters of a binding; null stands for none, with which a policy is evaluated too.
///
/// # Errors
/// Returns the text of the real server.
pub(super) async fn collect(
    api: &Api,
    kind: Option<&ParamKind>,
    reference: &Value,
    namespace: &str,
) -> Result<Vec<Value>, String> {
    let Some(ParamKind { served }) = kind else { return Ok(vec![Value::Null]) };
    if reference.is_null() {
        return Ok(vec![Value::Null]);
    }
    let (name, own) = (object::text(reference, "name"), object::text(reference, "namespace"));
    let namespace = match (served.kind.namespaced, own) {
        (false, "") => "",
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (true, "") if namespace.is_empty() => {
            let why =
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        (true, "") => namespace,
        (true, own) => own,
    };
    let store = &api.shared.store;
    let versions = if name.is_empty() {
        let within = Some(namespace).filter(|namespace| !namespace.is_empty());
        let listing = store.list(&served.resource, within, None, At::Newest);
        let mut versions = listing.map_or(Vec::new(), |listing| listing.items);
        versions.retain(|version| {
            let labels = object::meta_value(version.value(), "labels").unwrap_or(&Value::Null);
            selects(&reference["selector"], labels).unwrap_or(false)
        });
        versions
    } else {
        store.get(&served.resource, &Key::new(namespace, name)).into_iter().collect()
    };
    if versions.is_empty() && reference["parameterNotFoundAction"] == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    let mut params = Vec::new();
    for version in &versions {
        let view = api.view(served, version).await.map_err(|status| status.message().to_owned())?;
        params.push(view.value().clone());
    }
    Ok(params)
}
