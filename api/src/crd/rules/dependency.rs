//! Rules and defaults of one dependency.

use serde_json::{Value, json};

use super::{INVALID, form, matches, rule, ruled, with};
use crate::crd::patterns;
use crate::wait_for::{FORBIDDEN_HEADER_PREFIXES, FORBIDDEN_HEADERS};

/// The names of the fields for checks, of which a dependency has exactly one.
const CHECKS: [&str; 7] = ["service", "tcpSocket", "httpGet", "grpc", "tls", "dns", "resource"];

pub(super) fn dependency() -> Value {
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
                    "key": with(ruled(
                        &format!(
                            "{} && self != '.' && !self.startsWith('..')",
                            matches(patterns::CONFIG_MAP_KEY)
                        ),
                        "key must consist of letters, digits, -, _ and ., such as ca.crt, and must not begin \
                         with ..",
                    ), &json!({"default": "ca.crt"})),
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
            "name": ruled(
                &format!("{} && self != '.' && self != '..'", matches(patterns::PATH_SEGMENT)),
                "name must be that of one object in the same namespace, without / and %",
            ),
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
    let rule = format!(
        "type(self) == int ? self >= 1 && self <= 65535 : self.matches('{}') && !self.matches('^[0-9]+$')",
        patterns::LABEL
    );
    let message = "port must be a number from 1 to 65535, without quotes, or the name of a port of the \
                   Service, such as postgres";
    with(ruled(&rule, message), &json!({"maxLength": 63}))
}

fn host() -> Value {
    host_called(
        "host",
        "a Service by name, a DNS name, an IPv4 address of four decimal numbers without leading zeros, or an \
         IPv6 address; the port is a field of its own",
    )
}

fn host_called(field: &str, expected: &str) -> Value {
    let (ipv4, ipv6) = (matches(patterns::IPV4), matches(patterns::IPV6));
    let rule = format!("{ipv4} || {ipv6} || ({})", is_name_without_number());
    ruled(&rule, &format!("{field} must be {expected}"))
}

fn dns_name() -> Value {
    ruled(
        &is_name_without_number(),
        "name must be a complete DNS name and not an address, such as db.example.com or \
         _postgres._tcp.db.example.com",
    )
}

fn is_name_without_number() -> String {
    format!("{} && !{}", matches(patterns::DNS_NAME), matches(patterns::NUMERIC))
}
