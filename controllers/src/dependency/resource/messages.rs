//! Observations of resource checks, with reason and message. They show the spec and the outcome, never a
//! value of an object.

use std::fmt;

use kube::core::DynamicObject;
use mainstay::cache::{ReadError, Store};
use mainstay_api::json_path::NotOneValue;
use mainstay_api::plan::{Objects, ResourceCheck, ResourceState};

use super::check::gvk;
use super::kinds::Trouble;
use super::state::Found;
use crate::dependency::observation::{Observation, State};
use crate::reasons::resource;

/// Displays the objects of a `resource` check, such as `Job shop/migrate`.
pub(super) struct ObjectsText<'a> {
    pub(super) namespace: &'a str,
    pub(super) check: &'a ResourceCheck,
}

impl fmt::Display for ObjectsText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { namespace, check } = self;
        match &check.objects {
            Objects::Name(name) => write!(f, "{} {namespace}/{name}", check.kind),
            Objects::Selector(_) => {
                write!(f, "the selected objects of kind {} in namespace {namespace}", check.kind)
            }
        }
    }
}

// === impl ObjectsText ===

impl ObjectsText<'_> {
    /// Returns the message of a check with its objects in the state. The reader also recognises the check in
    /// a status by this message.
    pub(super) fn in_state(&self) -> String {
        let verb = if self.is_one() { "has" } else { "have" };
        format!("{self} {verb} {}", self.wanted())
    }

    /// Returns the state that the check expects, such as `condition Complete=True` or
    /// `{.status.phase}="Bound"`.
    fn wanted(&self) -> String {
        match &self.check.state {
            ResourceState::Condition { type_, status } => format!("condition {type_}={status}"),
            ResourceState::JsonPath { path, value } => format!("{path}={value:?}"),
        }
    }

    fn is_one(&self) -> bool {
        matches!(self.check.objects, Objects::Name(_))
    }
}

pub(super) fn of_found(objects: &ObjectsText<'_>, found: Found) -> Observation {
    let (wanted, is_one) = (objects.wanted(), objects.is_one());
    let one_of = if is_one { "" } else { "one of " };
    match found {
        Found::InState => {
            Observation { state: State::Ready, reason: resource::IN_STATE, message: objects.in_state() }
        }
        Found::NotInState => {
            let does_not = if is_one { "does not" } else { "do not all" };
            Observation::not_ready(resource::NOT_IN_STATE, format!("{objects} {does_not} have {wanted} yet"))
        }
        Found::NotObserved => {
            let message = format!(
                "the status of {one_of}{objects} is of an earlier generation: {wanted} does not count yet"
            );
            Observation::not_ready(resource::NOT_OBSERVED, message)
        }
        Found::Failed => Observation::not_ready(
            resource::FAILED,
            format!("{one_of}{objects} has failed and will not have {wanted}"),
        ),
    }
}

/// Returns the observation of a check with a path that selects something other than one value.
pub(super) fn of_refusal(objects: &ObjectsText<'_>, refused: NotOneValue) -> Observation {
    let ResourceState::JsonPath { path, .. } = &objects.check.state else { return Observation::unknown() };
    let one_of = if objects.is_one() { "" } else { "one of " };
    Observation::invalid(resource::NOT_ONE_VALUE, format!("{path} of {one_of}{objects} is {refused}"))
}

/// Returns the observation of a check of a kind that cannot be listed and watched.
pub(super) fn of_trouble(check: &ResourceCheck, trouble: &Trouble) -> Observation {
    let kind = gvk(check);
    let name = format!("{} of {}", kind.kind, kind.api_version());
    match trouble {
        Trouble::NotServed => Observation::blind(
            resource::KIND_NOT_SERVED,
            format!("the API server does not serve kind {name}"),
        ),
        Trouble::NotNamespaced => {
            let message = format!("kind {name} is cluster-scoped; expected a namespaced kind");
            Observation::invalid(resource::KIND_NOT_NAMESPACED, message)
        }
        Trouble::Unknown(cause) => {
            Observation::blind(resource::KIND_UNKNOWN, format!("discovery of kind {name} failed: {cause}"))
        }
    }
}

/// Returns the observation of a check of a kind that the cache cannot read. The cache retries by itself.
pub(super) fn unreadable(store: &Store<DynamicObject>, error: &ReadError) -> Observation {
    let (kind, status) = (store.untyped().kind(), store.untyped().status());
    match error {
        ReadError::NotSynced { .. } if !status.absent => Observation::unknown(),
        ReadError::NotSynced { .. } => Observation::blind(
            resource::KIND_FORBIDDEN,
            format!(
                "the manager may not list and watch kind {kind}; a ClusterRole with the label \
                 mainstay.dev/aggregate-to-manager: \"true\" gives it the right"
            ),
        ),
        ReadError::TooLarge { .. } => Observation::blind(resource::TOO_MANY_OBJECTS, error.to_string()),
        _ => Observation::blind(resource::KIND_UNKNOWN, format!("kind {kind} cannot be read: {error}")),
    }
}
