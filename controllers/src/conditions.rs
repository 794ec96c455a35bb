//! Conditions of a WaitDeployment's status.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay_api::{Condition, WaitDeployment};

/// Longest message in bytes; a refusal of the API server may quote the whole template.
const MAX_MESSAGE: usize = 1024;

/// Status, reason and message of a condition.
pub(crate) type Saying = (&'static str, &'static str, String);

/// Returns a condition of an object's current generation. It took its status before, if it had it already.
pub(crate) fn condition_of(
    object: &WaitDeployment,
    type_: &str,
    (status, reason, message): &Saying,
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

/// Cuts a message to the longest that a condition has, at a character boundary.
pub(crate) fn shorten(message: &str) -> &str {
    &message[..message.floor_char_boundary(MAX_MESSAGE)]
}
