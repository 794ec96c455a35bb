//! The subresource `eviction` of Pods: a deletion that disruption budgets may refuse.

use std::sync::Arc;

use serde_json::{Value, json};

use super::super::admission::Operation;
use super::super::call::Call;
use super::super::delete::check_preconditions;
use super::super::object;
use super::super::options::{DeleteOptions, WriteOptions};
use super::super::request::{Body, Request, Target, Verb};
use super::super::selector::LabelSelector;
use super::super::status::{Cause, Details};
use super::super::update::Terms;
use super::super::{Api, Response, Status};
use super::pods::{created, set_condition};
use crate::kinds::conditions;
use crate::store::{At, GroupResource, Version};

/// The largest number of evictions that a budget may have unconfirmed.
const MAX_DISRUPTED: usize = 2000;
/// The manager of the fields that the server itself writes.
const SERVER: &str = "kube-apiserver";

// === impl Api ===

impl Api {
    /// Deletes a Pod, unless a `PodDisruptionBudget` allows no disruption of it.
    pub(super) async fn evict(&self, call: &mut Call) -> Result<Response, Status> {
        call.options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let Body { value: mut eviction, .. } = call.body.take().unwrap_or_default();
        call.place(&mut eviction)?;
        self.admit(call, Operation::Create, None, &mut eviction).await?;
        if object::meta(&eviction, "name") != call.target.name {
            return Err(Status::bad_request("name in URL does not match name in Eviction object"));
        }
        let body =
            eviction.get("deleteOptions").cloned().map(|value| Body { value, strict_errors: Vec::new() });
        let mut options = DeleteOptions::parse(&call.query, body.as_ref())?;
        call.options.dry_run |= options.dry_run;
        self.validate(call, Operation::Create, None, &eviction).await?;
        let version = self.shared.store.get(&call.served.resource, &call.key());
        let version = version.ok_or_else(|| Status::not_found(&call.served.kind, &call.target.name))?;
        let pod = version.value();
        let phase = pod.pointer("/status/phase").and_then(Value::as_str);
        let mut unguarded = None;
        if !matches!(phase, Some("Succeeded" | "Failed" | "Pending")) && !object::is_terminating(pod) {
            match self.budgets(&call.target.namespace, pod).as_slice() {
                [] => {}
                [budget] if !is_ready(pod) && spares_unready(budget.value()) => {
                    // The Pod must not have become ready since.
                    unguarded = options.resource_version.is_none().then(|| Arc::clone(budget));
                    let read = || version.revision().to_string();
                    options.resource_version.get_or_insert_with(read);
                }
                [budget] => self.disrupt(call, budget).await?,
                _ => return Ok(Response::made(500, several_budgets())),
            }
        }
        match self.remove_evicted(call, options).await {
            Err(status) if status.code() == 409 && unguarded.is_some() => {
                Err(unguarded.map_or(status, |budget| unprocessed(budget.value())))
            }
            Err(status) => Err(status),
            Ok(()) => Ok(Response::made(201, created())),
        }
    }

    /// Marks a Pod as evicted and deletes it.
    async fn remove_evicted(&self, call: &mut Call, mut options: DeleteOptions) -> Result<(), Status> {
        if !call.options.dry_run {
            let now = object::time(self.now());
            let revision = self.rewrite(call, &mut |pod| {
                check_preconditions(&call.served.kind, &options, pod)?;
                let condition = json!({
                    "type": "DisruptionTarget",
                    "status": "True",
                    "reason": "EvictionByEvictionAPI",
                    "message": "Eviction API: evicting",
                });
                set_condition(pod, condition, &now);
                Ok(())
            })?;
            options.resource_version = options.resource_version.map(|_| revision);
        }
        self.delete_admitted(call, &options).await.map(drop)
    }

    /// Returns the budgets that select a Pod.
    fn budgets(&self, namespace: &str, pod: &Value) -> Vec<Arc<Version>> {
        let resource = GroupResource::new("policy", "poddisruptionbudgets");
        let listing = self.shared.store.list(&resource, Some(namespace), None, At::Newest);
        let mut budgets: Vec<_> = listing.into_iter().flat_map(|listing| listing.items).collect();
        budgets.retain(|budget| {
            let Some(selector) = budget.value().pointer("/spec/selector") else { return false };
            let selector = LabelSelector::parse(&super::super::scale::selector_text(selector));
            selector.is_ok_and(|selector| selector.matches(pod.pointer("/metadata/labels")))
        });
        budgets
    }

    /// Counts the disruption of a Pod in its budget, or refuses it.
    async fn disrupt(&self, call: &Call, budget: &Version) -> Result<(), Status> {
        let Some(served) = self.served("policy", "v1", "poddisruptionbudgets") else { return Ok(()) };
        let target = Target::new("policy", "v1", "poddisruptionbudgets")
            .namespace(budget.key().namespace())
            .name(budget.key().name())
            .subresource("status");
        let mut request = Request::new(Verb::Update, target);
        SERVER.clone_into(&mut request.user_agent);
        let mut of_budget = Call::new(served, request);
        of_budget.options.dry_run = call.options.dry_run;
        let (pod, now) = (&call.target.name, self.now());
        let mut make = |call: &mut Call, old: Option<&Value>| {
            let Some(old) = old else { return Err(Status::not_found(&call.served.kind, &call.target.name)) };
            let mut budget = old.clone();
            check_budget(call, old)?;
            count_disruption(&mut budget, pod, &object::time(now));
            Ok(call.served.own(Some(old), budget, &call.author(now)))
        };
        self.modify(&mut of_budget, &Terms::default(), &mut make).await.map(drop)
    }
}

fn number(budget: &Value, field: &str) -> i64 {
    budget.pointer(field).and_then(Value::as_i64).unwrap_or(0)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    conditions.into_iter().any(|condition| {
        object::text(condition, "type") == "Ready" && object::text(condition, "status") == "True"
    })
}

/// Returns whether a budget allows the eviction of a Pod that is not ready, whatever it counts.
fn spares_unready(budget: &Value) -> bool {
    let desired = number(budget, "/status/desiredHealthy");
    budget.pointer("/spec/unhealthyPodEvictionPolicy").is_some_and(|policy| policy == "AlwaysAllow")
        || (desired > 0 && number(budget, "/status/currentHealthy") >= desired)
}

/// Returns the error if a budget allows no disruption.
fn check_budget(call: &Call, budget: &Value) -> Result<(), Status> {
    let name = object::meta(budget, "name");
    let forbidden = |why: &str| {
        let message = format!("poddisruptionbudget.policy \"{name}\" is forbidden: {why}");
        let kind = "poddisruptionbudget".to_owned();
        let details = Details { kind, ..Details::of(&call.served.kind, name) };
        Status::new(403, "Forbidden", message).with_details(details)
    };
    if number(budget, "/status/observedGeneration") < object::generation(budget) {
        return Err(unprocessed(budget));
    }
    let allowed = number(budget, "/status/disruptionsAllowed");
    if allowed < 0 {
        return Err(forbidden("pdb disruptions allowed is negative"));
    }
    let disrupted = budget.pointer("/status/disruptedPods").and_then(Value::as_object);
    if disrupted.is_some_and(|pods| pods.len() > MAX_DISRUPTED) {
        return Err(forbidden(
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
        ));
    }
    if allowed > 0 {
        return Ok(());
    }
    let conditions = budget.pointer("/status/conditions").and_then(Value::as_array).into_iter().flatten();
    let condition = conditions.into_iter().find(|it| object::text(it, "type") == "DisruptionAllowed");
    let why = |field| condition.map_or("", |condition| object::text(condition, field));
    let explained = why("status") == "False" && !why("message").is_empty();
    let (desired, current) =
        (number(budget, "/status/desiredHealthy"), number(budget, "/status/currentHealthy"));
    let refusal = format!("The disruption budget {name} does not allow evicting pods currently");
    let message = if explained && why("reason") == "SyncFailed" {
        format!("{refusal} because it failed sync: {}", why("message"))
    } else if current <= desired {
        format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
    } else if explained {
        format!("{refusal} ({}): {}", why("reason"), why("message"))
    } else {
        refusal
    };
    Err(too_many(message, 0))
}

/// The answer while the budget's controller has not seen the newest budget.
fn unprocessed(budget: &Value) -> Status {
    let name = object::meta(budget, "name");
    too_many(format!("The disruption budget {name} is still being processed by the server."), 10)
}

fn too_many(message: String, retry_after_seconds: u32) -> Status {
    let cause = Cause { reason: "DisruptionBudget".to_owned(), message, field: String::new() };
    let why = "Cannot evict pod as it would violate the pod's disruption budget.";
    let details = Details { causes: vec![cause], retry_after_seconds, ..Details::default() };
    Status::new(429, "TooManyRequests", why).with_details(details)
}

/// The answer about a Pod with several budgets; the real server sends it without a reason.
fn several_budgets() -> Value {
    let message =
        "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
        "code": 500,
    })
}

/// Adds a disrupted Pod to the status of its budget.
fn count_disruption(budget: &mut Value, pod: &str, now: &str) {
    let generation = number(budget, "/status/observedGeneration");
    let allowed = number(budget, "/status/disruptionsAllowed") - 1;
    let Some(status) = budget.get_mut("status").filter(|status| status.is_object()) else { return };
    status["disruptionsAllowed"] = allowed.into();
    status["disruptedPods"][pod] = now.into();
    if allowed > 0 {
        return;
    }
    let mut condition = json!({
        "type": "DisruptionAllowed",
        "status": "False",
        "reason": "InsufficientPods",
        "message": "",
    });
    if generation != 0 {
        condition["observedGeneration"] = generation.into();
    }
    conditions::set(status, condition, now);
}
