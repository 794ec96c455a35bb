//! Adoption and release: which objects belong to a controller by its selector and their controller reference.

use std::sync::Arc;

use serde_json::{Value, json};

use super::client::Request;
use super::object::{Object as _, controller_reference, selects};
use crate::store::GroupResource;

/// The objects of a controller, and the requests that settle claims.
#[derive(Debug, Default)]
pub(super) struct Claim<'a> {
    /// Objects that the controller controls, selected by it.
    pub(super) owned: Vec<&'a Arc<Value>>,
    /// Adoptions of selected objects without a controller, releases of objects that are no longer selected.
    pub(super) requests: Vec<Request>,
}

/// Claims those of the objects that `owner`, a workload of group `apps` and the given kind, selects.
pub(super) fn claim<'a>(
    owner: &Value,
    kind: &str,
    resource: &GroupResource,
    objects: impl IntoIterator<Item = &'a Arc<Value>>,
) -> Claim<'a> {
    let mut claim = Claim::default();
    for object in objects {
        let selected = selects(owner.at("/spec/selector"), object.at("/metadata/labels"));
        match object.controller() {
            Some(controller) if controller.text("/uid") != owner.uid() => {}
            Some(_) if selected => claim.owned.push(object),
            Some(_) if owner.is_deleting() => {}
            Some(_) => {
                let kept: Vec<_> =
                    object.owners().iter().filter(|other| other.text("/uid") != owner.uid()).collect();
                let patch = json!({ "ownerReferences": kept });
                claim.requests.push(Request::patch_metadata(resource, object, patch));
            }
            None if !selected || owner.is_deleting() || object.is_deleting() => {}
            None => {
                let mut owners = object.owners().to_vec();
                owners.retain(|other| other.text("/uid") != owner.uid());
                owners.push(controller_reference(owner, "apps/v1", kind));
                let patch = json!({ "ownerReferences": owners });
                claim.requests.push(Request::patch_metadata(resource, object, patch));
            }
        }
    }
    claim
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, app: &str, controller: Option<&str>) -> Arc<Value> {
        let owners: Vec<_> =
            controller.map(|uid| json!({"uid": uid, "controller": true})).into_iter().collect();
        Arc::new(json!({"metadata": {
            "name": name, "uid": name, "resourceVersion": "7", "labels": {"app": app}, "ownerReferences": owners,
        }}))
    }

    #[test]
    fn selected_orphans_are_adopted_and_unselected_objects_released() {
        let mut owner = json!({
            "metadata": {"name": "web", "uid": "u"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
        });
        let resource = GroupResource::new("", "pods");
        let pods = [
            pod("ours", "web", Some("u")),
            pod("left", "db", Some("u")),
            pod("orphan", "web", None),
            pod("other", "web", Some("v")),
            pod("stranger", "db", None),
        ];
        let claimed = claim(&owner, "ReplicaSet", &resource, &pods);
        assert_eq!(claimed.owned.iter().map(|pod| pod.name()).collect::<Vec<_>>(), ["ours"]);
        let settled: Vec<_> = claimed
            .requests
            .iter()
            .map(|r| (r.name.as_str(), &r.body["metadata"]["ownerReferences"]))
            .collect();
        let adopted = json!([controller_reference(&owner, "apps/v1", "ReplicaSet")]);
        assert_eq!(settled, [("left", &json!([])), ("orphan", &adopted)]);

        owner["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        assert!(claim(&owner, "ReplicaSet", &resource, &pods).requests.is_empty(), "it is being deleted");
    }
}
