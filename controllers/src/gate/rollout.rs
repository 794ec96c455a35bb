//! How far a Deployment that was let through has come.

use mainstay_api::WaitDeployment;

use super::report::{Progress, Summary};
use crate::deployment::{LiveDeployment, text};
use crate::reasons::{self, condition};

/// The order of `kubectl rollout status`; without numbers, since each would be one more write during a rollout.
pub(super) fn judge(object: &WaitDeployment, live: &LiveDeployment) -> Summary {
    let with = |ready, progress, reason, message: &str| Summary {
        ready,
        progress,
        reason,
        message: message.to_owned(),
    };
    let going = |message| with("False", Progress::Reconciling, reasons::ROLLOUT_IN_PROGRESS, message);
    let desired = live.spec.replicas.unwrap_or(1);
    let progressing = live.condition(condition::PROGRESSING);
    let because = |reason| progressing.is_some_and(|condition| text(condition, "reason") == reason);
    let available =
        live.condition(condition::AVAILABLE).is_some_and(|condition| text(condition, "status") == "True");
    let complete =
        live.count("updatedReplicas") >= desired && live.count("replicas") <= live.count("updatedReplicas");

    if live.written_for() != Some(object.generation()) || !live.is_observed() {
        going("the Deployment controller has not seen the current spec yet")
    } else if live.spec.paused && !complete {
        with("False", Progress::Reconciling, reasons::PAUSED, "the Deployment's rollout is paused")
    } else if because(reasons::PROGRESS_DEADLINE_EXCEEDED) {
        let reason = reasons::PROGRESS_DEADLINE_EXCEEDED;
        with(
            "False",
            Progress::Stalled,
            reason,
            "the Deployment made no progress within progressDeadlineSeconds",
        )
    } else if !complete {
        going("the Deployment's rollout is not complete")
    } else if available {
        with("True", Progress::Settled, reasons::AVAILABLE, "the Deployment is available")
    } else if because("NewReplicaSetAvailable") {
        with(
            "False",
            Progress::Reconciling,
            reasons::UNAVAILABLE,
            "too few Pods of the Deployment are available",
        )
    } else {
        going("too few Pods of the Deployment are available yet")
    }
}
