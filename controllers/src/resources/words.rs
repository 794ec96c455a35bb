//! What is said of a resource check: the kind, which objects, and the state by its name. Never anything out of an object.

use std::fmt;

use kube::core::DynamicObject;
use mainstay::cache::{ReadError, Store};
use mainstay_api::plan::{ResourceCheck, ResourceState, Which};

use super::check::gvk;
use super::expression::Failure;
use super::kinds::Trouble;
use super::state::Found;
use crate::dependencies::{Observation, State};
use crate::reasons::resource;

/// Displays the state that is waited for, such as `condition Complete=True`.
pub(super) struct Wanted<'a>(pub(super) &'a ResourceState);

/// Displays the objects that are meant, such as `Job shop/migrate`.
pub(super) struct Objects<'a> {
    pub(super) namespace: &'a str,
    pub(super) check: &'a ResourceCheck,
}

impl fmt::Display for Wanted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ResourceState::Condition { type_, status } => write!(f, "condition {type_}={status}"),
            // By no more than what it is: it may be long, and stands in the spec.
            ResourceState::Expression(_) => f.write_str("the state that the expression asks for"),
        }
    }
}

impl fmt::Display for Objects<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, check } = self;
        match &check.which {
            Which::Name(name) => write!(f, "{} {namespace}/{name}", check.kind),
            Which::Selector(_) => {
                write!(f, "the selected objects of kind {} in namespace {namespace}", check.kind)
            }
        }
    }
}

/// What is said while it holds. Also how what is written in a status is recognised as being about this check.
pub(super) fn holds(namespace: &str, check: &ResourceCheck) -> String {
    let objects = Objects { namespace, check };
    let verb = if matches!(check.which, Which::Name(_)) { "has" } else { "have" };
    format!("{objects} {verb} {}", Wanted(&check.state))
}

pub(super) fn tell(namespace: &str, check: &ResourceCheck, found: Found) -> Observation {
    let (objects, wanted) = (Objects { namespace, check }, Wanted(&check.state));
    let one = matches!(check.which, Which::Name(_));
    match found {
        Found::There => {
            Observation { state: State::Ready, reason: resource::IN_STATE, message: holds(namespace, check) }
        }
        Found::NotThere if one => {
            not_ready(resource::NOT_IN_STATE, format!("{objects} does not have {wanted} yet"))
        }
        Found::NotThere => {
            not_ready(resource::NOT_IN_STATE, format!("{objects} do not all have {wanted} yet"))
        }
        Found::Outdated => not_ready(
            resource::NOT_OBSERVED,
            format!("{wanted} of {objects} speaks of an earlier generation"),
        ),
        Found::Failed if one => {
            not_ready(resource::FAILED, format!("{objects} has failed and will not have {wanted}"))
        }
        Found::Failed => {
            not_ready(resource::FAILED, format!("one of {objects} has failed and will not have {wanted}"))
        }
    }
}

pub(super) fn explain_failure(namespace: &str, check: &ResourceCheck, failure: &Failure) -> Observation {
    let objects = Objects { namespace, check };
    match failure {
        Failure::Invalid(problem) => Observation {
            state: State::Invalid,
            reason: resource::EXPRESSION_INVALID,
            message: format!("the expression is refused: {problem}"),
        },
        Failure::Missing(Some(name)) => not_ready(
            resource::NOT_IN_STATE,
            format!(
                "the expression reads {name}, which {objects} may not have yet; has() asks whether it is there"
            ),
        ),
        Failure::Missing(None) => not_ready(
            resource::NOT_IN_STATE,
            format!(
                "the expression reads a field that {objects} may not have yet; has() asks whether it is there"
            ),
        ),
        Failure::Failed => not_ready(
            resource::EXPRESSION_FAILED,
            format!(
                "the expression cannot be evaluated for {objects}: a value is of another type than it expects"
            ),
        ),
        Failure::NotBool => not_ready(
            resource::EXPRESSION_FAILED,
            format!("the expression gives neither true nor false for {objects}"),
        ),
        Failure::TooMuch => blind(
            resource::TOO_MANY_OBJECTS,
            format!(
                "what this WaitDeployment waits for is too much for one look, and {objects} comes last; expected \
                 narrower selectors, and fewer or simpler expressions"
            ),
        ),
        Failure::TooCostly => blind(
            resource::EXPRESSION_TOO_COSTLY,
            format!(
                "the expression would take too long for {objects}, which may be large; expected fewer macros and additions"
            ),
        ),
    }
}

pub(super) fn explain(check: &ResourceCheck, trouble: &Trouble) -> Observation {
    let kind = gvk(check);
    let name = format!("{} of {}", kind.kind, kind.api_version());
    match trouble {
        Trouble::NotServed => {
            blind(resource::KIND_NOT_SERVED, format!("the API server does not serve kind {name}"))
        }
        Trouble::NotNamespaced => Observation {
            state: State::Invalid,
            reason: resource::KIND_NOT_NAMESPACED,
            message: format!("kind {name} is in no namespace; expected one whose objects are"),
        },
        Trouble::Unknown(cause) => {
            blind(resource::KIND_UNKNOWN, format!("the API server cannot be asked for kind {name}: {cause}"))
        }
    }
}

/// What the cache answers that cannot read a kind. It asks again by itself.
pub(super) fn unreadable(store: &Store<DynamicObject>, error: &ReadError) -> Observation {
    let (kind, status) = (store.kind_store().kind(), store.kind_store().status());
    match error {
        ReadError::NotSynced { .. } if !status.absent => Observation::unknown(),
        ReadError::NotSynced { .. } => blind(
            resource::KIND_FORBIDDEN,
            format!(
                "the manager may not list and watch kind {kind}; a ClusterRole with the label \
                 mainstay.dev/aggregate-to-manager: \"true\" gives it the right"
            ),
        ),
        _ => blind(resource::KIND_UNKNOWN, format!("kind {kind} cannot be read: {error}")),
    }
}

pub(super) fn not_ready(reason: &'static str, message: String) -> Observation {
    Observation { state: State::NotReady, reason, message }
}

pub(super) fn blind(reason: &'static str, message: String) -> Observation {
    Observation { state: State::Blind, reason, message }
}
