//! The body of a status apply, the same for both writers of one status.

use kube::Resource as _;
use mainstay_api::WaitDeployment;
use serde::Serialize;
use serde_json::{Value, json};

/// Returns the body that gives `object` this status. The resourceVersion in it makes a write meant for an object of the
/// past fail with 409 instead of reaching its successor: for the status of a custom resource the server does not
/// compare uids.
pub(crate) fn status_of(object: &WaitDeployment, status: &impl Serialize) -> Value {
    json!({
        "apiVersion": WaitDeployment::api_version(&()),
        "kind": WaitDeployment::kind(&()),
        "metadata": {
            "name": object.metadata.name,
            "namespace": object.metadata.namespace,
            "uid": object.metadata.uid,
            "resourceVersion": object.metadata.resource_version,
        },
        "status": status,
    })
}
