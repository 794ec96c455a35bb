//! The plan of a WaitDeployment: its dependencies and policies, checked and with defaults, for the
//! controllers.
//!
//! Both forms of a manifest become a plan. The article's `waitProbe` becomes one TCP dependency named
//! `default`, which is not checked once the gate is open.
//!
//! # Invariants
//! 1. All names, addresses and numbers of a plan are valid.
//! 2. Names of dependencies are unique and in the order of the manifest.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::address::Address;
use crate::json_path::JsonPath;
use crate::wait_for::{
    ConfigMapKey, DnsRecord, GrpcTlsMode, HttpHeader, HttpScheme, MatchPolicy, OnDeadline, OnLoss,
};

mod checks;
mod names;
mod resolve;
#[cfg(test)]
mod tests;

pub use crate::refusal::InvalidSpec;

/// The dependencies that a WaitDeployment waits for, checked and with defaults, and the policies for missing
/// and lost ones. The fields `gates` and `adoption` must be known even if others are invalid:
/// [`WaitDeploymentSpec`](crate::WaitDeploymentSpec) has methods for both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Dependencies to wait for; empty if the Deployment may start at once.
    pub dependencies: Vec<PlannedDependency>,
    /// Whether all dependencies must hold before the Deployment starts, or one is enough.
    pub match_policy: MatchPolicy,
    /// Time from the closing of the gate, which holds back changes of the Deployment, until `on_deadline`
    /// applies; `None` if there is no deadline.
    pub deadline: Option<Duration>,
    /// Policy for dependencies that do not hold at the deadline.
    pub on_deadline: OnDeadline,
    /// Policy for a dependency that is lost after the gate opened.
    pub on_loss: OnLoss,
    /// Time for which a dependency must be lost before `on_loss` applies.
    pub loss_grace: Duration,
    /// Time after the loss of a dependency until the object is reported as stalled; `None` for never.
    pub recovery_deadline: Option<Duration>,
}

/// Changes of a Deployment that are held back until its dependencies hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// Whether the first start of the Deployment is held back until its dependencies hold.
    pub create: bool,
    /// Whether a new Pod template of the Deployment is held back until its dependencies hold.
    pub update: bool,
    /// Whether a change of the Deployment's replicas from 0 is held back until its dependencies hold.
    pub scale_from_zero: bool,
}

/// One dependency of a WaitDeployment, checked and with defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedDependency {
    /// Name of the dependency.
    pub name: String,
    /// The check that shows whether the dependency holds.
    pub check: Check,
    /// Time from the closing of the gate, which holds back the Deployment, to the first attempt of the check.
    pub initial_delay: Duration,
    /// Time from the start of one attempt of the check to the start of the next, before jitter.
    pub period: Duration,
    /// Longest duration of one attempt of the check.
    pub timeout: Duration,
    /// Number of consecutive successful attempts after which the dependency holds.
    pub success_threshold: u32,
    /// Number of consecutive failed attempts after which a dependency that held is lost.
    pub failure_threshold: u32,
    /// Whether the dependency is only reported and never waited for.
    pub optional: bool,
}

/// The check of a dependency of an object. Objects of one namespace with equal checks share one probe.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// A check of the number of ready endpoints of a Service in the object's namespace.
    Service(ServiceCheck),
    /// A probe over the network: TCP, HTTP, gRPC, TLS or DNS.
    Probe(ProbeCheck),
    /// A check of the state of Kubernetes objects in the object's namespace.
    Resource(ResourceCheck),
}

/// A probe over the network that checks a dependency, by its protocol.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeCheck {
    /// A TCP connection to this address.
    Tcp(Address),
    /// An HTTP GET request.
    Http(HttpCheck),
    /// A request to the gRPC health service.
    Grpc(GrpcCheck),
    /// A TLS handshake with a valid certificate.
    Tls(TlsCheck),
    /// A look-up of a DNS name.
    Dns(DnsCheck),
}

/// A check that a Service has enough ready endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceCheck {
    /// Name of the Service.
    pub name: String,
    /// The port of the Service that must have ready endpoints; any port if `None`.
    pub port: Option<PortReference>,
    /// Number of endpoints of the Service that must be ready.
    pub min_ready: usize,
}

/// A port of a Service, by number or name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortReference {
    /// Number of the Service port.
    Number(u16),
    /// Name of the Service port.
    Name(String),
}

/// A check by an HTTP GET request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HttpCheck {
    /// Address to connect to.
    pub address: Address,
    /// Scheme of the request: HTTP, or HTTPS without verification of the certificate.
    pub scheme: HttpScheme,
    /// Path and query of the HTTP request; starts with a slash.
    pub path: String,
    /// HTTP headers to send in addition to Host.
    pub headers: Vec<HttpHeader>,
    /// HTTP statuses that count as success, sorted; empty means 200 to 399.
    pub statuses: Vec<u16>,
}

/// A check by a request to the gRPC health service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrpcCheck {
    /// Address to connect to.
    pub address: Address,
    /// Name of the gRPC service to request the health of; the whole server if empty.
    pub service: String,
    /// Whether the gRPC connection is plaintext, or TLS without verification of the certificate.
    pub tls: GrpcTlsMode,
}

/// A check by a TLS handshake with a valid certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TlsCheck {
    /// Address to connect to.
    pub address: Address,
    /// Server name to send by SNI, for which the certificate must be valid.
    pub server_name: String,
    /// The `ConfigMap` with the certificate authorities to trust; those of the system if `None`. `key` in it
    /// is always `Some`.
    pub ca: Option<ConfigMapKey>,
}

/// A check by a look-up of a DNS name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DnsCheck {
    /// The DNS name to look up, in lower case and without a trailing dot.
    pub name: String,
    /// Type of the DNS records to look up.
    pub record: DnsRecord,
    /// Number of DNS records that must exist.
    pub min_records: usize,
}

/// A check that Kubernetes objects have a given state.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceCheck {
    /// API group of the objects; empty for the core group.
    pub group: String,
    /// API version of the objects without its group, such as `v1`.
    pub version: String,
    /// Kind of the objects, such as `Job`.
    pub kind: String,
    /// The objects that must have the state, by name or labels.
    pub objects: Objects,
    /// The state that the objects must have.
    pub state: ResourceState,
}

/// Selects the objects of a [`ResourceCheck`] by name or by labels.
#[derive(Clone, Debug, PartialEq)]
pub enum Objects {
    /// The object with this name.
    Name(String),
    /// All objects with these labels, of which at least one must exist.
    Selector(LabelSelector),
}

/// The state that the objects of a [`ResourceCheck`] must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceState {
    /// The condition `type_` in the status of the object has the status `status`.
    Condition {
        /// Type of the condition, such as `Ready`.
        type_: String,
        /// Status of the condition: True, False or Unknown.
        status: String,
    },
    /// The JSON path `path` selects the value `value` in the object.
    JsonPath {
        /// The JSON path to one value of the object.
        path: JsonPath,
        /// The expected value at the JSON path: the text of a string; a number or a boolean as in JSON.
        value: String,
    },
}

// === impl PortReference ===

impl std::fmt::Display for PortReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

// === impl Gates ===

impl Default for Gates {
    fn default() -> Self {
        Self { create: true, update: false, scale_from_zero: false }
    }
}

// === impl ProbeCheck ===

impl ProbeCheck {
    /// Returns the kind of the probe as one word for metrics, such as `tcp`.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Http(_) => "http",
            Self::Grpc(_) => "grpc",
            Self::Tls(_) => "tls",
            Self::Dns(_) => "dns",
        }
    }

    /// Returns the address that the probe connects to; `None` for a DNS look-up.
    pub fn address(&self) -> Option<&Address> {
        match self {
            Self::Tcp(address)
            | Self::Http(HttpCheck { address, .. })
            | Self::Grpc(GrpcCheck { address, .. })
            | Self::Tls(TlsCheck { address, .. }) => Some(address),
            Self::Dns(_) => None,
        }
    }
}
