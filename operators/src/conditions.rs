//! Conditions of a status.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use mainstay::client::set_condition;

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
    let mut conditions = known.to_vec();
    for (type_, is_true, reason, message) in wanted {
        let wanted = Condition {
            type_: type_.to_owned(),
            status: if is_true { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: meta.generation,
            last_transition_time: Time(now),
        };
        set_condition(&mut conditions, wanted);
    }
    conditions
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt;
    use serde_json::json;

    use crate::{cron_job, memcached};

    #[test]
    fn conditions_are_merged_by_their_type() {
        for definition in [cron_job::CronJob::crd(), memcached::Memcached::crd()] {
            let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status";
            let definition = json!(definition);
            let conditions = &definition.pointer(status).unwrap()["properties"]["conditions"];
            assert_eq!(conditions["x-kubernetes-list-type"], "map", "{conditions}");
            assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
        }
    }
}
