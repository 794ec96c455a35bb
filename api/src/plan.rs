//! What a WaitDeployment waits for, defaults filled in and checked: what the controllers work by.
//!
//! Both forms come to the same: the article's `waitProbe` is a plan with one TCP dependency named `default`, whose
//! loss nobody looks at.
//!
//! # Invariants
//! 1. A plan holds only what can be acted on: names, addresses and numbers have been checked.
//! 2. Names are unique, and their order is that of the manifest.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::address::Address;
use crate::json_path::JsonPath;
use crate::wait_for::{
    Adoption, ConfigMapKey, DnsRecord, GrpcTlsMode, HttpHeader, HttpScheme, MatchPolicy, OnDeadline, OnLoss,
};

mod checks;
mod names;
mod resolve;
#[cfg(test)]
mod tests;

pub use crate::refusal::InvalidSpec;

/// What to wait for, and how.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What to wait for; empty if the Deployment may start at once.
    pub dependencies: Vec<PlannedDependency>,
    /// Whether all or one of them has to hold.
    pub match_policy: MatchPolicy,
    /// What is held back.
    pub gates: Gates,
    /// How long the gate may stay closed.
    pub deadline: Option<Duration>,
    /// What follows then.
    pub on_deadline: OnDeadline,
    /// What a loss after opening leads to.
    pub on_loss: OnLoss,
    /// For how long it must be lost before that.
    pub loss_grace: Duration,
    /// How long a loss may last before it is reported as stalled.
    pub recovery_deadline: Option<Duration>,
    /// What becomes of a Deployment of this name that was there before.
    pub adoption: Adoption,
}

/// What is held back until the dependencies hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// The first start.
    pub create: bool,
    /// A new template.
    pub update: bool,
    /// Replicas from 0 to more.
    pub scale_from_zero: bool,
}

/// One dependency.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedDependency {
    /// Its name.
    pub name: String,
    /// What is looked at.
    pub check: Check,
    /// From the closing of the gate to the first attempt.
    pub initial_delay: Duration,
    /// From the start of one attempt to the start of the next, before jitter.
    pub period: Duration,
    /// Longest duration of one attempt.
    pub timeout: Duration,
    /// Successes in a row after which it holds.
    pub success_threshold: u32,
    /// Failures in a row after which it is lost, once it had held.
    pub failure_threshold: u32,
    /// Reported only.
    pub optional: bool,
}

/// What is looked at. Equal checks of one namespace are one target, probed once for all who wait.
#[derive(Clone, Debug, PartialEq)]
pub enum Check {
    /// Ready endpoints of a Service of the object's namespace.
    Service(ServiceCheck),
    /// What has to be asked over the network.
    Probe(ProbeCheck),
    /// Objects of the object's namespace.
    Resource(ResourceCheck),
}

/// What has to be asked over the network.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ProbeCheck {
    /// Connect.
    Tcp(Address),
    /// GET.
    Http(HttpCheck),
    /// The health service.
    Grpc(GrpcCheck),
    /// Handshake.
    Tls(TlsCheck),
    /// Look up.
    Dns(DnsCheck),
}

/// Ready endpoints of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServiceCheck {
    /// Name of the Service.
    pub name: String,
    /// One of its ports; any if absent.
    pub port: Option<PortReference>,
    /// How many endpoints have to be ready.
    pub min_ready: usize,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PortReference {
    /// By number.
    Number(u16),
    /// By name.
    Name(String),
}

/// An HTTP GET.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HttpCheck {
    /// Where.
    pub address: Address,
    /// How.
    pub scheme: HttpScheme,
    /// Path and query, beginning with a slash.
    pub path: String,
    /// Sent beside Host.
    pub headers: Vec<HttpHeader>,
    /// What counts as success, sorted; empty means 200 to 399.
    pub statuses: Vec<u16>,
}

/// The gRPC health service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GrpcCheck {
    /// Where.
    pub address: Address,
    /// Asked about; empty is the whole server.
    pub service: String,
    /// How.
    pub tls: GrpcTlsMode,
}

/// A TLS handshake.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TlsCheck {
    /// Where.
    pub address: Address,
    /// What the certificate has to be valid for, and what is asked for by SNI.
    pub server_name: String,
    /// Authorities to trust; those of the system if absent. `key` is always given.
    pub ca: Option<ConfigMapKey>,
}

/// A look-up.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DnsCheck {
    /// In lower case, without a trailing dot.
    pub name: String,
    /// Which records.
    pub record: DnsRecord,
    /// How many.
    pub min_records: usize,
}

/// Objects in a state.
#[derive(Clone, Debug, PartialEq)]
pub struct ResourceCheck {
    /// Group; empty for the core.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
    /// Which objects.
    pub which: Which,
    /// The state.
    pub state: ResourceState,
}

/// Which objects.
#[derive(Clone, Debug, PartialEq)]
pub enum Which {
    /// One by name.
    Name(String),
    /// All of these labels, at least one.
    Selector(LabelSelector),
}

/// The state objects have to be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResourceState {
    /// A condition of a type has a status.
    Condition {
        /// Type of the condition.
        type_: String,
        /// True, False or Unknown.
        status: String,
    },
    /// A path finds this value.
    JsonPath {
        /// The path.
        path: JsonPath,
        /// A string as it is, a number or a boolean as in JSON.
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

// === impl Check ===

impl Check {
    /// Returns the kind of check in one word, for metrics: that of the manifest.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Service(_) => "service",
            Self::Probe(probe) => probe.kind(),
            Self::Resource(_) => "resource",
        }
    }
}

// === impl ProbeCheck ===

impl ProbeCheck {
    /// Returns the kind of check in one word, for metrics.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Tcp(_) => "tcp",
            Self::Http(_) => "http",
            Self::Grpc(_) => "grpc",
            Self::Tls(_) => "tls",
            Self::Dns(_) => "dns",
        }
    }

    /// Returns where it connects to; `None` for a look-up.
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
