//! The subresource `binding` of Pods, and writes to Pods without checks.

use serde_json::{Value, json};

use super::super::admission::Operation;
use super::super::call::Call;
use super::super::object;
use super::super::options::WriteOptions;
use super::super::request::Body;
use super::super::status::Details;
use super::super::{Api, Response, Status};
use crate::kinds::{FieldError, conditions};

// === impl Api ===

impl Api {
    /// Assigns a Pod to the Node in a Binding.
    pub(super) async fn bind(&self, call: &mut Call) -> Result<Response, Status> {
        call.options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let Body { value: mut binding, .. } = call.body.take().unwrap_or_default();
        call.place(&mut binding)?;
        if let Some(bindings) = self.served("", "v1", "bindings") {
            binding = bindings.own(None, binding, &call.author(self.now()));
        }
        self.admit(call, Operation::Create, None, &mut binding).await?;
        let name = call.target.name.clone();
        if object::meta(&binding, "name") != name {
            return Err(Status::bad_request("name in URL does not match name in Binding object"));
        }
        let target =
            |field| binding.get("target").map(|target| object::text(target, field)).unwrap_or_default();
        let (kind, node) = (target("kind"), target("name"));
        let mut errors = Vec::new();
        if !matches!(kind, "" | "Node") {
            errors.push(FieldError::unsupported("target.kind", &kind.into(), &["Node", "<empty>"]));
        }
        if node.is_empty() {
            errors.push(FieldError::required("target.name", ""));
        }
        match errors.iter().map(ToString::to_string).collect::<Vec<_>>().as_slice() {
            [] => {}
            [error] => return Err(Status::unclassified(error.clone())),
            errors => return Err(Status::unclassified(format!("[{}]", errors.join(", ")))),
        }
        self.validate(call, Operation::Create, None, &binding).await?;
        let now = object::time(self.now());
        let refused = |why: String| Status::conflict(&call.served.kind, &name, why).for_binding(&name);
        self.rewrite(call, &mut |pod| {
            if object::is_terminating(pod) {
                return Err(refused(format!("pod {name} is being deleted, cannot be assigned to a host")));
            }
            let assigned = pod.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
            if !assigned.is_empty() {
                return Err(refused(format!("pod {name} is already assigned to node \"{assigned}\"")));
            }
            if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("nodeName".to_owned(), node.into());
            }
            for field in ["annotations", "labels"] {
                let added = object::meta_value(&binding, field).and_then(Value::as_object);
                let known = added.and_then(|_| object::metadata(pod)).map(|metadata| metadata.entry(field));
                if let Some(Value::Object(known)) = known.map(|known| known.or_insert_with(|| json!({}))) {
                    known
                        .extend(added.into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
                }
            }
            set_condition(pod, json!({"type": "PodScheduled", "status": "True"}), &now);
            Ok(())
        })?;
        Ok(Response::made(201, created()))
    }

    /// Changes the stored Pod of a call without admission hooks, validation, generation or owners of fields.
    /// Returns its resourceVersion.
    pub(super) fn rewrite(
        &self,
        call: &Call,
        change: &mut dyn FnMut(&mut Value) -> Result<(), Status>,
    ) -> Result<String, Status> {
        let (served, key) = (&call.served, call.key());
        loop {
            let version = self.shared.store.get(&served.resource, &key);
            let version = version.ok_or_else(|| Status::not_found(&served.kind, &call.target.name))?;
            let mut pod = version.value().clone();
            change(&mut pod)?;
            if call.options.dry_run || pod == *version.value() {
                return Ok(version.revision().to_string());
            }
            if let Ok(version) = self.shared.store.update(&served.resource, &key, pod, version.revision()) {
                self.after_write(&served.kind, &version);
                return Ok(version.revision().to_string());
            }
        }
    }
}

// === impl Status ===

impl Status {
    /// Changes the resource of a conflict to `pods/binding`.
    fn for_binding(self, name: &str) -> Self {
        let message = self.message().replacen("pods ", "pods/binding ", 1);
        let details =
            Details { name: name.to_owned(), kind: "pods/binding".to_owned(), ..Details::default() };
        Self::new(409, "Conflict", message).with_details(details)
    }
}

/// Returns the body of a successful binding or eviction.
pub(super) fn created() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}

/// Sets a condition of a Pod.
pub(super) fn set_condition(pod: &mut Value, mut condition: Value, now: &str) {
    let Some(status) = pod.get_mut("status").filter(|status| status.is_object()) else { return };
    condition["lastProbeTime"] = Value::Null;
    conditions::set(status, condition, now);
}
