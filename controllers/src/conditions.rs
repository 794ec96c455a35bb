//! Conditions of a WaitDeployment's status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay_api::{Condition, WaitDeployment};

/// Maximum length of a condition's message in bytes; a longer one, such as a refusal by the API server that
/// quotes the whole template, is cut.
const MAX_MESSAGE: usize = 1024;

/// The status, reason and message of a new condition of a WaitDeployment.
pub(crate) type ConditionFields = (&'static str, &'static str, String);

/// Returns a condition of a WaitDeployment with these fields, for the current generation of `object`.
/// `lastTransitionTime` is kept while the status of the condition is the same.
pub(crate) fn condition_of(
    object: &WaitDeployment,
    type_: &str,
    (status, reason, message): &ConditionFields,
    now: &Time,
) -> Condition {
    let kept = object.condition(type_).filter(|previous| previous.status == *status);
    let since = kept.and_then(|previous| previous.last_transition_time.clone());
    Condition {
        type_: type_.to_owned(),
        status: (*status).to_owned(),
        observed_generation: Some(object.generation()),
        last_update_time: None,
        last_transition_time: Some(since.unwrap_or_else(|| now.clone())),
        reason: Some((*reason).to_owned()),
        message: Some(shorten(message).to_owned()),
    }
}

/// Cuts a message to the longest that a condition may have, at a character boundary.
pub(crate) fn shorten(message: &str) -> &str {
    &message[..message.floor_char_boundary(MAX_MESSAGE)]
}

/// Returns whether the condition exists and its status is True.
pub(crate) fn is_true(condition: Option<&Condition>) -> bool {
    condition.is_some_and(|condition| condition.status == "True")
}

/// Returns whether the condition exists and has this reason.
pub(crate) fn has_reason(condition: Option<&Condition>, reason: &str) -> bool {
    condition.is_some_and(|condition| condition.reason.as_deref() == Some(reason))
}
