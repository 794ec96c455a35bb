//! The subresource `log` of Pods. No Node of this server runs containers, so there is never a line.

use serde_json::Value;

use super::super::call::Call;
use super::super::object;
use super::super::{Api, Response, Status};
use crate::store::{GroupResource, Key};

// === impl Api ===

impl Api {
    /// Returns no content for a Pod without a Node; otherwise the error of a Node that cannot be reached.
    pub(super) fn log(&self, call: &Call) -> Result<Response, Status> {
        let name = &call.target.name;
        let version = self.shared.store.get(&call.served.resource, &call.key());
        let version = version.ok_or_else(|| Status::not_found(&call.served.kind, name))?;
        let pod = version.value();
        let containers = |lists: &[&str]| -> Vec<String> {
            let lists = lists.iter().filter_map(|list| pod.pointer(&format!("/spec/{list}"))?.as_array());
            lists.flatten().map(|container| object::text(container, "name").to_owned()).collect()
        };
        let all = containers(&["initContainers", "containers", "ephemeralContainers"]);
        match call.query.get("container").unwrap_or_default() {
            "" if containers(&["containers"]).len() == 1 => {}
            "" => {
                let all = all.join(" ");
                return Err(Status::bad_request(format!(
                    "a container name must be specified for pod {name}, choose one of: [{all}]"
                )));
            }
            container if all.iter().any(|known| known == container) => {}
            container => {
                let message = format!("container {container} is not valid for pod {name}");
                return Err(Status::bad_request(message));
            }
        }
        let node = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
        if node.is_empty() {
            return Ok(Response::made(204, Value::Null));
        }
        match self.shared.store.get(&GroupResource::new("", "nodes"), &Key::new("", node)) {
            // The real server names the Node, too, but calls it a Pod.
            None => Err(Status::not_found(&call.served.kind, node)),
            Some(_) => Err(Status::unclassified("no preferred addresses found; known addresses: []")),
        }
    }
}
