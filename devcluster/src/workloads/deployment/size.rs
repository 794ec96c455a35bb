//! How many Pods each ReplicaSet of a Deployment should have, as numbers.

use serde_json::Value;

use super::revision;
use crate::workloads::object::Object as _;

/// The limits of a rolling update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Pods that may exist beyond `spec.replicas`.
    pub(super) surge: i64,
    /// Pods that may be missing from `spec.replicas`.
    pub(super) unavailable: i64,
}

/// Whether the Deployment replaces its Pods one after the other.
pub(super) fn is_rolling(deployment: &Value) -> bool {
    deployment.text("/spec/strategy/type") != "Recreate"
}

/// Returns the limits of a Deployment, both 0 if it is not rolling.
pub(super) fn limits(deployment: &Value) -> Limits {
    if !is_rolling(deployment) {
        return Limits { surge: 0, unavailable: 0 };
    }
    let replicas = deployment.count("/spec/replicas");
    let surge = scaled(deployment.at("/spec/strategy/rollingUpdate/maxSurge"), replicas, true);
    let mut unavailable =
        scaled(deployment.at("/spec/strategy/rollingUpdate/maxUnavailable"), replicas, false);
    // Rounding may leave no room for either; a surge might not work because of a quota.
    if surge == 0 && unavailable == 0 {
        unavailable = 1;
    }
    Limits { surge, unavailable: unavailable.min(replicas) }
}

/// Returns a number, or a percentage of `total` as a number.
fn scaled(value: &Value, total: i64, round_up: bool) -> i64 {
    let Some(percent) = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok()) else {
        return value.as_i64().unwrap_or_default();
    };
    let product = percent.saturating_mul(total);
    if round_up { product.saturating_add(99) / 100 } else { product / 100 }
}

/// Returns the size of the newest ReplicaSet that fits beside the others during a rollout.
pub(super) fn newest(deployment: &Value, current: i64, of_all: i64) -> i64 {
    let replicas = deployment.count("/spec/replicas");
    if !is_rolling(deployment) {
        return replicas;
    }
    let room = replicas + limits(deployment).surge - of_all;
    current + room.min(replicas - current).max(0)
}

/// Returns how many Pods of a ReplicaSet to add, or to remove if negative, when a Deployment is scaled in the
/// middle of a rollout. `remaining` is what the ReplicaSets before it have left of the total.
pub(super) fn proportion(set: &Value, deployment: &Value, remaining: i64) -> i64 {
    let size = set.count("/spec/replicas");
    if size == 0 || remaining == 0 {
        return 0;
    }
    let fraction = fraction(set, size, deployment);
    if remaining > 0 { fraction.min(remaining) } else { fraction.max(remaining) }
}

fn fraction(set: &Value, size: i64, deployment: &Value) -> i64 {
    let replicas = deployment.count("/spec/replicas");
    if replicas == 0 {
        return -size;
    }
    let before = revision::number(set, revision::MAX).filter(|max| *max > 0);
    let before = before.unwrap_or_else(|| deployment.count("/status/replicas"));
    if before == 0 {
        return 0;
    }
    let max = replicas + limits(deployment).surge;
    // Rounds half up; all numbers are positive.
    (2 * size * max + before) / (2 * before) - size
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(replicas: i64, surge: &Value, unavailable: &Value) -> Value {
        let limits = json!({"maxSurge": surge, "maxUnavailable": unavailable});
        json!({"spec": {"replicas": replicas, "strategy": {"type": "RollingUpdate", "rollingUpdate": limits}}})
    }

    #[test]
    fn percentages_round_in_favour_of_availability() {
        let of = |replicas, surge: Value, unavailable: Value| {
            let limits = limits(&deployment(replicas, &surge, &unavailable));
            (limits.surge, limits.unavailable)
        };
        assert_eq!(of(3, json!("25%"), json!("25%")), (1, 0));
        assert_eq!(of(10, json!("25%"), json!("25%")), (3, 2));
        assert_eq!(of(2, json!(0), json!("1%")), (0, 1));
        assert_eq!(of(1, json!(0), json!(5)), (0, 1));
        assert_eq!(of(4, json!(2), json!(0)), (2, 0));
    }

    #[test]
    fn the_newest_set_grows_into_the_surge() {
        let deployment = deployment(10, &json!("25%"), &json!("25%"));
        assert_eq!(newest(&deployment, 0, 10), 3);
        assert_eq!(newest(&deployment, 3, 13), 3);
        assert_eq!(newest(&deployment, 5, 8), 10);
    }

    #[test]
    fn scaling_is_proportional_to_the_size() {
        let deployment = deployment(20, &json!(0), &json!(1));
        let set = |size: i64| json!({"metadata": {"annotations": {revision::MAX: "10"}}, "spec": {"replicas": size}});
        assert_eq!(proportion(&set(8), &deployment, 10), 8);
        assert_eq!(proportion(&set(2), &deployment, 2), 2);
        assert_eq!(proportion(&set(2), &deployment, 1), 1);
    }
}
