//! The annotations of a ReplicaSet that record its place in the history of its Deployment.

use serde_json::Value;

use crate::workloads::object::Object as _;

/// The number of the rollout that a ReplicaSet, or now a Deployment, belongs to.
pub(super) const REVISION: &str = "deployment.kubernetes.io/revision";

/// Earlier revisions of a ReplicaSet that was rolled back to.
const HISTORY: &str = "deployment.kubernetes.io/revision-history";

/// `spec.replicas` of the Deployment when the ReplicaSet was last scaled.
pub(super) const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";

/// That number plus the surge.
pub(super) const MAX: &str = "deployment.kubernetes.io/max-replicas";

/// Annotations of a Deployment that its ReplicaSets do not get.
const NOT_COPIED: [&str; 6] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    HISTORY,
    DESIRED,
    MAX,
    "deprecated.deployment.rollback.to",
];

/// Longest history annotation, in characters.
const HISTORY_LENGTH: usize = 2000;

/// Returns the revision of a ReplicaSet; 0 without one, `None` for one that is not a number.
pub(super) fn of(set: &Value) -> Option<i64> {
    set.annotation(REVISION).map_or(Some(0), |revision| revision.parse().ok())
}

/// Returns the highest revision of ReplicaSets.
pub(super) fn highest<'a>(sets: impl IntoIterator<Item = &'a Value>) -> i64 {
    sets.into_iter().filter_map(of).max().unwrap_or_default().max(0)
}

/// Sets the annotations of the newest ReplicaSet: those of the Deployment, and its revision if it is older.
pub(super) fn annotate_newest(deployment: &Value, set: &mut Value, revision: i64) {
    let inherited = deployment.at("/metadata/annotations").as_object().into_iter().flatten();
    for (key, value) in inherited.filter(|(key, _)| !NOT_COPIED.contains(&key.as_str())) {
        annotate(set, key, value.clone());
    }
    let Some(former) = of(set).filter(|former| *former < revision) else { return };
    if set.annotation(REVISION).is_some() {
        let history = longer_history(set.annotation(HISTORY).unwrap_or_default(), &former.to_string());
        annotate(set, HISTORY, history);
    }
    annotate(set, REVISION, revision.to_string());
}

/// Notes the size of the Deployment, with and without surge, on a ReplicaSet.
pub(super) fn annotate_size(set: &mut Value, desired: i64, max: i64) {
    annotate(set, DESIRED, desired.to_string());
    annotate(set, MAX, max.to_string());
}

/// Returns a number that an annotation holds.
pub(super) fn number(set: &Value, annotation: &str) -> Option<i64> {
    set.annotation(annotation)?.parse::<i32>().ok().filter(|number| *number >= 0).map(i64::from)
}

fn longer_history(history: &str, former: &str) -> String {
    let mut revisions: Vec<_> = history.split(',').filter(|revision| !revision.is_empty()).collect();
    revisions.push(former);
    let mut joined = revisions.join(",");
    while joined.len() > HISTORY_LENGTH && revisions.len() > 1 {
        revisions.remove(0);
        joined = revisions.join(",");
    }
    joined
}

/// Sets an annotation; objects that a server returned have metadata.
pub(super) fn annotate(object: &mut Value, key: &str, value: impl Into<Value>) {
    object["metadata"]["annotations"][key] = value.into();
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollback_keeps_former_revisions_as_history() {
        let deployment = json!({"metadata": {"annotations": {"team": "x", REVISION: "9"}}});
        let mut set = json!({"metadata": {}});
        annotate_newest(&deployment, &mut set, 1);
        assert_eq!(set["metadata"]["annotations"], json!({"team": "x", REVISION: "1"}));
        annotate_newest(&deployment, &mut set, 3);
        annotate_newest(&deployment, &mut set, 5);
        annotate_newest(&deployment, &mut set, 4);
        assert_eq!(set["metadata"]["annotations"], json!({"team": "x", REVISION: "5", HISTORY: "1,3"}));
    }
}
