//! What a Deployment waits for, and what happens when it waits too long or loses it again.
//!
//! The fields as they stand in a manifest. What they come to, defaults filled in and checked, is a
//! [`Plan`](crate::plan::Plan). Durations are integers with the unit in the name, as the API conventions ask for
//! (<https://github.com/kubernetes/community/blob/main/contributors/devel/sig-architecture/api-conventions.md#units>).

#![expect(
    clippy::doc_markdown,
    reason = "field docs become the descriptions of the CRD, which are plain text"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most dependencies of one object.
pub const MAX_DEPENDENCIES: usize = 16;

/// Headers that a probe does not send, in lower case: what carries credentials, and what belongs to the connection.
pub const FORBIDDEN_HEADERS: [&str; 19] = [
    "authorization",
    "connection",
    "content-length",
    "cookie",
    "cookie2",
    "expect",
    "forwarded",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "true-client-ip",
    "upgrade",
    "x-client-cert",
    "x-client-ip",
    "x-cluster-client-ip",
    "x-method-override",
    "x-real-ip",
];
/// As those, all headers that begin so: in them proxies pass users, certificates, addresses and methods on to servers. A
/// probe comes from the manager, which network policies may let through as they do a proxy. A list of permitted headers
/// instead would refuse those of most applications.
pub const FORBIDDEN_HEADER_PREFIXES: [&str; 19] = [
    "cf-",
    "fastly-",
    "impersonate-",
    "proxy-",
    "remote-",
    "ssl-",
    "x-amzn-oidc-",
    "x-auth",
    "x-envoy-",
    "x-forwarded-",
    "x-goog-",
    "x-http-method",
    "x-ms-client-",
    "x-original-",
    "x-remote-",
    "x-rewrite-",
    "x-ssl-",
    "x-user",
    "x-webauth-",
];

/// What must hold before the Deployment starts, and what follows if it does not.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitFor {
    /// What to wait for, 1 to 16 entries.
    #[schemars(length(min = 1, max = 16))]
    pub dependencies: Vec<Dependency>,
    /// All: every dependency that is not optional has to hold. Any: one is enough.
    #[serde(default, rename = "match")]
    pub match_policy: MatchPolicy,
    /// What is held back until the dependencies hold: Create, the first start; Update, a new template, while the old
    /// one keeps running; ScaleFromZero, replicas from 0 to more. Create when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 3))]
    pub gates: Option<Vec<Gate>>,
    /// Seconds after the gate closed at which onDeadline applies; without it the wait has no end. Restarts of the
    /// manager do not begin it anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub deadline_seconds: Option<i32>,
    /// Fail: reported as Stalled, and opened all the same should the dependencies hold later. Proceed: the gate opens
    /// without them. KeepWaiting: reported, nothing else.
    #[serde(default)]
    pub on_deadline: OnDeadline,
    /// What a dependency lost after the gate opened leads to. Ignore: it is not watched any more. Report: a condition
    /// and an Event. ScaleToZero: also no replicas until it holds again; needs lossGraceSeconds and spec.replicas.
    #[serde(default)]
    pub on_loss: OnLoss,
    /// Seconds for which a dependency must be lost before onLoss applies; replicas go after 30 at the earliest. When
    /// absent 0, or beside a service or resource its failureThreshold times periodSeconds, since nobody asks for it again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86_400))]
    pub loss_grace_seconds: Option<i32>,
    /// Seconds after a loss at which the object is reported as Stalled; without it, never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 31_536_000))]
    pub recovery_deadline_seconds: Option<i32>,
    /// What becomes of a Deployment of this name that was there before. Never: a conflict. IfUnowned: taken over if no
    /// controller owns it and its selector is the same. IfIdentical: only if its template is the same as well.
    #[serde(default)]
    pub adoption: Adoption,
}

/// One thing to wait for: a name, exactly one kind of check, and its times.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Name of the dependency, a DNS label, once per object.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Ready endpoints of a Service in the same namespace. Nothing is dialled: changes are told by the API server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceDependency>,
    /// A TCP connection that is accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_socket: Option<TcpDependency>,
    /// An answer to an HTTP GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_get: Option<HttpDependency>,
    /// An answer of the standard gRPC health service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcDependency>,
    /// A TLS handshake with a certificate that is valid for the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsDependency>,
    /// A name that resolves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dns: Option<DnsDependency>,
    /// An object of the same namespace in a state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<ResourceDependency>,
    /// Seconds from the moment the gate closed to the first attempt; 0 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 3600))]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds between two attempts, 10 when absent; the manager's configuration may ask for more. It never grows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: Option<i32>,
    /// Seconds one attempt may take, not above the period; when absent 3, or the period where that is shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 60))]
    pub timeout_seconds: Option<i32>,
    /// Successes in a row after which it holds; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10))]
    pub success_threshold: Option<i32>,
    /// Failures in a row after which it is lost, once it had held; 3 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: Option<i32>,
    /// An optional dependency is reported and never waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// Ready endpoints of a Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDependency {
    /// Name of a Service in the same namespace.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Number or name of one of its ports; any port when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<IntOrString>,
    /// How many endpoints have to be ready; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub min_ready_endpoints: Option<i32>,
}

/// A TCP connection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TcpDependency {
    /// A Service of the same namespace by name, or what the manager's probePolicy admits.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// TCP port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// An HTTP GET. Redirects are not followed and count as success, as any status from 200 to 399 does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpDependency {
    /// A Service of the same namespace by name, or what the manager's probePolicy admits.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// TCP port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Path with query; / when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub path: Option<String>,
    /// HTTP or HTTPS; HTTP when absent. As with a kubelet's probe, the certificate is not verified: use tls for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<HttpScheme>,
    /// Headers to send beside Host. Authorization, Cookie and the like are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub http_headers: Vec<HttpHeader>,
    /// The statuses that count as success, in place of 200 to 399.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub expected_statuses: Vec<i32>,
}

/// One header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpHeader {
    /// Name of the header.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// Its value.
    #[schemars(length(max = 1024))]
    pub value: String,
}

/// The standard health service, <https://github.com/grpc/grpc/blob/master/doc/health-checking.md>.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcDependency {
    /// A Service of the same namespace by name, or what the manager's probePolicy admits.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// TCP port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Service to ask about; empty asks about the whole server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub service: Option<String>,
    /// Plaintext, or Tls without verification of the certificate; Plaintext when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_mode: Option<GrpcTlsMode>,
}

/// A TLS handshake.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsDependency {
    /// A Service of the same namespace by name, or what the manager's probePolicy admits.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// TCP port.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Name to ask for and to find in the certificate; host when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
    /// Authorities to trust in place of those of the manager's system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_config_map: Option<ConfigMapKey>,
}

/// One key of a ConfigMap in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ConfigMapKey {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in it; ca.crt when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// A name that resolves, under a suffix that the manager's probePolicy admits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsDependency {
    /// The name, complete: no search list is used.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Address: A and AAAA records; Srv: SRV records. Address when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record: Option<DnsRecord>,
    /// How many records have to be there; 1 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub min_records: Option<i32>,
}

/// An object, or all that a selector finds, in a state: exactly one of name and selector, and one of condition and
/// jsonPath.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDependency {
    /// Such as batch/v1.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// Such as Job; one of the kinds that the manager's configuration lists.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of one object of the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Labels of objects of the same namespace: at least one has to be there, and all have to be in the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
    /// A condition of status.conditions as TYPE or TYPE=STATUS; True where no status is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 330))]
    pub condition: Option<String>,
    /// A path to one value, as for kubectl wait --for=jsonpath, such as {.status.phase}: fields, quoted keys, indexes,
    /// and filters that compare one field with ==. At most 16 steps. Needs value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub json_path: Option<String>,
    /// The value that jsonPath has to find: a string as it is, a number or a boolean as in JSON, such as "3" or "true".
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 256))]
    pub value: Option<String>,
}

/// Whether all dependencies have to hold, or one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MatchPolicy {
    /// Every one that is not optional.
    #[default]
    All,
    /// One is enough.
    Any,
}

/// What the gate holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Gate {
    /// The first start.
    Create,
    /// A new template.
    Update,
    /// Replicas from 0 to more.
    ScaleFromZero,
}

/// What follows when the dependencies do not hold in time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDeadline {
    /// Stalled, until they hold after all.
    #[default]
    Fail,
    /// The gate opens.
    Proceed,
    /// It is reported.
    KeepWaiting,
}

/// What follows when a dependency is lost while the gate is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnLoss {
    /// Nobody looks.
    Ignore,
    /// A condition and an Event.
    #[default]
    Report,
    /// No replicas until it holds again.
    ScaleToZero,
}

/// What becomes of a Deployment that was there before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Adoption {
    /// A conflict.
    Never,
    /// Taken over if nobody controls it and the selector is the same.
    #[default]
    IfUnowned,
    /// Taken over if the template is the same as well.
    IfIdentical,
}

/// How an HTTP GET is sent.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpScheme {
    /// In clear.
    #[default]
    Http,
    /// By TLS.
    Https,
}

/// How the gRPC health service is reached.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum GrpcTlsMode {
    /// In clear.
    #[default]
    Plaintext,
    /// By TLS, without verification.
    Tls,
}

/// Which records are looked for.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum DnsRecord {
    /// A and AAAA.
    #[default]
    Address,
    /// SRV.
    Srv,
}
