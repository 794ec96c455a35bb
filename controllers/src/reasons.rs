//! Every condition type and reason that the built-in controllers write.
//!
//! They are an interface: users match on them in alerts, scripts and `kubectl wait`. New reasons are added
//! only here, and no reason changes its meaning.

/// Condition types.
pub mod condition {
    /// True: gate open, current generation applied, Deployment available. Written by the gate.
    pub const READY: &str = "Ready";
    /// True: all dependencies are ready, or were when the gate opened. Written by the gate.
    pub const DEPENDENCIES_READY: &str = "DependenciesReady";
    /// True: the API server has accepted the Deployment, or would. Written by the gate.
    pub const TEMPLATE_ACCEPTED: &str = "TemplateAccepted";
    /// True: in progress, no action by a user is needed. Written by the gate.
    pub const RECONCILING: &str = "Reconciling";
    /// True: no progress until a user acts. Written by the gate.
    pub const STALLED: &str = "Stalled";
    /// True: part of the current spec is held back from an existing Deployment. Written by the gate, only
    /// while true.
    pub const UPDATE_HELD: &str = "UpdateHeld";
    /// True: the gate is part of a cycle of closed gates, each waiting for the next. Written by the gate,
    /// only while true.
    pub const DEPENDENCY_CYCLE: &str = "DependencyCycle";
    /// Copied from the Deployment by the mirror.
    pub const AVAILABLE: &str = "Available";
    /// Copied from the Deployment by the mirror.
    pub const PROGRESSING: &str = "Progressing";
    /// Copied from the Deployment by the mirror.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";

    /// The conditions that the gate writes, in this order; the last two only while they are true.
    pub const OF_GATE: [&str; 7] =
        [READY, DEPENDENCIES_READY, TEMPLATE_ACCEPTED, RECONCILING, STALLED, UPDATE_HELD, DEPENDENCY_CYCLE];
    /// The conditions that the mirror copies, each only while the Deployment has it.
    pub const OF_MIRROR: [&str; 3] = [AVAILABLE, PROGRESSING, REPLICA_FAILURE];
}

/// The Deployment is available and its rollout complete.
pub const AVAILABLE: &str = "Available";
/// Dependencies are not ready yet.
pub const WAITING_FOR_DEPENDENCIES: &str = "WaitingForDependencies";
/// The rollout of the current spec is not complete, or the Deployment is not available yet.
pub const ROLLOUT_IN_PROGRESS: &str = "RolloutInProgress";
/// The rollout of the Deployment was complete, but too few of its Pods are available now.
pub const UNAVAILABLE: &str = "Unavailable";
/// The Deployment's rollout is paused before it is complete.
pub const PAUSED: &str = "Paused";
/// The Deployment made no progress within its `progressDeadlineSeconds`.
pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
/// A Deployment of this name exists that this object does not control and may not adopt; it is left alone.
pub const DEPLOYMENT_CONFLICT: &str = "DeploymentConflict";
/// The Deployment of this name is being deleted; the gate decides again once it is gone.
pub const DEPLOYMENT_TERMINATING: &str = "DeploymentTerminating";
/// The API server refused the Deployment as invalid; only an edit of the spec helps.
pub const TEMPLATE_REJECTED: &str = "TemplateRejected";
/// An admission policy or webhook denies the Deployment; retried slowly.
pub const ADMISSION_DENIED: &str = "AdmissionDenied";
/// The API server refused the Deployment by RBAC, quota or the like; retried slowly.
pub const APPLY_FORBIDDEN: &str = "ApplyForbidden";
/// The object or its Deployment is too large to be decoded; the object is not reconciled until it shrinks.
pub const TOO_LARGE: &str = "TooLarge";
/// `waitProbe` is invalid; only an edit helps, and no probe is sent.
pub const INVALID_PROBE: &str = "InvalidProbe";
/// `spec.waitFor` is invalid, or one of its dependencies cannot be checked as written; only an edit helps.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// The dependencies were not ready within `deadlineSeconds`.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// A dependency was lost, and not ready again within `recoveryDeadlineSeconds`.
pub const RECOVERY_DEADLINE_EXCEEDED: &str = "RecoveryDeadlineExceeded";
/// A dependency was lost, and the Deployment has no replicas until it is ready again.
pub const SCALED_TO_ZERO: &str = "ScaledToZero";
/// The object is part of a cycle of closed gates, each waiting for the next.
pub const DEPENDENCY_CYCLE: &str = "DependencyCycle";
/// The probe policy forbids the address; no probe is sent.
pub const POLICY_DENIED: &str = "PolicyDenied";

/// All dependencies are ready, or were when the gate opened.
pub const ALL_READY: &str = "AllReady";
/// The object has no dependencies.
pub const NO_DEPENDENCIES: &str = "NoDependencies";
/// A dependency is not ready.
pub const WAITING: &str = "Waiting";
/// A dependency that was ready when the gate opened is not ready any more.
pub const LOST: &str = "Lost";
/// No result yet.
pub const UNKNOWN: &str = "Unknown";

/// The API server accepts the Deployment.
pub const ACCEPTED: &str = "Accepted";
/// The API server refuses the Deployment as invalid.
pub const INVALID: &str = "Invalid";
/// The API server refuses the Deployment by RBAC or the like.
pub const FORBIDDEN: &str = "Forbidden";
/// The API server refuses the Deployment by a quota.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
/// A new template is held back.
pub const TEMPLATE_HELD: &str = "TemplateHeld";
/// The first replicas are held back.
pub const REPLICAS_HELD: &str = "ReplicasHeld";

/// Reasons of Events that differ from the reasons of conditions.
pub mod event {
    /// A dependency became ready.
    pub const DEPENDENCY_READY: &str = "DependencyReady";
    /// A dependency that was ready is lost.
    pub const DEPENDENCY_LOST: &str = "DependencyLost";
    /// The gate has opened; the note has the time for which it was closed.
    pub const GATE_OPENED: &str = "GateOpened";
    /// The gate has opened at its deadline.
    pub const PROCEEDED_AFTER_DEADLINE: &str = "ProceededAfterDeadline";
    /// The Deployment was created.
    pub const DEPLOYMENT_CREATED: &str = "DeploymentCreated";
    /// The Deployment was changed.
    pub const DEPLOYMENT_UPDATED: &str = "DeploymentUpdated";
    /// A Deployment without a controller was adopted.
    pub const DEPLOYMENT_ADOPTED: &str = "DeploymentAdopted";
    /// Part of the current spec is held back.
    pub const UPDATE_HELD: &str = "UpdateHeld";
    /// The object is part of a cycle of closed gates.
    pub const DEPENDENCY_CYCLE: &str = super::DEPENDENCY_CYCLE;
    /// The policy forbids the probe of a dependency.
    pub const PROBE_DENIED: &str = "ProbeDenied";
    /// The object cannot be decoded; its Deployment is left as it is.
    pub const UNREADABLE: &str = "Unreadable";

    /// Returns the reason of the Event for a new reason of Ready; `None` if there is no Event for it, or
    /// another transition sends one.
    pub fn of(ready: &str) -> Option<&str> {
        match ready {
            super::ROLLOUT_IN_PROGRESS | super::DEPENDENCY_CYCLE | super::TOO_LARGE => None,
            super::POLICY_DENIED => Some(PROBE_DENIED),
            unchanged => Some(unchanged),
        }
    }
}

/// Reasons of a dependency that is checked by a probe, or is a Service.
pub mod probe {
    /// A connection was made, which is enough for a TCP check.
    pub const CONNECTED: &str = "Connected";
    /// A request, a handshake or a look-up had the expected answer.
    pub const ANSWERED: &str = "Answered";
    /// The connection was refused.
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
    /// Some endpoints of the Service are ready, but fewer than `minReady`.
    pub const TOO_FEW_ENDPOINTS: &str = "TooFewEndpoints";
    /// The Service has no such port.
    pub const PORT_NOT_FOUND: &str = "PortNotFound";
    /// The Service has no ready endpoint.
    pub const NO_ENDPOINTS: &str = "NoEndpoints";
    /// The Services cannot be read at present.
    pub const SERVICES_UNKNOWN: &str = "ServicesUnknown";
    /// The addresses of the API server or of the manager itself are unknown at present, so raw addresses are
    /// not probed.
    pub const OWNERS_UNKNOWN: &str = "OwnersUnknown";
    /// The target answers, but has not done so often enough in a row yet.
    pub const TOO_FEW_SUCCESSES: &str = "TooFewSuccesses";
    /// The target closed the connection before it had answered.
    pub const CONNECTION_CLOSED: &str = "ConnectionClosed";
    /// The answer violates the protocol, or is longer than a probe reads.
    pub const PROTOCOL_ERROR: &str = "ProtocolError";
    /// The HTTP or gRPC status does not count as success.
    pub const UNEXPECTED_STATUS: &str = "UnexpectedStatus";
    /// The gRPC health service answered `NOT_SERVING`.
    pub const NOT_SERVING: &str = "NotServing";
    /// The gRPC health service does not know the named service.
    pub const HEALTH_UNKNOWN: &str = "HealthUnknown";
    /// The gRPC server has no health service.
    pub const NO_HEALTH_SERVICE: &str = "NoHealthService";
    /// The TLS handshake failed.
    pub const TLS_FAILED: &str = "TlsFailed";
    /// The certificate has expired.
    pub const CERTIFICATE_EXPIRED: &str = "CertificateExpired";
    /// The certificate is not valid yet.
    pub const CERTIFICATE_NOT_YET_VALID: &str = "CertificateNotYetValid";
    /// The certificate is for other names.
    pub const CERTIFICATE_WRONG_NAME: &str = "CertificateWrongName";
    /// The certificate is not signed by a trusted authority.
    pub const CERTIFICATE_UNTRUSTED: &str = "CertificateUntrusted";
    /// The certificate is invalid for another reason.
    pub const CERTIFICATE_INVALID: &str = "CertificateInvalid";
    /// The `ConfigMap` of authorities, or its key, is missing or cannot be read.
    pub const AUTHORITIES_NOT_FOUND: &str = "AuthoritiesNotFound";
    /// The key of the `ConfigMap` does not contain certificates.
    pub const AUTHORITIES_INVALID: &str = "AuthoritiesInvalid";
    /// The name has no such record.
    pub const NAME_NOT_FOUND: &str = "NameNotFound";
    /// The name has fewer records than `minRecords`.
    pub const TOO_FEW_RECORDS: &str = "TooFewRecords";
    /// The name servers could not be reached.
    pub const LOOK_UP_FAILED: &str = "LookUpFailed";
    /// It is unknown at present whether the namespace enforces a Pod Security level.
    pub const NAMESPACE_UNKNOWN: &str = "NamespaceUnknown";
    /// The probe panicked; see the log of the manager.
    pub const PROBE_PANICKED: &str = "ProbePanicked";
    /// The only reason for a raw address that does not answer, so that a probe reveals no more of the
    /// network.
    pub const NOT_READY: &str = "NotReady";
}

/// Reasons of a dependency that is one object or several.
pub mod resource {
    /// The object is in the state of the check.
    pub const IN_STATE: &str = "InState";
    /// The object is not in the state of the check.
    pub const NOT_IN_STATE: &str = "NotInState";
    /// There is no such object.
    pub const NOT_FOUND: &str = "NotFound";
    /// The object was deleted after it had reached a final state, such as condition Complete.
    pub const GONE_AFTER_SUCCESS: &str = "GoneAfterSuccess";
    /// The object has failed and will not reach the state.
    pub const FAILED: &str = "Failed";
    /// The object's status is of an earlier generation.
    pub const NOT_OBSERVED: &str = "NotObserved";
    /// The selector selects more objects than are read, or the objects of all checks are too large together.
    pub const TOO_MANY_OBJECTS: &str = "TooManyObjects";
    /// The jsonPath selects several values, or an object or a list.
    pub const NOT_ONE_VALUE: &str = "NotOneValue";
    /// The ServiceAccount of the template may not read the object.
    pub const ACCESS_DENIED: &str = "AccessDenied";
    /// The access review of the ServiceAccount failed.
    pub const ACCESS_UNKNOWN: &str = "AccessUnknown";
    /// The API server does not serve the kind.
    pub const KIND_NOT_SERVED: &str = "KindNotServed";
    /// The kind is cluster-scoped.
    pub const KIND_NOT_NAMESPACED: &str = "KindNotNamespaced";
    /// The manager may not watch the kind.
    pub const KIND_FORBIDDEN: &str = "KindForbidden";
    /// The kind cannot be read at present.
    pub const KIND_UNKNOWN: &str = "KindUnknown";
}

/// Returns whether a reason means that the check could not be carried out, so that the state is unknown.
pub fn is_blind(reason: &str) -> bool {
    matches!(
        reason,
        probe::SERVICES_UNKNOWN
            | probe::OWNERS_UNKNOWN
            | probe::NAMESPACE_UNKNOWN
            | probe::LOOK_UP_FAILED
            | probe::AUTHORITIES_NOT_FOUND
            | probe::AUTHORITIES_INVALID
            | probe::PROBE_PANICKED
            | resource::TOO_MANY_OBJECTS
            | resource::ACCESS_DENIED
            | resource::ACCESS_UNKNOWN
            | resource::KIND_NOT_SERVED
            | resource::KIND_FORBIDDEN
            | resource::KIND_UNKNOWN
    )
}

/// The rules that deny probes, for metrics and logs: mostly keys of `probePolicy`.
pub mod denial {
    /// The mode allows Services only.
    pub const MODE: &str = "mode";
    /// No entry of the allow list matches the target.
    pub const ALLOW: &str = "allow";
    /// The matching entries do not name the namespace, which enforces a Pod Security level.
    pub const POD_SECURITY: &str = "podSecurity";
    /// The target is a Service of another namespace.
    pub const CROSS_NAMESPACE: &str = "crossNamespace";
    /// The name may not be looked up.
    pub const DNS_SUFFIXES: &str = "dnsSuffixes";
    /// The target is a loopback address.
    pub const LOOPBACK: &str = "allowLoopback";
    /// The address is in a denied network.
    pub const DENIED: &str = "denied";
    /// The port is denied.
    pub const DENIED_PORTS: &str = "deniedPorts";
    /// The port is one that nodes reserve for Kubernetes.
    pub const NODE_PORTS: &str = "nodePorts";
    /// The address is special to the network, such as a multicast address.
    pub const SPECIAL: &str = "specialAddress";
    /// The namespace has reached its limit of targets.
    pub const MAX_TARGETS: &str = "maxTargetsPerNamespace";
    /// The target is the API server.
    pub const API_SERVER: &str = "apiServer";
    /// The target is the manager itself.
    pub const MANAGER: &str = "manager";

    /// All rules.
    pub const ALL: [&str; 13] = [
        MODE,
        ALLOW,
        POD_SECURITY,
        CROSS_NAMESPACE,
        DNS_SUFFIXES,
        LOOPBACK,
        DENIED,
        DENIED_PORTS,
        NODE_PORTS,
        SPECIAL,
        MAX_TARGETS,
        API_SERVER,
        MANAGER,
    ];
}

/// No Deployment of this WaitDeployment exists.
pub const DEPLOYMENT_NOT_FOUND: &str = "DeploymentNotFound";
/// The Deployment has not reported this condition yet.
pub const NOT_REPORTED: &str = "NotReported";
