//! Conditions in the status of an object.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Sets a condition in a status, as `SetStatusCondition` of apimachinery does: replaces the entry of its
/// type, or adds one. `lastTransitionTime` stays as long as the status of the condition is the same, so an
/// apply of the same state sends no request.
///
/// ```
/// use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
/// use k8s_openapi::jiff::Timestamp;
/// use mainstay::client::set_condition;
///
/// let ready = |reason: &str| Condition {
///     type_: "Ready".into(),
///     status: "False".into(),
///     reason: reason.into(),
///     message: String::new(),
///     observed_generation: Some(1),
///     last_transition_time: Time(Timestamp::now()),
/// };
/// let mut conditions = vec![ready("Starting")];
/// let since = conditions[0].last_transition_time.clone();
/// set_condition(&mut conditions, ready("Pulling"));
/// assert_eq!((conditions.len(), &*conditions[0].reason), (1, "Pulling"));
/// assert_eq!(conditions[0].last_transition_time, since);
/// ```
pub fn set_condition(conditions: &mut Vec<Condition>, condition: Condition) {
    match conditions.iter_mut().find(|known| known.type_ == condition.type_) {
        Some(known) if known.status == condition.status => {
            let since = known.last_transition_time.clone();
            *known = Condition { last_transition_time: since, ..condition };
        }
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests;
