//! The parts of the schema that Rust types cannot express: CEL rules, patterns of strings, keys of lists,
//! defaults.
//!
//! The message of each rule names the problem and its correction; the API server prepends the path of the
//! field. Lists and strings are bounded in the types, since the API server refuses a CRD whose rules could
//! become expensive (<https://kubernetes.io/docs/reference/using-api/cel/#resource-constraints>). Only
//! `spec.selector` is unbounded, as it is in a Deployment; its two rules, a comparison and a count, cost
//! little.
//!
//! # Invariants
//! 1. No rule is about `waitProbe` alone: every manifest of the article is admitted, and
//!    [`WaitProbe::resolve`](crate::wait_probe::WaitProbe::resolve) validates it.
//! 2. No rule is below `spec.template`.
//! 3. A default has the same meaning as the absence of the field.

use serde_json::{Value, json};

mod dependency;

use dependency::dependency;

// Reasons of rules:
// <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>, under
// "Field `reason`".
const REQUIRED: &str = "FieldValueRequired";
const FORBIDDEN: &str = "FieldValueForbidden";
const INVALID: &str = "FieldValueInvalid";

/// Returns the JSON merge patch that adds validation rules, defaults and list types to the generated schema
/// of the CRD.
pub(super) fn patch() -> Value {
    json!({
        "description": "A Deployment that starts only once its dependencies hold.",
        "x-kubernetes-validations": [rule(
            FORBIDDEN,
            ".waitProbe",
            "!has(self.waitProbe) || dyn(self.waitProbe) == null || !has(self.spec.waitFor)",
            "waitProbe and spec.waitFor exclude each other: remove waitProbe, and add its address to \
             spec.waitFor.dependencies as a tcpSocket",
        )],
        "properties": {
            "spec": {
                "x-kubernetes-preserve-unknown-fields": true,
                "x-kubernetes-validations": [
                    rule(
                        REQUIRED,
                        ".replicas",
                        "!has(self.waitFor) || !has(self.waitFor.onLoss) || self.waitFor.onLoss != \
                         'ScaleToZero' || (has(self.replicas) && dyn(self.replicas) != null)",
                        "replicas has to be set where waitFor.onLoss is ScaleToZero: it is the number of \
                         Pods to restore after a loss",
                    ),
                    rule(
                        REQUIRED,
                        ".replicas",
                        "!has(self.waitFor) || !has(self.waitFor.gates) || !('ScaleFromZero' in \
                         self.waitFor.gates) || (has(self.replicas) && dyn(self.replicas) != null)",
                        "replicas has to be set where waitFor.gates has ScaleFromZero: only replicas that \
                         the object sets can be held back",
                    ),
                ],
                "properties": {
                    "selector": selector_of_deployment(),
                    "strategy": open_object(),
                    "template": pod_template(),
                    "waitFor": wait_for(),
                },
            },
            // For kstatus, an object without a status is current. The default marks a new object as not yet
            // reconciled, so that tools that use kstatus (Flux, Helm) wait for it.
            "status": {
                "default": {"observedGeneration": -1},
                "properties": {
                    "observedGeneration": {"default": -1},
                    "conditions": {
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["type"],
                        "items": {"properties": {"status": {"enum": ["True", "False", "Unknown"]}}},
                    },
                    "dependencies": {
                        "x-kubernetes-list-type": "map",
                        "x-kubernetes-list-map-keys": ["name"],
                    },
                },
            },
        },
    })
}

fn selector_of_deployment() -> Value {
    json!({
        "description": "Selects the Pods of the Deployment; must match the template's labels and cannot be \
                        changed later.",
        "x-kubernetes-map-type": "atomic",
        "x-kubernetes-validations": [
            {
                "rule": "self == oldSelf",
                "message": "spec.selector is immutable: a Deployment cannot change which Pods it owns; \
                            create a new WaitDeployment instead",
            },
            {
                "rule": "(has(self.matchLabels) && self.matchLabels.size() > 0) || \
                         (has(self.matchExpressions) && self.matchExpressions.size() > 0)",
                "message": "spec.selector is empty, which a Deployment does not accept: write labels of the \
                            template in matchLabels",
            },
        ],
    })
}

fn wait_for() -> Value {
    json!({
        "x-kubernetes-validations": [
            rule(
                REQUIRED,
                ".lossGraceSeconds",
                "!has(self.onLoss) || self.onLoss != 'ScaleToZero' || has(self.lossGraceSeconds)",
                "lossGraceSeconds has to be set where onLoss is ScaleToZero: it is the time after a loss \
                 until the Pods are removed, at least 30 s",
            ),
            rule(
                FORBIDDEN,
                ".lossGraceSeconds",
                "!has(self.onLoss) || self.onLoss != 'Ignore' || !has(self.lossGraceSeconds)",
                "lossGraceSeconds has no effect where onLoss is Ignore: remove it, or write onLoss: Report",
            ),
            rule(
                FORBIDDEN,
                ".recoveryDeadlineSeconds",
                "!has(self.onLoss) || self.onLoss != 'Ignore' || !has(self.recoveryDeadlineSeconds)",
                "recoveryDeadlineSeconds has no effect where onLoss is Ignore: remove it, or write onLoss: \
                 Report",
            ),
            rule(
                FORBIDDEN,
                ".onDeadline",
                "!has(self.onDeadline) || self.onDeadline == 'Fail' || has(self.deadlineSeconds)",
                "onDeadline has no effect without deadlineSeconds: set deadlineSeconds, or remove onDeadline",
            ),
        ],
        "properties": {
            "gates": {"x-kubernetes-list-type": "set"},
            "dependencies": {
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": dependency(),
            },
        },
    })
}

/// Returns an open schema of a Pod template with only the structure that server-side apply needs to merge
/// containers and volumes by name. The API server checks the template when the Deployment is written.
fn pod_template() -> Value {
    let named = json!({
        "type": "array",
        "nullable": true,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["name"],
        "items": {
            "type": "object",
            "required": ["name"],
            "properties": {"name": {"type": "string"}},
            "x-kubernetes-preserve-unknown-fields": true,
        },
    });
    with(
        open_object(),
        &json!({
            "properties": {
                "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                "spec": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": true,
                    "properties": {"containers": named, "initContainers": named, "volumes": named},
                },
            },
        }),
    )
}

fn open_object() -> Value {
    json!({"type": "object", "additionalProperties": null, "x-kubernetes-preserve-unknown-fields": true})
}

/// Returns a validation rule (CEL) of an object that reports a violation at the path `field`, with a reason
/// and a message.
fn rule(reason: &str, field: &str, rule: &str, message: &str) -> Value {
    json!({"reason": reason, "fieldPath": field, "rule": rule, "message": message})
}

/// Returns the schema of a string with one validation rule (CEL): the string must match the pattern.
fn form(pattern: &str, message: &str) -> Value {
    ruled(&matches(pattern), message)
}

/// Returns a schema with one validation rule (CEL) and the message for a violation.
fn ruled(rule: &str, message: &str) -> Value {
    json!({"x-kubernetes-validations": [{"rule": rule, "message": message}]})
}

/// Returns the CEL expression for a string that must match a pattern. CEL gets the pattern as a raw string,
/// so its backslashes need no second escape.
fn matches(pattern: &str) -> String {
    format!("self.matches(r\"{pattern}\")")
}

fn with(mut base: Value, more: &Value) -> Value {
    super::merge(&mut base, more);
    base
}
