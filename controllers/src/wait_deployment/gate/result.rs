//! The results of writing the Deployment, and of its dry run.

use crate::deployment::LiveDeployment;

/// The result of writing the Deployment.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// The Deployment was not written: the gate is closed, or the decision leaves it alone.
    NotTried,
    /// The Deployment is up to date, except for the parts that are held back; with its present state.
    Current(Box<LiveDeployment>),
    /// The API server refused the write.
    Refused(Refusal),
    /// The Deployment was not adopted: its template differs, and adoption is `IfIdentical`.
    Differs,
}

/// The result of a dry run of the Deployment without anything held back, while a part of it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// There was no dry run, or it had no result.
    Unknown,
    /// The API server would accept the whole Deployment, with the parts that are held back now.
    Accepted,
    /// The API server would refuse the whole Deployment.
    Refused(Refusal),
}

/// A refusal of the Deployment by the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The cause.
    pub kind: RefusalKind,
    /// The message of the API server.
    pub message: String,
}

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The Deployment is invalid.
    Invalid,
    /// An admission policy or webhook denies the Deployment.
    Denied,
    /// RBAC, a quota or the like forbids the write.
    Forbidden,
}

// === impl DryRun ===

impl DryRun {
    /// Returns whether the refusal may pass without an edit of the object.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.kind != RefusalKind::Invalid)
    }
}
