//! The results of writing the Deployment, and of its dry run.

use crate::deployment::LiveDeployment;

/// The result of the write of the Deployment in one run.
#[derive(Clone, Debug, PartialEq)]
pub enum Applied {
    /// The Deployment was not written: the gate is closed, or the decision leaves it alone.
    NotTried,
    /// The Deployment is up to date, except for the parts that are held back; with its present state.
    Current(Box<LiveDeployment>),
    /// The API server refused the write of the Deployment.
    Refused(Refusal),
    /// The Deployment was not adopted: its template differs, and adoption is `IfIdentical`.
    Differs,
}

/// The result of a dry run of the whole Deployment, while a part of it is held back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DryRun {
    /// There was no dry run of the Deployment, or it had no result.
    Unknown,
    /// The API server would accept the whole Deployment, with the parts that are held back now.
    Accepted,
    /// The API server would refuse the whole Deployment.
    Refused(Refusal),
}

/// A refusal of the Deployment by the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The cause of the refusal.
    pub kind: RefusalKind,
    /// The message of the API server about the refusal.
    pub message: String,
}

/// The cause of the refusal of a Deployment by the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// The Deployment is invalid.
    Invalid,
    /// An admission policy or webhook denies the Deployment.
    Denied,
    /// RBAC, a quota or the like forbids the write of the Deployment.
    Forbidden,
}

// === impl DryRun ===

impl DryRun {
    /// Returns whether the dry run was refused for a cause that may pass without an edit of the
    /// WaitDeployment.
    pub(crate) fn may_pass(&self) -> bool {
        matches!(self, Self::Refused(refusal) if refusal.kind != RefusalKind::Invalid)
    }
}
