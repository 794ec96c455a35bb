//! Validating admission policies: expressions that a write must fulfil, with the bindings that put them to
//! use.

use std::sync::Arc;

use serde_json::Value;

use super::super::object;
use super::super::status::Cause;
use super::super::{Api, Status};
use super::conditions::Conditions;
use super::configured::Configured;
use super::params::{self, ParamKind};
use super::write::Write;
use crate::kinds::custom::{Activation, Environment, Expression, Output};
use crate::store::Version;

/// A policy with its bindings.
#[derive(Debug)]
pub(super) struct Policy {
    name: String,
    spec: Value,
    fail: bool,
    conditions: Conditions,
    variables: Vec<(String, Result<Expression, String>)>,
    validations: Vec<Validation>,
    annotations: Vec<Result<Expression, String>>,
    bindings: Vec<Binding>,
}

#[derive(Debug)]
struct Binding {
    name: String,
    spec: Value,
}

#[derive(Debug)]
struct Validation {
    text: String,
    program: Result<Expression, String>,
    message: String,
    message_program: Option<Expression>,
    reason: String,
}

/// The failure of one validation.
struct Failure {
    message: String,
    /// Empty for the default.
    reason: String,
}

/// A denial, with the binding that caused it.
struct Denial<'a> {
    binding: Option<&'a Binding>,
    failure: Failure,
}

// === impl Policy ===

impl Policy {
    /// Returns a stored policy; `None` if no binding puts it to use.
    pub(super) fn new(policy: &Arc<Version>, bindings: &[Arc<Version>]) -> Option<Self> {
        let policy = policy.value();
        let (name, spec) = (object::meta(policy, "name"), policy.get("spec")?);
        let bindings: Vec<_> = bindings
            .iter()
            .filter(|binding| {
                binding.value().pointer("/spec/policyName").and_then(Value::as_str) == Some(name)
            })
            .map(|binding| Binding {
                name: object::meta(binding.value(), "name").to_owned(),
                spec: binding.value().get("spec").cloned().unwrap_or_default(),
            })
            .collect();
        if bindings.is_empty() {
            return None;
        }
        let (params, fail) = (!spec["paramKind"].is_null(), spec["failurePolicy"] != "Ignore");
        let list = |field: &str| spec[field].as_array().into_iter().flatten();
        let mut environment = Environment::new(params, true);
        if list("variables").next().is_some() {
            environment = environment.with_variables();
        }
        let mut variables = Vec::new();
        for variable in list("variables") {
            let name = object::text(variable, "name");
            let expression = environment.declare(name, object::text(variable, "expression"));
            variables.push((name.to_owned(), expression));
        }
        let validation = |of: &Value| {
            let text = |field| object::text(of, field).to_owned();
            let message = text("messageExpression");
            Validation {
                program: environment.compile(&text("expression"), Output::Bool),
                text: text("expression"),
                message: text("message"),
                message_program: environment.compile(&message, Output::String).ok(),
                reason: text("reason"),
            }
        };
        let annotation = |of: &Value| {
            environment.compile(object::text(of, "valueExpression").trim(), Output::StringOrNull)
        };
        Some(Self {
            conditions: Conditions::new(&spec["matchConditions"], params, fail),
            validations: list("validations").map(validation).collect(),
            annotations: list("auditAnnotations").map(annotation).collect(),
            name: name.to_owned(),
            spec: spec.clone(),
            fail,
            variables,
            bindings,
        })
    }

    /// Returns the failures of a write under one set of parameters.
    fn validate(&self, activation: &mut Activation) -> Vec<Failure> {
        match self.conditions.hold(activation) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(message) => return self.error(message).into_iter().collect(),
        }
        for (name, variable) in &self.variables {
            if let Ok(expression) = variable {
                activation.declare(name, expression);
            }
        }
        let mut failures = Vec::new();
        for validation in &self.validations {
            let held = match &validation.program {
                Ok(program) => activation.holds(program),
                Err(error) => Err(format!("compilation error: {error}")),
            };
            match held {
                Ok(true) => {}
                Ok(false) => failures.push(validation.failure(activation)),
                Err(message) => failures.extend(self.error(message)),
            }
        }
        for annotation in &self.annotations {
            let error = match annotation {
                Ok(annotation) => activation.annotation_error(annotation),
                Err(error) => Some(format!("compilation error: {error}")),
            };
            failures.extend(error.and_then(|message| self.error(message)));
        }
        failures
    }

    /// Returns the failure of a policy that cannot be evaluated; `None` if it then accepts the write.
    fn error(&self, message: String) -> Option<Failure> {
        self.fail.then(|| Failure { message, reason: String::new() })
    }
}

// === impl Validation ===

impl Validation {
    fn failure(&self, activation: &Activation) -> Failure {
        let message = self.message_program.as_ref().and_then(|program| activation.message(program));
        let message = message.unwrap_or_else(|| match self.message.trim() {
            "" => format!("failed expression: {}", self.text.trim()),
            message => message.to_owned(),
        });
        let reason = if self.reason.is_empty() { "Invalid" } else { &self.reason };
        Failure { message, reason: reason.to_owned() }
    }
}

// === impl Api ===

impl Api {
    /// Evaluates the policies for a write. Returns their warnings.
    pub(super) async fn apply_policies(
        &self,
        configured: &Configured,
        write: &Write<'_>,
        object: &Value,
    ) -> Result<Vec<String>, Status> {
        let (mut warnings, mut denied) = (Vec::new(), None);
        for policy in &configured.policies {
            if let Some(denial) = self.apply_policy(policy, write, object, &mut warnings).await? {
                denied = denied.or(Some((policy, denial)));
            }
        }
        let Some((policy, denial)) = denied else { return Ok(warnings) };
        let by = denial.binding.map_or(String::new(), |binding| format!(" with binding '{}'", binding.name));
        let failure = denial.failure;
        let message =
            format!("ValidatingAdmissionPolicy '{}'{by} denied request: {}", policy.name, failure.message);
        let name = if write.name().is_empty() { "Unknown" } else { write.name() };
        let status = Status::forbidden(&write.call.served.kind, name, &message);
        let (code, reason) = match failure.reason.as_str() {
            "Forbidden" => (403, "Forbidden"),
            "Unauthorized" => (401, "Unauthorized"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        let mut details = status.failure().details.clone().unwrap_or_default();
        details.causes.push(Cause { message, ..Cause::default() });
        let status = Status::new(code, reason, status.message()).with_details(details);
        Err(status.with_warnings(warnings))
    }

    /// Evaluates one policy. Returns the first denial.
    async fn apply_policy<'a>(
        &self,
        policy: &'a Policy,
        write: &Write<'_>,
        object: &Value,
        warnings: &mut Vec<String>,
    ) -> Result<Option<Denial<'a>>, Status> {
        let constraints = &policy.spec["matchConstraints"];
        let Some(form) = self.constrained(write, constraints, object)? else { return Ok(None) };
        let mut denied = None;
        let kind = ParamKind::find(self, &policy.spec["paramKind"]);
        let kind = match kind {
            Ok(kind) => kind,
            Err(error) => {
                let failure = policy.error(format!("failed to configure policy: {error}"));
                return Ok(failure.map(|failure| Denial { binding: None, failure }));
            }
        };
        for binding in &policy.bindings {
            if self.constrained(write, &binding.spec["matchResources"], object)?.is_none() {
                continue;
            }
            let params = params::collect(self, kind.as_ref(), &binding.spec["paramRef"], write.namespace());
            let failures = match params.await {
                Err(error) => {
                    let failure = policy.error(format!("failed to configure binding: {error}"));
                    let denial = failure.map(|failure| Denial { binding: Some(binding), failure });
                    denied = denied.or(denial);
                    continue;
                }
                Ok(params) => {
                    let (new, old) = (form.show(self, object).await?, form.show(self, write.old).await?);
                    let namespace = write.namespace_of_object(self);
                    let request = write.request(&form).into();
                    let mut activation = Activation::new(&new, &old, &request, &namespace);
                    let mut failures = Vec::new();
                    for params in params {
                        activation.set_params(&params);
                        failures.extend(policy.validate(&mut activation));
                    }
                    failures
                }
            };
            let actions = || binding.spec["validationActions"].as_array().into_iter().flatten();
            for failure in failures {
                if actions().any(|action| action == "Warn") {
                    warnings.push(format!(
                        "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                        policy.name, binding.name, failure.message
                    ));
                }
                if actions().any(|action| action == "Deny") {
                    denied = denied.or(Some(Denial { binding: Some(binding), failure }));
                }
            }
        }
        Ok(denied)
    }
}
