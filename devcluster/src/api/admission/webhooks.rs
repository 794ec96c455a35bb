//! Webhooks of admission: which of them see a write, and what they make of it.

use futures_util::future::join_all;
use serde_json::Value;

use super::super::object;
use super::super::{Api, Status};
use super::conditions::Conditions;
use super::configured::Configured;
use super::review::{self, Decision};
use super::write::{Form, Write};
use crate::kinds::custom::Activation;
use crate::kinds::patch::json_patch;
use crate::kinds::{json, quoted};

/// The timeout of a webhook without one, in seconds.
const TIMEOUT: u64 = 10;

/// One webhook of a configuration.
#[derive(Debug)]
pub(super) struct Webhook {
    /// Identifies the webhook among all.
    id: String,
    spec: Value,
    conditions: Conditions,
}

/// The result of a call that does not allow the write.
enum Refusal {
    /// The call failed: the failure policy decides.
    Call(String),
    /// The write is refused.
    Final(Status),
}

// === impl Webhook ===

impl Webhook {
    pub(super) fn new(id: String, spec: &Value) -> Self {
        let conditions = Conditions::new(&spec["matchConditions"], false, spec["failurePolicy"] != "Ignore");
        Self { id, spec: spec.clone(), conditions }
    }

    fn name(&self) -> &str {
        object::text(&self.spec, "name")
    }

    /// Returns the form in which the webhook sees a write; `None` if it does not.
    async fn matches(&self, api: &Api, write: &Write<'_>, object: &Value) -> Result<Option<Form>, Status> {
        let selected = write.selected(api, &self.spec, object);
        if matches!(selected, Ok(false)) {
            return Ok(None);
        }
        let Some(form) = write.form_of(api, &self.spec["rules"], &self.spec["matchPolicy"]) else {
            return Ok(None);
        };
        selected?;
        if self.conditions.is_empty() {
            return Ok(Some(form));
        }
        let (new, old) = (form.show(api, object).await?, form.show(api, write.old).await?);
        let activation = Activation::new(&new, &old, &write.request(&form).into(), &Value::Null);
        match self.conditions.hold(&activation) {
            Ok(holds) => Ok(holds.then_some(form)),
            Err(error) => Err(Status::forbidden(&write.call.served.kind, write.name(), error)),
        }
    }

    /// Calls the webhook and returns its decision. `objects` are the new and the old one.
    async fn call(
        &self,
        api: &Api,
        write: &Write<'_>,
        form: &Form,
        objects: [&Value; 2],
        mutating: bool,
    ) -> Result<Decision, Refusal> {
        let effects = object::text(&self.spec, "sideEffects");
        if write.call.options.dry_run && !matches!(effects, "None" | "NoneOnDryRun") {
            let message = format!("admission webhook {} does not support dry run", quoted(self.name()));
            return Err(Refusal::Final(Status::bad_request(message)));
        }
        let Some(review) = review::of(api, write, form, objects, &self.spec["admissionReviewVersions"])
        else {
            let why = "could not create admission objects: webhook does not accept known AdmissionReview \
                       versions (v1, v1beta1)";
            return Err(Refusal::Call(why.to_owned()));
        };
        let timeout = self.spec["timeoutSeconds"].as_u64().unwrap_or(TIMEOUT);
        let answer = api.post_review(&self.spec["clientConfig"], &review, timeout).await;
        let answer = answer.map_err(|error| Refusal::Call(error.text("failed to call webhook")))?;
        review::check_type(&review, &answer)
            .map_err(|error| Refusal::Call(format!("failed to call webhook: {error}")))?;
        Decision::read(&review, &answer, mutating)
            .map_err(|error| Refusal::Call(format!("received invalid webhook response: {error}")))
    }

    /// Returns the answer to a write that a call did not allow; `None` if the write goes on.
    fn refused(&self, refusal: Refusal) -> Option<Status> {
        match refusal {
            Refusal::Final(status) => Some(status),
            Refusal::Call(_) if self.spec["failurePolicy"] == "Ignore" => None,
            Refusal::Call(error) => {
                Some(Status::internal(format!("failed calling webhook {}: {error}", quoted(self.name()))))
            }
        }
    }
}

// === impl Api ===

impl Api {
    /// Passes a write through the mutating webhooks, one after the other. Returns their warnings.
    pub(super) async fn call_mutating(
        &self,
        configured: &Configured,
        write: &Write<'_>,
        object: &mut Value,
    ) -> Result<Vec<String>, Status> {
        let mut warnings = Vec::new();
        // Webhooks to call again if a later one changes the object, and those to be called again.
        let (mut earlier, mut again): (Vec<&str>, Vec<&str>) = (Vec::new(), Vec::new());
        for round in 0..2 {
            if round == 1 && again.is_empty() {
                break;
            }
            for webhook in &configured.mutating {
                let Some(form) = webhook.matches(self, write, object).await? else { continue };
                if round == 1 && !again.contains(&webhook.id.as_str()) {
                    continue;
                }
                let refused = match self.mutate(webhook, write, &form, object, &mut warnings).await {
                    Ok(changed) => {
                        if changed {
                            again.append(&mut earlier);
                        }
                        None
                    }
                    Err(refusal) => webhook.refused(refusal),
                };
                if webhook.spec["reinvocationPolicy"] == "IfNeeded" {
                    earlier.push(&webhook.id);
                }
                if let Some(status) = refused {
                    return Err(status.with_warnings(warnings));
                }
            }
        }
        Ok(warnings)
    }

    /// Calls a mutating webhook and applies its patch. Returns whether the object has changed.
    async fn mutate(
        &self,
        webhook: &Webhook,
        write: &Write<'_>,
        form: &Form,
        object: &mut Value,
        warnings: &mut Vec<String>,
    ) -> Result<bool, Refusal> {
        let new = form.show(self, object).await.map_err(Refusal::Final)?;
        let old = form.show(self, write.old).await.map_err(Refusal::Final)?;
        let decision = webhook.call(self, write, form, [&new, &old], true).await?;
        warnings.extend_from_slice(&decision.warnings);
        if !decision.allowed {
            return Err(Refusal::Final(decision.denial(webhook.name())));
        }
        let Some(patch) = &decision.patch else { return Ok(false) };
        let undecodable =
            |error: String| Refusal::Call(format!("received undecodable patch in webhook response: {error}"));
        let patch = json::decode(patch).map_err(undecodable)?.value;
        let Some(operations) = patch.as_array() else {
            let found = crate::kinds::go::json_type(&patch);
            let why = format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Patch");
            return Err(undecodable(why));
        };
        if operations.is_empty() {
            return Ok(false);
        }
        if new.is_null() {
            return Err(Refusal::Final(Status::internal(format!(
                "admission webhook {} attempted to modify the object, which is not supported for this \
                 operation",
                quoted(webhook.name())
            ))));
        }
        if decision.patch_type != "JSONPatch" {
            let why = format!("unsupported patch type {}", quoted(&decision.patch_type));
            return Err(Refusal::Call(why));
        }
        let mut patched = new.into_owned();
        let failed = |error: String| Refusal::Final(Status::internal(error));
        json_patch(&mut patched, &patch).map_err(|error| failed(error.to_string()))?;
        self.take_patched(write, form, &mut patched).await.map_err(failed)?;
        let changed = patched != *object;
        *object = patched;
        Ok(changed)
    }

    /// Brings a patched object back into the form that writes have.
    async fn take_patched(&self, write: &Write<'_>, form: &Form, patched: &mut Value) -> Result<(), String> {
        let served = &write.call.served;
        if form.kind == write.form().kind && form.kind[2] != served.kind.kind {
            return Ok(());
        }
        if form.other.is_some() {
            let converted = self.convert_objects(served, std::slice::from_mut(patched)).await;
            converted.map_err(|status| status.message().to_owned())?;
        }
        served.admit(patched)?;
        if object::meta_value(patched, "managedFields").is_some_and(object::is_empty) {
            object::remove_meta(patched, "managedFields");
        }
        Ok(())
    }

    /// Passes a write through the validating webhooks, all at once. Returns their warnings.
    pub(super) async fn call_validating(
        &self,
        configured: &Configured,
        write: &Write<'_>,
        object: &Value,
    ) -> Result<Vec<String>, Status> {
        let mut matching = Vec::new();
        for webhook in &configured.validating {
            if let Some(form) = webhook.matches(self, write, object).await? {
                matching.push((webhook, form));
            }
        }
        let calls = matching.iter().map(|(webhook, form)| async move {
            let new = form.show(self, object).await.map_err(Refusal::Final)?;
            let old = form.show(self, write.old).await.map_err(Refusal::Final)?;
            webhook.call(self, write, form, [&new, &old], false).await
        });
        let (mut warnings, mut refused) = (Vec::new(), None);
        for ((webhook, _), decision) in matching.iter().zip(join_all(calls).await) {
            let status = match decision {
                Ok(decision) => {
                    warnings.extend_from_slice(&decision.warnings);
                    (!decision.allowed).then(|| decision.denial(webhook.name()))
                }
                Err(refusal) => webhook.refused(refusal),
            };
            refused = refused.or(status);
        }
        match refused {
            None => Ok(warnings),
            Some(status) => Err(status.with_warnings(warnings)),
        }
    }
}
