//! The enumerations of `spec.waitFor`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether all dependencies must hold, or one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MatchPolicy {
    /// Every dependency that is not optional must hold.
    #[default]
    All,
    /// One dependency is enough.
    Any,
}

/// A change that the gate holds back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Gate {
    /// The first start.
    Create,
    /// A new template.
    Update,
    /// A change of replicas from 0.
    ScaleFromZero,
}

/// Policy for dependencies that do not hold at the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDeadline {
    /// The object is Stalled until the dependencies hold.
    #[default]
    Fail,
    /// The gate opens without the dependencies.
    Proceed,
    /// The missed deadline is only reported.
    KeepWaiting,
}

/// Policy for a dependency that is lost while the gate is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnLoss {
    /// Dependencies are not checked while the gate is open.
    Ignore,
    /// A loss is reported by a condition and an Event.
    #[default]
    Report,
    /// A loss is reported, and the Deployment has no replicas until the dependency holds again.
    ScaleToZero,
}

/// Policy for an existing Deployment of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Adoption {
    /// Report a conflict.
    Never,
    /// Adopt it if no controller owns it and its selector is the same.
    #[default]
    IfUnowned,
    /// Adopt it only if its template is the same too.
    IfIdentical,
}

/// Scheme of an HTTP GET; HTTP when absent. HTTPS verifies no certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpScheme {
    /// Without TLS.
    #[default]
    Http,
    /// With TLS; the certificate is not verified.
    Https,
}

/// Whether gRPC uses TLS, without verification; Plaintext when absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
pub enum GrpcTlsMode {
    /// Without TLS.
    #[default]
    Plaintext,
    /// With TLS; the certificate is not verified.
    Tls,
}

/// Type of DNS records, Address for A and AAAA or Srv; Address when absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
pub enum DnsRecord {
    /// A and AAAA records.
    #[default]
    Address,
    /// SRV records.
    Srv,
}
