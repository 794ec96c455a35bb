//! The subresources `binding` and `eviction` of Pods.

use serde_json::{Value, json};

use super::super::admission::Operation;
use super::super::call::Call;
use super::super::object;
use super::super::options::{DeleteOptions, WriteOptions};
use super::super::request::Body;
use super::super::selector::LabelSelector;
use super::super::status::{Cause, Details};
use super::super::update::Terms;
use super::super::{Api, Response, Status};
use crate::kinds::FieldError;
use crate::store::{At, GroupResource};

// === impl Api ===

impl Api {
    /// Assigns a Pod to the Node in a Binding.
    pub(super) async fn bind(&self, call: &mut Call) -> Result<Response, Status> {
        call.options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let Body { value: mut binding, .. } = call.body.take().unwrap_or_default();
        self.admit(call, Operation::Connect, None, &mut binding).await?;
        self.validate(call, Operation::Connect, None, &binding).await?;
        let node = binding.pointer("/target/name").and_then(Value::as_str).unwrap_or_default().to_owned();
        if node.is_empty() {
            let error = FieldError::required("target.name", "");
            return Err(Status::invalid_kind("", "Binding", &call.target.name, &[error]));
        }
        let now = object::time(self.now());
        let mut make = |call: &mut Call, old: Option<&Value>| {
            let (kind, name) = (&call.served.kind, &call.target.name);
            let Some(old) = old else { return Err(Status::not_found(kind, name)) };
            let conflict = |why: String| Err(Status::conflict(kind, name, why).for_binding(name));
            if object::is_terminating(old) {
                return conflict(format!("pod {name} is being deleted, cannot be assigned to a host"));
            }
            let assigned = old.pointer("/spec/nodeName").and_then(Value::as_str).unwrap_or_default();
            if !assigned.is_empty() {
                return conflict(format!("pod {name} is already assigned to node \"{assigned}\""));
            }
            let mut pod = old.clone();
            if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
                spec.insert("nodeName".to_owned(), node.as_str().into());
            }
            let scheduled = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": now});
            if let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) {
                let conditions = status.entry("conditions").or_insert_with(|| json!([]));
                if let Some(conditions) = conditions.as_array_mut() {
                    conditions.retain(|condition| object::text(condition, "type") != "PodScheduled");
                    conditions.push(scheduled);
                }
            }
            Ok(pod)
        };
        self.modify(call, &Terms::default(), &mut make).await?;
        Ok(Response::made(201, created()))
    }

    /// Deletes a Pod, unless a `PodDisruptionBudget` allows no disruption of it.
    pub(super) async fn evict(&self, call: &mut Call) -> Result<Response, Status> {
        let Body { value: eviction, .. } = call.body.take().unwrap_or_default();
        let body =
            eviction.get("deleteOptions").cloned().map(|value| Body { value, strict_errors: Vec::new() });
        let options = DeleteOptions::parse(&call.query, body.as_ref())?;
        call.options.dry_run = options.dry_run;
        let pod = self.shared.store.get(&call.served.resource, &call.key());
        let pod = pod.ok_or_else(|| Status::not_found(&call.served.kind, &call.target.name))?;
        let ended = matches!(
            pod.value().pointer("/status/phase").and_then(Value::as_str),
            Some("Succeeded" | "Failed")
        );
        if !ended && !object::is_terminating(pod.value()) {
            self.check_budgets(&call.target.namespace, pod.value())?;
        }
        self.delete_object(call, &options).await?;
        Ok(Response::made(201, created()))
    }

    /// Returns a 429 if a budget that selects the Pod allows no disruption.
    fn check_budgets(&self, namespace: &str, pod: &Value) -> Result<(), Status> {
        let resource = GroupResource::new("policy", "poddisruptionbudgets");
        let listing = self.shared.store.list(&resource, Some(namespace), None, At::Newest);
        for budget in listing.into_iter().flat_map(|listing| listing.items) {
            let budget = budget.value();
            let selector =
                budget.pointer("/spec/selector").map(super::super::scale::selector_text).unwrap_or_default();
            let selects = LabelSelector::parse(&selector)
                .is_ok_and(|selector| selector.matches(pod.pointer("/metadata/labels")));
            let number = |field: &str| budget.pointer(field).and_then(Value::as_i64).unwrap_or(0);
            if !selects || number("/status/disruptionsAllowed") > 0 {
                continue;
            }
            let name = object::meta(budget, "name");
            let message = format!(
                "The disruption budget {name} needs {} healthy pods and has {} currently",
                number("/status/desiredHealthy"),
                number("/status/currentHealthy")
            );
            let cause = Cause { reason: "DisruptionBudget".to_owned(), message, field: String::new() };
            let why = "Cannot evict pod as it would violate the pod's disruption budget.";
            let details = Details { causes: vec![cause], ..Details::default() };
            return Err(Status::new(429, "TooManyRequests", why).with_details(details));
        }
        Ok(())
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
fn created() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
