//! The progress of the rollout of a Deployment that the gate holds back no longer.

use mainstay_api::WaitDeployment;

use super::summary::{Progress, Summary, reconciling, stalled};
use crate::deployment::{LiveDeployment, text};
use crate::reasons::{self, condition};

/// Returns the state of the rollout, in the order of checks of `kubectl rollout status`. Messages have no
/// counts: each change of a count would be one more write.
pub(super) fn judge(object: &WaitDeployment, live: &LiveDeployment) -> Summary {
    let going = |message: &str| reconciling(reasons::ROLLOUT_IN_PROGRESS, message);
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
        reconciling(reasons::PAUSED, "the Deployment's rollout is paused")
    } else if because(reasons::PROGRESS_DEADLINE_EXCEEDED) {
        let message = "the Deployment made no progress within progressDeadlineSeconds";
        stalled(reasons::PROGRESS_DEADLINE_EXCEEDED, message)
    } else if !complete {
        going("the Deployment's rollout is not complete")
    } else if available {
        let message = "the Deployment is available".to_owned();
        Summary { ready: "True", progress: Progress::Settled, reason: reasons::AVAILABLE, message }
    } else if because("NewReplicaSetAvailable") {
        reconciling(reasons::UNAVAILABLE, "too few Pods of the Deployment are available")
    } else {
        going("too few Pods of the Deployment are available yet")
    }
}
