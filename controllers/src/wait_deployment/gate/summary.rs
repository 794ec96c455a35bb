//! The one reason that Ready, Reconciling and Stalled share.

/// The state of a WaitDeployment, before it is spread over the conditions.
pub(super) struct Summary {
    pub(super) ready: &'static str,
    pub(super) progress: Progress,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// kstatus's view: <https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus>.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    Settled,
    Reconciling,
    Stalled,
}

pub(super) fn stalled(reason: &'static str, message: String) -> Summary {
    Summary { ready: "False", progress: Progress::Stalled, reason, message }
}

pub(super) fn reconciling(reason: &'static str, message: String) -> Summary {
    Summary { ready: "False", progress: Progress::Reconciling, reason, message }
}
