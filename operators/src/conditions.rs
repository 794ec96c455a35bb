//! Conditions of a status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};

/// A condition to set: its type, whether it is true, its reason and its message.
pub(crate) type Wanted<'a> = (&'a str, bool, &'a str, String);

/// Returns the conditions of an object that has these `known` ones. `lastTransitionTime` changes only with
/// the status of a condition.
pub(crate) fn conditions<const N: usize>(
    meta: &ObjectMeta,
    known: &[Condition],
    wanted: [Wanted<'_>; N],
    now: Timestamp,
) -> Vec<Condition> {
    let make = |(type_, is_true, reason, message): Wanted<'_>| {
        let status = if is_true { "True" } else { "False" };
        let same = known.iter().find(|one| one.type_ == type_ && one.status == status);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: meta.generation,
            last_transition_time: same.map_or(Time(now), |one| one.last_transition_time.clone()),
        }
    };
    wanted.map(make).into()
}
