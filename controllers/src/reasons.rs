//! Every condition type and reason the built-in controllers write, in one place.
//!
//! They are an interface: people match on them in alerts, scripts and `kubectl wait`. A reason is added here and
//! nowhere else, and never changes its meaning.

/// Condition types.
pub mod condition {
    /// True: gate open, current generation applied, Deployment available. Written by the gate.
    pub const READY: &str = "Ready";
    /// True: all prerequisites hold, or held when the gate opened. Written by the gate.
    pub const DEPENDENCIES_READY: &str = "DependenciesReady";
    /// True: on the way, nobody needs to act. Written by the gate.
    pub const RECONCILING: &str = "Reconciling";
    /// True: will not go on before somebody acts. Written by the gate.
    pub const STALLED: &str = "Stalled";
    /// Copied from the Deployment by the mirror.
    pub const AVAILABLE: &str = "Available";
    /// Copied from the Deployment by the mirror.
    pub const PROGRESSING: &str = "Progressing";
    /// Copied from the Deployment by the mirror.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";

    /// What the gate writes, always all four, in this order.
    pub const OF_GATE: [&str; 4] = [READY, DEPENDENCIES_READY, RECONCILING, STALLED];
    /// What the mirror copies, each only while the Deployment has it.
    pub const OF_MIRROR: [&str; 3] = [AVAILABLE, PROGRESSING, REPLICA_FAILURE];
}

/// The Deployment is available and its rollout complete.
pub const AVAILABLE: &str = "Available";
/// A prerequisite does not answer yet.
pub const WAITING_FOR_DEPENDENCIES: &str = "WaitingForDependencies";
/// The Deployment is on its way to the current spec, or not available yet.
pub const ROLLOUT_IN_PROGRESS: &str = "RolloutInProgress";
/// The Deployment's rollout was complete, and too few of its Pods are available now.
pub const UNAVAILABLE: &str = "Unavailable";
/// The Deployment's rollout is paused before it is complete.
pub const PAUSED: &str = "Paused";
/// The Deployment made no progress within its own deadline.
pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
/// A Deployment of this name exists and belongs to somebody else; it is left alone.
pub const DEPLOYMENT_CONFLICT: &str = "DeploymentConflict";
/// The Deployment of this name is being deleted; the gate decides anew once it is gone.
pub const DEPLOYMENT_TERMINATING: &str = "DeploymentTerminating";
/// The API server refused the Deployment as invalid; only an edit of the spec helps.
pub const TEMPLATE_REJECTED: &str = "TemplateRejected";
/// The API server refused the Deployment by RBAC, quota or admission; tried again slowly.
pub const APPLY_FORBIDDEN: &str = "ApplyForbidden";
/// `waitProbe` cannot be acted on; only an edit helps, and nothing is dialled.
pub const INVALID_PROBE: &str = "InvalidProbe";
/// The probe policy forbids the address; nothing is dialled.
pub const POLICY_DENIED: &str = "PolicyDenied";

/// All prerequisites hold, or held when the gate opened.
pub const ALL_READY: &str = "AllReady";
/// There is nothing to wait for.
pub const NO_DEPENDENCIES: &str = "NoDependencies";
/// A prerequisite does not hold.
pub const WAITING: &str = "Waiting";
/// No result yet.
pub const UNKNOWN: &str = "Unknown";

/// Reasons of one prerequisite.
pub mod probe {
    /// A connection was made.
    pub const CONNECTED: &str = "Connected";
    /// Nobody listens there.
    pub const REFUSED: &str = "Refused";
    /// No answer within the timeout.
    pub const TIMEOUT: &str = "Timeout";
    /// No route to the address.
    pub const UNREACHABLE: &str = "Unreachable";
    /// The connection failed in another way.
    pub const FAILED: &str = "Failed";
    /// No Service of that name.
    pub const SERVICE_NOT_FOUND: &str = "ServiceNotFound";
    /// Enough endpoints of the Service are ready.
    pub const ENDPOINTS_READY: &str = "EndpointsReady";
    /// Some endpoints of the Service are ready, and fewer than asked for.
    pub const TOO_FEW_ENDPOINTS: &str = "TooFewEndpoints";
    /// The Service has no such port.
    pub const PORT_NOT_FOUND: &str = "PortNotFound";
    /// The Service has no ready endpoint.
    pub const NO_ENDPOINTS: &str = "NoEndpoints";
    /// The Services cannot be read at present.
    pub const SERVICES_UNKNOWN: &str = "ServicesUnknown";
    /// It answers, and has not done so often enough in a row yet.
    pub const TOO_FEW_SUCCESSES: &str = "TooFewSuccesses";
    /// All that is ever said about a raw address that does not answer.
    pub const NOT_READY: &str = "NotReady";
}

/// Reasons of one prerequisite that is an object, or several.
pub mod resource {
    /// In the state that is waited for.
    pub const IN_STATE: &str = "InState";
    /// Not in it.
    pub const NOT_IN_STATE: &str = "NotInState";
    /// There is no such object.
    pub const NOT_FOUND: &str = "NotFound";
    /// It was in a state that does not pass, and is gone since.
    pub const GONE_AFTER_SUCCESS: &str = "GoneAfterSuccess";
    /// It has failed for good.
    pub const FAILED: &str = "Failed";
    /// What it says of itself is about an earlier generation.
    pub const NOT_OBSERVED: &str = "NotObserved";
    /// The selector picks more objects than are looked at.
    pub const TOO_MANY_OBJECTS: &str = "TooManyObjects";
    /// The ServiceAccount of the template may not read it.
    pub const ACCESS_DENIED: &str = "AccessDenied";
    /// It cannot be found out what the ServiceAccount may read.
    pub const ACCESS_UNKNOWN: &str = "AccessUnknown";
    /// The API server does not serve the kind.
    pub const KIND_NOT_SERVED: &str = "KindNotServed";
    /// Objects of the kind are in no namespace.
    pub const KIND_NOT_NAMESPACED: &str = "KindNotNamespaced";
    /// The manager may not watch the kind.
    pub const KIND_FORBIDDEN: &str = "KindForbidden";
    /// The kind cannot be read at present.
    pub const KIND_UNKNOWN: &str = "KindUnknown";
}

/// No Deployment of this WaitDeployment exists.
pub const DEPLOYMENT_NOT_FOUND: &str = "DeploymentNotFound";
/// The Deployment has not reported this condition yet.
pub const NOT_REPORTED: &str = "NotReported";
