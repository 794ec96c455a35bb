//! Which owner controls the Deployment of a WaitDeployment's name.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use mainstay_api::WaitDeployment;
use mainstay_api::wait_for::Adoption;

use crate::deployment::LiveDeployment;

/// The relation of a WaitDeployment to the Deployment of its name.
#[derive(Clone, Debug, PartialEq)]
pub enum Ownership<'a> {
    /// There is no Deployment of the name.
    Absent,
    /// The WaitDeployment controls the Deployment.
    Owned(&'a LiveDeployment),
    /// The Deployment has no controller, and the WaitDeployment may adopt it.
    Adoptable(&'a LiveDeployment),
    /// The Deployment is being deleted, whichever owner controls it.
    Terminating,
    /// The Deployment must not be written, for this reason.
    Conflict(Conflict),
}

/// The reason why the Deployment of a WaitDeployment's name must not be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// Another owner controls the Deployment, such as `HelmRelease web`.
    Controlled(String),
    /// The Deployment has no controller, and adoption is Never.
    NeverAdopted,
    /// The Deployment has no controller, but another selector, which is immutable.
    OtherSelector,
    /// The Deployment has no controller, but another template, and adoption is `IfIdentical`.
    OtherTemplate,
}

// === impl Ownership ===

impl<'a> Ownership<'a> {
    /// Returns the relation of a WaitDeployment to the Deployment of its name. Compares uids, since an
    /// earlier object may have had the same name.
    pub fn of(object: &WaitDeployment, live: Option<&'a LiveDeployment>) -> Self {
        let Some(live) = live else { return Self::Absent };
        if live.is_deleting() {
            return Self::Terminating;
        }
        if live.is_controlled_by(object) {
            return Self::Owned(live);
        }
        if let Some(owner) = live.controller() {
            return Self::Conflict(Conflict::Controlled(format!("{} {}", owner.kind, owner.name)));
        }
        // From the raw field and not from the plan: ownership does not depend on whether the rest of the spec
        // is valid.
        if object.spec.adoption() == Adoption::Never {
            Self::Conflict(Conflict::NeverAdopted)
        } else if is_same_selector(&live.spec.selector, &object.spec.selector) {
            Self::Adoptable(live)
        } else {
            Self::Conflict(Conflict::OtherSelector)
        }
    }
}

/// Returns whether two label selectors are equal; an absent field equals an empty one.
fn is_same_selector(one: &LabelSelector, other: &LabelSelector) -> bool {
    one.match_labels.iter().flatten().eq(other.match_labels.iter().flatten())
        && one.match_expressions.iter().flatten().eq(other.match_expressions.iter().flatten())
}

// === impl Conflict ===

/// Formats the conflict as a message with the cause and the remedy.
impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controlled(owner) => write!(f, "is controlled by {owner}"),
            Self::NeverAdopted => f.write_str("has no controller, and spec.waitFor.adoption is Never"),
            Self::OtherSelector => {
                f.write_str("has no controller, but cannot be adopted: its selector differs")
            }
            Self::OtherTemplate => f.write_str(
                "has no controller, but spec.waitFor.adoption is IfIdentical and its template differs",
            ),
        }?;
        f.write_str("; rename one of the two, or delete the Deployment")
    }
}
