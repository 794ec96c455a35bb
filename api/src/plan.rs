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

/// Dependencies of an object, and policies for missing and lost ones. The fields `gates` and `adoption` must
/// be known even if others are invalid: [`WaitDeploymentSpec`](crate::WaitDeploymentSpec) has methods for
/// both.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Dependencies to wait for; empty if the Deployment may start at once.
    pub dependencies: Vec<PlannedDependency>,
    /// Whether all dependencies must hold, or one.
    pub match_policy: MatchPolicy,
    /// Time from the closing of the gate until `on_deadline` applies; `None` if there is no deadline.
    pub deadline: Option<Duration>,
    /// Policy for dependencies that do not hold at the deadline.
    pub on_deadline: OnDeadline,
    /// Policy for a dependency lost after the gate opened.
    pub on_loss: OnLoss,
    /// Time for which a dependency must be lost before `on_loss` applies.
    pub loss_grace: Duration,
    /// Time after a loss until the object is reported as stalled; `None` for never.
    pub recovery_deadline: Option<Duration>,
}

/// Changes held back until the dependencies hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// Holds back the first start.
    pub create: bool,
    /// Holds back a new template.
    pub update: bool,
    /// Holds back a change of replicas from 0.
    pub scale_from_zero: bool,
}

/// One dependency, checked and with defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedDependency {
    /// Name of the dependency.
    pub name: String,
    /// The check that shows whether the dependency holds.
    pub check: Check,
    /// Time from the closing of the gate to the first attempt.
    pub initial_delay: Duration,
    /// Time from the start of one attempt to the start of the next, before jitter.
    pub period: Duration,
    /// Longest duration of one attempt.
    pub timeout: Duration,
    /// Consecutive successes after which the dependency holds.
    pub success_threshold: u32,
    /// Consecutive failures after which a dependency that held is lost.
    pub failure_threshold: u32,
    /// Whether the dependency is only reported and never waited for.
    pub optional: bool,
}

/// The check of a dependency. Objects of one namespace with equal checks share one probe.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// Ready endpoints of a Service in the object's namespace.
    Service(ServiceCheck),
    /// A probe over the network.
    Probe(ProbeCheck),
    /// State of objects in the object's namespace.
    Resource(ResourceCheck),
}

/// A probe over the network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeCheck {
    /// A TCP connection.
    Tcp(Address),
    /// An HTTP GET.
    Http(HttpCheck),
    /// A request to the gRPC health service.
    Grpc(GrpcCheck),
    /// A TLS handshake.
    Tls(TlsCheck),
    /// A DNS look-up.
    Dns(DnsCheck),
}

/// Ready endpoints of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceCheck {
    /// Name of the Service.
    pub name: String,
    /// A port of the Service; any port if absent.
    pub port: Option<PortReference>,
    /// Number of endpoints that must be ready.
    pub min_ready: usize,
}

/// A port of a Service, by number or name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortReference {
    /// Number of the port.
    Number(u16),
    /// Name of the port.
    Name(String),
}

/// An HTTP GET.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HttpCheck {
    /// Address to connect to.
    pub address: Address,
    /// HTTP, or HTTPS without verification of the certificate.
    pub scheme: HttpScheme,
    /// Path and query; starts with a slash.
    pub path: String,
    /// Headers to send in addition to Host.
    pub headers: Vec<HttpHeader>,
    /// Statuses that count as success, sorted; empty means 200 to 399.
    pub statuses: Vec<u16>,
}

/// A request to the gRPC health service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrpcCheck {
    /// Address to connect to.
    pub address: Address,
    /// gRPC service whose health is requested; the whole server if empty.
    pub service: String,
    /// Plaintext, or TLS without verification of the certificate.
    pub tls: GrpcTlsMode,
}

/// A TLS handshake.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TlsCheck {
    /// Address to connect to.
    pub address: Address,
    /// Server name to send by SNI, for which the certificate must be valid.
    pub server_name: String,
    /// Authorities to trust; those of the system if absent. `key` is always `Some`.
    pub ca: Option<ConfigMapKey>,
}

/// A DNS look-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DnsCheck {
    /// The name in lower case, without a trailing dot.
    pub name: String,
    /// Type of the records.
    pub record: DnsRecord,
    /// Number of records that must exist.
    pub min_records: usize,
}

/// Objects that must have a state.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceCheck {
    /// API group of the objects; empty for the core group.
    pub group: String,
    /// API version without its group, such as `v1`.
    pub version: String,
    /// Kind of the objects.
    pub kind: String,
    /// The objects, by name or labels.
    pub objects: Objects,
    /// The state that they must have.
    pub state: ResourceState,
}

/// Selects the objects of a [`ResourceCheck`].
#[derive(Clone, Debug, PartialEq)]
pub enum Objects {
    /// The object with this name.
    Name(String),
    /// All objects with these labels, of which at least one must exist.
    Selector(LabelSelector),
}

/// The state that objects must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceState {
    /// The condition of this type has this status.
    Condition {
        /// Type of the condition.
        type_: String,
        /// True, False or Unknown.
        status: String,
    },
    /// The path selects this value.
    JsonPath {
        /// The path.
        path: JsonPath,
        /// The text of a string; a number or a boolean as in JSON.
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
    /// Returns the kind of probe as one word, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Http(_) => "http",
            Self::Grpc(_) => "grpc",
            Self::Tls(_) => "tls",
            Self::Dns(_) => "dns",
        }
    }

    /// Returns the address to connect to; `None` for a DNS look-up.
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
