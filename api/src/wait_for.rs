//! `spec.waitFor`: dependencies of a Deployment, and policies for missing and lost ones.
//!
//! The types are the fields of a manifest; a [`Plan`](crate::plan::Plan) has them checked and with defaults.
//! Durations are integers with the unit in the name, as the API conventions require
//! ([units]).
//! They are only decoded: a client writes `spec.waitFor` as JSON. `skip_serializing_if` keeps the default of
//! a field out of the CRD.
//!
//! [units]: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#units

#![expect(
    clippy::doc_markdown,
    reason = "field docs become the descriptions of the CRD, which are plain text"
)]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::JsonSchema;
use serde::Deserialize;

mod choices;

pub use choices::{Adoption, DnsRecord, Gate, GrpcTlsMode, HttpScheme, MatchPolicy, OnDeadline, OnLoss};

/// Maximum number of dependencies of one WaitDeployment.
pub const MAX_DEPENDENCIES: usize = 16;

/// HTTP headers that a probe does not send, in lower case: they carry credentials or belong to the
/// connection.
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
/// Prefixes of further HTTP headers that a probe does not send: in them proxies pass users, certificates,
/// addresses and methods on to servers. Network policies may admit the manager, which sends the probes, as
/// they admit a proxy. A list of permitted headers instead would refuse those of most applications.
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

/// Dependencies that must hold before the Deployment starts, and policies for missing and lost ones.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaitFor {
    /// Dependencies to wait for, 1 to 16.
    #[schemars(length(min = 1, max = 16))]
    pub dependencies: Vec<Dependency>,
    /// All: every dependency that is not optional must hold. Any: one is enough.
    #[serde(default, rename = "match")]
    pub match_policy: MatchPolicy,
    /// Changes held back until the dependencies hold. Create: the first start. Update: a new template, while
    /// the old one keeps running. ScaleFromZero: a change of replicas from 0. Create when absent.
    #[schemars(length(min = 1, max = 3))]
    pub gates: Option<Vec<Gate>>,
    /// Seconds from the closing of the gate until onDeadline applies; no deadline when absent. A restart of
    /// the manager does not reset it.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub deadline_seconds: Option<i32>,
    /// Policy for dependencies that do not hold at the deadline. Fail: the object is Stalled, but the gate
    /// still opens if they hold later. Proceed: the gate opens without them. KeepWaiting: the missed deadline
    /// is only reported.
    #[serde(default)]
    pub on_deadline: OnDeadline,
    /// Policy for a dependency lost after the gate opened. Ignore: it is no longer checked. Report: a
    /// condition and an Event. ScaleToZero: in addition no replicas until it holds again; needs
    /// lossGraceSeconds and spec.replicas.
    #[serde(default)]
    pub on_loss: OnLoss,
    /// Seconds for which a dependency must be lost before onLoss applies; replicas are removed after 30 at
    /// the earliest. When absent: 0, or with service and resource dependencies the largest failureThreshold
    /// times periodSeconds of them, as they have no repeated attempts.
    #[schemars(range(min = 0, max = 86_400))]
    pub loss_grace_seconds: Option<i32>,
    /// Seconds after a loss until the object is reported as Stalled; never when absent.
    #[schemars(range(min = 1, max = 31_536_000))]
    pub recovery_deadline_seconds: Option<i32>,
    /// Policy for an existing Deployment of this name. Never: report a conflict. IfUnowned: adopt it if no
    /// controller owns it and its selector is the same. IfIdentical: adopt it only if its template is the
    /// same too.
    #[serde(default)]
    pub adoption: Adoption,
}

/// One dependency: a name, exactly one check, and its timing.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Dependency {
    /// Name of the dependency, a DNS label, unique within the object.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Ready endpoints of a Service in the same namespace. They are watched in the API server, without a
    /// connection to the Service.
    pub service: Option<ServiceDependency>,
    /// A TCP address that accepts a connection.
    pub tcp_socket: Option<TcpDependency>,
    /// A successful answer to an HTTP GET.
    pub http_get: Option<HttpDependency>,
    /// A successful answer of the standard gRPC health service.
    pub grpc: Option<GrpcDependency>,
    /// A TLS handshake with a certificate that is valid for the name.
    pub tls: Option<TlsDependency>,
    /// A DNS name that resolves.
    pub dns: Option<DnsDependency>,
    /// An object in the same namespace that has a given state.
    pub resource: Option<ResourceDependency>,
    /// Seconds from the closing of the gate to the first attempt; 0 when absent.
    #[schemars(range(min = 0, max = 3600))]
    pub initial_delay_seconds: Option<i32>,
    /// Seconds between two attempts; 10 when absent. The manager's configuration may set a higher minimum.
    /// The period does not grow after failures.
    #[schemars(range(min = 1, max = 3600))]
    pub period_seconds: Option<i32>,
    /// Seconds that one attempt may take, at most periodSeconds. When absent 3, or periodSeconds if that is
    /// shorter.
    #[schemars(range(min = 1, max = 60))]
    pub timeout_seconds: Option<i32>,
    /// Consecutive successes after which the dependency holds; 1 when absent.
    #[schemars(range(min = 1, max = 10))]
    pub success_threshold: Option<i32>,
    /// Consecutive failures after which a dependency that held is lost; 3 when absent.
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: Option<i32>,
    /// Whether the dependency is only reported and never waited for.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub optional: bool,
}

/// A dependency on ready endpoints of a Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServiceDependency {
    /// Name of a Service in the same namespace.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// Number or name of a port of the Service; any port when absent.
    pub port: Option<IntOrString>,
    /// Number of endpoints that must be ready; 1 when absent.
    #[schemars(range(min = 1, max = 1000))]
    pub min_ready_endpoints: Option<i32>,
}

/// A dependency on a TCP address that accepts a connection.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
pub struct TcpDependency {
    /// Name of a Service in the same namespace, or another host that the manager's probePolicy admits.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// TCP port to connect to.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
}

/// A dependency on a successful answer to an HTTP GET. Any status from 200 to 399 is a success; redirects are
/// not followed.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpDependency {
    /// Name of a Service in the same namespace, or another host that the manager's probePolicy admits.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// TCP port to connect to.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Path and query of the HTTP request; / when absent.
    #[schemars(length(min = 1, max = 1024))]
    pub path: Option<String>,
    /// HTTP or HTTPS; HTTP when absent. The certificate is not verified, as in a kubelet's probe; use tls to
    /// verify one.
    pub scheme: Option<HttpScheme>,
    /// Headers to send in addition to Host. Headers with credentials, such as Authorization and Cookie, are
    /// refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub http_headers: Vec<HttpHeader>,
    /// HTTP statuses that count as success, instead of 200 to 399.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub expected_statuses: Vec<i32>,
}

/// One HTTP header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
pub struct HttpHeader {
    /// Name of the header.
    #[schemars(length(min = 1, max = 128))]
    pub name: String,
    /// Value of the header.
    #[schemars(length(max = 1024))]
    pub value: String,
}

/// A dependency on a gRPC server, checked by the standard health service,
/// <https://github.com/grpc/grpc/blob/master/doc/health-checking.md>.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrpcDependency {
    /// Name of a Service in the same namespace, or another host that the manager's probePolicy admits.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// TCP port to connect to.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// gRPC service whose health is requested; the whole server when empty.
    #[schemars(length(max = 253))]
    pub service: Option<String>,
    /// Plaintext, or Tls without verification of the certificate. Plaintext when absent.
    pub tls_mode: Option<GrpcTlsMode>,
}

/// A dependency on a TLS handshake with a certificate that is valid for the server name.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TlsDependency {
    /// Name of a Service in the same namespace, or another host that the manager's probePolicy admits.
    #[schemars(length(min = 1, max = 253))]
    pub host: String,
    /// TCP port to connect to.
    #[schemars(range(min = 1, max = 65535))]
    pub port: i32,
    /// Server name to send (SNI) and to find in the certificate; host when absent.
    #[schemars(length(min = 1, max = 253))]
    pub server_name: Option<String>,
    /// Certificate authorities to trust, instead of those of the manager's system.
    pub ca_config_map: Option<ConfigMapKey>,
}

/// One key of a ConfigMap in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
pub struct ConfigMapKey {
    /// Name of the ConfigMap.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Key in the ConfigMap; ca.crt when absent.
    #[schemars(length(min = 1, max = 253))]
    pub key: Option<String>,
}

/// A dependency on a DNS name that resolves, under a suffix that the manager's probePolicy admits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DnsDependency {
    /// The complete DNS name to look up; no search list is used.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Type of the records. Address: A and AAAA. Srv: SRV. Address when absent.
    pub record: Option<DnsRecord>,
    /// Number of DNS records that must exist; 1 when absent.
    #[schemars(range(min = 1, max = 100))]
    pub min_records: Option<i32>,
}

/// A dependency on the state of an object, or of all objects of a selector. Exactly one of name and selector,
/// and exactly one of condition and jsonPath, has to be set.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResourceDependency {
    /// API version of the object, such as batch/v1.
    #[schemars(length(min = 1, max = 253))]
    pub api_version: String,
    /// Kind of the object, such as Job. The manager's configuration lists the permitted kinds.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Name of one object in the same namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: Option<String>,
    /// Labels of objects in the same namespace. At least one object must exist, and all must have the state.
    pub selector: Option<LabelSelector>,
    /// A condition in status.conditions, as TYPE or TYPE=STATUS. The status is True when absent.
    #[schemars(length(min = 1, max = 330))]
    pub condition: Option<String>,
    /// A path to one value, as in kubectl wait --for=jsonpath, such as {.status.phase}: fields, quoted keys,
    /// indexes, and filters that compare one field with ==. At most 16 steps. Needs value.
    #[schemars(length(min = 1, max = 256))]
    pub json_path: Option<String>,
    /// Expected value at jsonPath: the text of a string, or a number or boolean as in JSON, such as "3" or
    /// "true".
    #[schemars(length(min = 1, max = 256))]
    pub value: Option<String>,
}
