//! Whose the Deployment of a WaitDeployment's name is.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use mainstay_api::WaitDeployment;
use mainstay_api::wait_for::Adoption;

use crate::deployment::LiveDeployment;

/// How the Deployment of an object's name stands to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing<'a> {
    /// There is none.
    Absent,
    /// It is ours.
    Ours(&'a LiveDeployment),
    /// Nobody controls it, and the object asks for it to be taken over.
    Adoptable(&'a LiveDeployment),
    /// It is being deleted, whoever controls it.
    Leaving,
    /// It is to be left alone.
    Foreign(Conflict),
}

/// Why a Deployment is left alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Conflict {
    /// A controller has it, such as `HelmRelease web`.
    Controlled(String),
    /// Nobody controls it, and adoption is Never.
    NeverAdopted,
    /// Nobody controls it, but its selector is another one, and none can be changed.
    OtherSelector,
    /// Nobody controls it, but its template is another one, and adoption is `IfIdentical`.
    OtherTemplate,
}

// === impl Standing ===

impl<'a> Standing<'a> {
    /// Judges by uid, since a name may have been used before.
    pub fn of(object: &WaitDeployment, live: Option<&'a LiveDeployment>) -> Self {
        let Some(live) = live else { return Self::Absent };
        if live.is_deleting() {
            return Self::Leaving;
        }
        if live.is_controlled_by(object) {
            return Self::Ours(live);
        }
        if let Some(owner) = live.controller() {
            return Self::Foreign(Conflict::Controlled(format!("{} {}", owner.kind, owner.name)));
        }
        // From the field, not from the plan: whose a Deployment is does not depend on whether the rest of the spec can be
        // acted on.
        if object.spec.adoption() == Adoption::Never {
            Self::Foreign(Conflict::NeverAdopted)
        } else if is_same_selector(&live.spec.selector, &object.spec.selector) {
            Self::Adoptable(live)
        } else {
            Self::Foreign(Conflict::OtherSelector)
        }
    }
}

/// Absent and empty are the same.
fn is_same_selector(one: &LabelSelector, other: &LabelSelector) -> bool {
    one.match_labels.clone().unwrap_or_default() == other.match_labels.clone().unwrap_or_default()
        && one.match_expressions.clone().unwrap_or_default()
            == other.match_expressions.clone().unwrap_or_default()
}

// === impl Conflict ===

/// What it is, and what a person can do about it.
impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controlled(owner) => write!(f, "is controlled by {owner}"),
            Self::NeverAdopted => f.write_str("is controlled by nobody, and spec.waitFor.adoption is Never"),
            Self::OtherSelector => {
                f.write_str("is controlled by nobody, but cannot be adopted: its selector is another one")
            }
            Self::OtherTemplate => f.write_str(
                "is controlled by nobody, but spec.waitFor.adoption is IfIdentical and its template is another one",
            ),
        }?;
        f.write_str("; rename one of the two, or delete the Deployment")
    }
}
