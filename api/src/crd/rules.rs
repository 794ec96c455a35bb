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

use super::patterns;
use crate::wait_for::{FORBIDDEN_HEADER_PREFIXES, FORBIDDEN_HEADERS};

// Reasons of rules:
// <https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/>, under
// "Field `reason`".
const REQUIRED: &str = "FieldValueRequired";
const FORBIDDEN: &str = "FieldValueForbidden";
const INVALID: &str = "FieldValueInvalid";

/// The fields for checks, of which a dependency has exactly one.
const CHECKS: [&str; 7] = ["service", "tcpSocket", "httpGet", "grpc", "tls", "dns", "resource"];

/// Returns the merge patch for the generated schema.
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

fn dependency() -> Value {
    let set: Vec<String> = CHECKS.iter().map(|check| format!("has(self.{check})")).collect();
    json!({
        "x-kubernetes-validations": [
            {
                "rule": format!("[{}].filter(set, set).size() == 1", set.join(", ")),
                "message": format!("exactly one of {} has to be set", CHECKS.join(", ")),
            },
            rule(
                INVALID,
                ".timeoutSeconds",
                "!has(self.timeoutSeconds) || !has(self.periodSeconds) || self.timeoutSeconds <= \
                 self.periodSeconds",
                "timeoutSeconds is longer than periodSeconds: an attempt ends before the next one begins; \
                 lower the one or raise the other",
            ),
        ],
        "properties": {
            "name": form(
                patterns::LABEL,
                "name must consist of lower-case letters, digits and - inside, such as database",
            ),
            "initialDelaySeconds": {"default": 0},
            "periodSeconds": {"default": 10},
            "successThreshold": {"default": 1},
            "failureThreshold": {"default": 3},
            "service": {"properties": {
                "name": form(
                    patterns::LABEL,
                    "name must be that of a Service in the same namespace: lower-case letters, digits and - \
                     inside, such as postgres",
                ),
                "port": port_of_service(),
                "minReadyEndpoints": {"default": 1},
            }},
            "tcpSocket": {"properties": {"host": host()}},
            "httpGet": http_get(),
            "grpc": {"properties": {
                "host": host(),
                "service": with(form(
                    patterns::GRAPHIC,
                    "service must be the name of a gRPC service, such as shop.v1.Orders",
                ), &json!({"default": ""})),
                "tlsMode": {"default": "Plaintext"},
            }},
            "tls": {"properties": {
                "host": host(),
                "serverName": host_called(
                    "serverName",
                    "the name in the certificate, such as postgres.shop.svc, or an address",
                ),
                "caConfigMap": {"properties": {
                    "name": form(
                        patterns::SUBDOMAIN,
                        "name must be that of a ConfigMap in the same namespace: lower-case letters, digits, \
                         - and . inside",
                    ),
                    "key": {
                        "default": "ca.crt",
                        "x-kubernetes-validations": [{
                            "rule": format!(
                                "{} && self != '.' && !self.startsWith('..')",
                                matches(patterns::CONFIG_MAP_KEY)
                            ),
                            "message": "key must consist of letters, digits, -, _ and ., such as ca.crt, and \
                                        must not begin with ..",
                        }],
                    },
                }},
            }},
            "dns": {"properties": {
                "name": dns_name(),
                "record": {"default": "Address"},
                "minRecords": {"default": 1},
            }},
            "resource": resource(),
        },
    })
}

fn http_get() -> Value {
    let names: Vec<String> = FORBIDDEN_HEADERS.iter().map(|name| format!("'{name}'")).collect();
    let forbidden = format!(
        "!(self.lowerAscii() in [{}]) && !self.lowerAscii().matches('^({})')",
        names.join(", "),
        FORBIDDEN_HEADER_PREFIXES.join("|")
    );
    json!({"properties": {
        "host": host(),
        "path": with(
            form(patterns::PATH, "path must begin with / and be percent-encoded, such as /ready?full=1"),
            &json!({"default": "/"}),
        ),
        "scheme": {"default": "HTTP"},
        "httpHeaders": {"items": {"properties": {
            "name": {"x-kubernetes-validations": [
                {
                    "rule": matches(patterns::TOKEN),
                    "message": "name must be that of a header, without colon or spaces, such as X-Probe",
                },
                {
                    "rule": forbidden,
                    "message": "this header is not permitted: it carries credentials, or belongs to proxies \
                                or to the connection; remove it",
                },
            ]},
            "value": form(
                patterns::HEADER_VALUE,
                "value must be printable ASCII, without spaces at its ends",
            ),
        }}},
        "expectedStatuses": {
            "x-kubernetes-list-type": "set",
            "items": {"minimum": 200, "maximum": 599},
        },
    }})
}

fn resource() -> Value {
    json!({
        "x-kubernetes-validations": [
            {
                "rule": "has(self.name) != has(self.selector)",
                "message": "exactly one of name and selector has to be set: name for one object, selector \
                            for all objects with its labels",
            },
            {
                "rule": "has(self.condition) != has(self.jsonPath)",
                "message": "exactly one of condition and jsonPath has to be set, such as condition: Complete",
            },
            {
                "rule": "has(self.jsonPath) == has(self.value)",
                "message": "jsonPath and value have to be set together, such as jsonPath: '{.status.phase}' \
                            beside value: Bound",
            },
        ],
        "properties": {
            "apiVersion": form(
                patterns::API_VERSION,
                "apiVersion must be a version, after its group and a slash except in the core group, such as \
                 batch/v1",
            ),
            "kind": form(patterns::KIND, "kind must consist of letters and digits, such as Job"),
            "name": {"x-kubernetes-validations": [{
                "rule": format!("{} && self != '.' && self != '..'", matches(patterns::PATH_SEGMENT)),
                "message": "name must be that of one object in the same namespace, without / and %",
            }]},
            "condition": form(
                patterns::CONDITION,
                "condition must be TYPE, or TYPE=STATUS with the status True, False or Unknown, such as \
                 Complete or Suspended=False",
            ),
            "selector": {
                "description": "Labels of objects in the same namespace. At least one object must exist, and \
                                all must have the state.",
                "x-kubernetes-validations": [{
                    "rule": "(has(self.matchLabels) && self.matchLabels.size() > 0) || \
                             (has(self.matchExpressions) && self.matchExpressions.size() > 0)",
                    "message": "selector is empty, which selects every object of the kind: write the labels \
                                of the objects in matchLabels",
                }],
                "properties": {
                    "matchLabels": {
                        "maxProperties": 16,
                        "additionalProperties": {"maxLength": 63},
                    },
                    "matchExpressions": {"maxItems": 16, "items": {
                        "x-kubernetes-validations": [
                            {
                                "rule": "self.operator in ['In', 'NotIn'] ? has(self.values) && \
                                         self.values.size() > 0 : !has(self.values) || self.values.size() == \
                                         0",
                                "message": "values has to be given for the operators In and NotIn, and for \
                                            no other",
                                "fieldPath": ".values",
                            },
                        ],
                        "properties": {
                            "key": {"minLength": 1, "maxLength": 317},
                            "operator": {"enum": ["In", "NotIn", "Exists", "DoesNotExist"]},
                            "values": {"maxItems": 16, "items": {"maxLength": 63}},
                        },
                    }},
                },
            },
        },
    })
}

/// Returns the schema of a port by number or name. Such a schema has no type, so the rule must check both.
fn port_of_service() -> Value {
    json!({
        "maxLength": 63,
        "x-kubernetes-validations": [{
            "rule": format!(
                "type(self) == int ? self >= 1 && self <= 65535 : self.matches('{}') && \
                 !self.matches('^[0-9]+$')",
                patterns::LABEL
            ),
            "message": "port must be a number from 1 to 65535, without quotes, or the name of a port of the \
                        Service, such as postgres",
        }],
    })
}

fn host() -> Value {
    host_called(
        "host",
        "a Service by name, a DNS name, an IPv4 address of four decimal numbers without leading zeros, or an \
         IPv6 address; the port is a field of its own",
    )
}

fn host_called(field: &str, expected: &str) -> Value {
    let rule = format!(
        "{} || {} || ({})",
        matches(patterns::IPV4),
        matches(patterns::IPV6),
        is_name_without_number()
    );
    json!({"x-kubernetes-validations": [{"rule": rule, "message": format!("{field} must be {expected}")}]})
}

fn dns_name() -> Value {
    json!({"x-kubernetes-validations": [{
        "rule": is_name_without_number(),
        "message": "name must be a complete DNS name and not an address, such as db.example.com or \
                    _postgres._tcp.db.example.com",
    }]})
}

fn is_name_without_number() -> String {
    format!("{} && !{}", matches(patterns::DNS_NAME), matches(patterns::NUMERIC))
}

/// Returns an open schema with only the structure that server-side apply needs to merge containers and
/// volumes by name. The API server checks the template when the Deployment is written.
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

/// Returns a rule of an object, about one of its fields.
fn rule(reason: &str, field: &str, rule: &str, message: &str) -> Value {
    json!({"reason": reason, "fieldPath": field, "rule": rule, "message": message})
}

/// Returns a schema with a rule that the string matches this pattern.
fn form(pattern: &str, message: &str) -> Value {
    json!({"x-kubernetes-validations": [{"rule": matches(pattern), "message": message}]})
}

/// Returns the CEL expression of a match. The pattern is a raw string, so its backslashes need no second
/// escape.
fn matches(pattern: &str) -> String {
    format!("self.matches(r\"{pattern}\")")
}

fn with(mut base: Value, more: &Value) -> Value {
    super::merge(&mut base, more);
    base
}
