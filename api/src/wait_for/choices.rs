//! The enumerations of `spec.waitFor`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Whether all dependencies must hold before the Deployment starts, or one is enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MatchPolicy {
    /// Every dependency that is not optional must hold before the Deployment starts.
    #[default]
    All,
    /// One dependency that holds is enough to start the Deployment.
    Any,
}

/// A change of the Deployment that is held back until its dependencies hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Gate {
    /// The gate holds back the first start of the Deployment.
    Create,
    /// The gate holds back a new Pod template of the Deployment.
    Update,
    /// The gate holds back a change of the Deployment's replicas from 0.
    ScaleFromZero,
}

/// Policy for dependencies that do not hold at the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnDeadline {
    /// At the deadline the object becomes Stalled, until the dependencies hold.
    #[default]
    Fail,
    /// At the deadline the gate opens without the dependencies.
    Proceed,
    /// A missed deadline is only reported; the gate stays closed until the dependencies hold.
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
    /// An existing Deployment is never adopted; a conflict is reported instead.
    Never,
    /// An existing Deployment is adopted if no controller owns it and its selector is the same.
    #[default]
    IfUnowned,
    /// An existing Deployment is adopted if no controller owns it and both its selector and its template are
    /// the same.
    IfIdentical,
}

/// Scheme of an HTTP GET; HTTP when absent. HTTPS verifies no certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum HttpScheme {
    /// HTTP without TLS.
    #[default]
    Http,
    /// HTTP over TLS; the certificate is not verified.
    Https,
}

/// Whether gRPC uses TLS, without verification; Plaintext when absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
pub enum GrpcTlsMode {
    /// gRPC without TLS.
    #[default]
    Plaintext,
    /// gRPC over TLS; the certificate is not verified.
    Tls,
}

/// Type of DNS records, Address for A and AAAA or Srv; Address when absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, JsonSchema)]
pub enum DnsRecord {
    /// DNS records of the types A and AAAA, which have IP addresses.
    #[default]
    Address,
    /// DNS records of the type SRV, which have host names and ports.
    Srv,
}
