//! Every condition type and reason that the built-in controllers write.
//!
//! They are an interface: users match on them in alerts, scripts and `kubectl wait`. New reasons are added
//! only here, and no reason changes its meaning.

/// The types of the conditions that the built-in controllers write.
pub mod condition {
    /// Condition type. True: gate open, current generation applied, Deployment available. Written by the
    /// gate.
    pub const READY: &str = "Ready";
    /// Condition type. True: all dependencies are ready, or were when the gate opened. Written by the gate.
    pub const DEPENDENCIES_READY: &str = "DependenciesReady";
    /// Condition type. True: the API server has accepted the Deployment, or would. Written by the gate.
    pub const TEMPLATE_ACCEPTED: &str = "TemplateAccepted";
    /// Condition type. True: in progress, no action by a user is needed. Written by the gate.
    pub const RECONCILING: &str = "Reconciling";
    /// Condition type. True: no progress until a user acts. Written by the gate.
    pub const STALLED: &str = "Stalled";
    /// Condition type. True: part of the current spec is held back from an existing Deployment. Written by
    /// the gate, only while true.
    pub const UPDATE_HELD: &str = "UpdateHeld";
    /// Condition type. True: the gate is part of a cycle of closed gates, each waiting for the next. Written
    /// by the gate, only while true.
    pub const DEPENDENCY_CYCLE: &str = "DependencyCycle";
    /// Condition type. Copied from the Deployment by the status mirror.
    pub const AVAILABLE: &str = "Available";
    /// Condition type. Copied from the Deployment by the status mirror.
    pub const PROGRESSING: &str = "Progressing";
    /// Condition type. Copied from the Deployment by the status mirror.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";

    /// The types of the conditions that the gate writes, in this order; the last two only while they are
    /// true.
    pub const OF_GATE: [&str; 7] =
        [READY, DEPENDENCIES_READY, TEMPLATE_ACCEPTED, RECONCILING, STALLED, UPDATE_HELD, DEPENDENCY_CYCLE];
    /// The types of the conditions that the status mirror copies, each only while the Deployment has it.
    pub const OF_MIRROR: [&str; 3] = [AVAILABLE, PROGRESSING, REPLICA_FAILURE];
}

/// Reason of a condition: the Deployment is available and its rollout complete.
pub const AVAILABLE: &str = "Available";
/// Reason of a condition: the dependencies are not ready yet, so the gate is closed.
pub const WAITING_FOR_DEPENDENCIES: &str = "WaitingForDependencies";
/// Reason of a condition: the rollout of the current spec is not complete, or the Deployment is not available
/// yet.
pub const ROLLOUT_IN_PROGRESS: &str = "RolloutInProgress";
/// Reason of a condition: the rollout of the Deployment was complete, but too few of its Pods are available
/// now.
pub const UNAVAILABLE: &str = "Unavailable";
/// Reason of a condition: the Deployment's rollout is paused before it is complete.
pub const PAUSED: &str = "Paused";
/// Reason of a condition: the Deployment made no progress within its `progressDeadlineSeconds`.
pub const PROGRESS_DEADLINE_EXCEEDED: &str = "ProgressDeadlineExceeded";
/// Reason of a condition: a Deployment of this name exists that this object does not control and may not
/// adopt; it is left alone.
pub const DEPLOYMENT_CONFLICT: &str = "DeploymentConflict";
/// Reason of a condition: the Deployment of this name is being deleted; the gate decides again once it is
/// gone.
pub const DEPLOYMENT_TERMINATING: &str = "DeploymentTerminating";
/// Reason of a condition: the API server refused the Deployment as invalid; only an edit of the spec helps.
pub const TEMPLATE_REJECTED: &str = "TemplateRejected";
/// Reason of a condition: an admission policy or webhook denies the Deployment; retried slowly.
pub const ADMISSION_DENIED: &str = "AdmissionDenied";
/// Reason of a condition: the API server refused the Deployment by RBAC, quota or the like; retried slowly.
pub const APPLY_FORBIDDEN: &str = "ApplyForbidden";
/// Reason of a condition: the object or its Deployment is too large to be decoded; the object is not
/// reconciled until it shrinks.
pub const TOO_LARGE: &str = "TooLarge";
/// Reason of a condition: `waitProbe` is invalid; only an edit helps, and no probe is sent.
pub const INVALID_PROBE: &str = "InvalidProbe";
/// Reason of a condition: `spec.waitFor` is invalid, or one of its dependencies cannot be checked as written;
/// only an edit helps.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// Reason of a condition: the dependencies were not ready within `deadlineSeconds`.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// Reason of a condition: a dependency was lost, and not ready again within `recoveryDeadlineSeconds`.
pub const RECOVERY_DEADLINE_EXCEEDED: &str = "RecoveryDeadlineExceeded";
/// Reason of a condition: a dependency was lost, and the Deployment has no replicas until it is ready again.
pub const SCALED_TO_ZERO: &str = "ScaledToZero";
/// Reason of a condition: the object is part of a cycle of closed gates, each waiting for the next.
pub const DEPENDENCY_CYCLE: &str = "DependencyCycle";
/// Reason of a condition: the probe policy forbids the address; no probe is sent.
pub const POLICY_DENIED: &str = "PolicyDenied";

/// Reason of a condition: all dependencies are ready, or were when the gate opened.
pub const ALL_READY: &str = "AllReady";
/// Reason of a condition: the object has no dependencies.
pub const NO_DEPENDENCIES: &str = "NoDependencies";
/// Reason of a condition: a dependency is not ready.
pub const WAITING: &str = "Waiting";
/// Reason of a condition: a dependency that was ready when the gate opened is not ready any more.
pub const LOST: &str = "Lost";
/// Reason of a condition or dependency: there is no result yet.
pub const UNKNOWN: &str = "Unknown";

/// Reason of the condition `TemplateAccepted`: the API server accepts the Deployment.
pub const ACCEPTED: &str = "Accepted";
/// Reason of the condition `TemplateAccepted`: the API server refuses the Deployment as invalid.
pub const INVALID: &str = "Invalid";
/// Reason of the condition `TemplateAccepted`: the API server refuses the Deployment by RBAC or the like.
pub const FORBIDDEN: &str = "Forbidden";
/// Reason of the condition `TemplateAccepted`: the API server refuses the Deployment by a quota.
pub const QUOTA_EXCEEDED: &str = "QuotaExceeded";
/// Reason of the condition `UpdateHeld`: a new Pod template is held back from the Deployment.
pub const TEMPLATE_HELD: &str = "TemplateHeld";
/// Reason of the condition `UpdateHeld`: the first replicas of the Deployment are held back.
pub const REPLICAS_HELD: &str = "ReplicasHeld";

/// Reasons of Events that differ from the reasons of conditions.
pub mod event {
    /// Reason of an Event: a dependency became ready.
    pub const DEPENDENCY_READY: &str = "DependencyReady";
    /// Reason of an Event: a dependency that was ready is lost.
    pub const DEPENDENCY_LOST: &str = "DependencyLost";
    /// Reason of an Event: the gate has opened; the note has the time for which it was closed.
    pub const GATE_OPENED: &str = "GateOpened";
    /// Reason of an Event: the gate has opened at its deadline, although dependencies are not ready.
    pub const PROCEEDED_AFTER_DEADLINE: &str = "ProceededAfterDeadline";
    /// Reason of an Event: the Deployment was created.
    pub const DEPLOYMENT_CREATED: &str = "DeploymentCreated";
    /// Reason of an Event: the Deployment was changed.
    pub const DEPLOYMENT_UPDATED: &str = "DeploymentUpdated";
    /// Reason of an Event: a Deployment without a controller was adopted.
    pub const DEPLOYMENT_ADOPTED: &str = "DeploymentAdopted";
    /// Reason of an Event: part of the current spec is held back from an existing Deployment.
    pub const UPDATE_HELD: &str = "UpdateHeld";
    /// Reason of an Event: the object is part of a cycle of closed gates.
    pub const DEPENDENCY_CYCLE: &str = super::DEPENDENCY_CYCLE;
    /// Reason of an Event: the policy forbids the probe of a dependency.
    pub const PROBE_DENIED: &str = "ProbeDenied";
    /// Reason of an Event: the object cannot be decoded; its Deployment is left as it is.
    pub const UNREADABLE: &str = "Unreadable";

    /// Returns the reason of the Event for a new reason of the condition Ready; `None` if there is no Event
    /// for it, or another transition sends one.
    pub fn of(ready: &str) -> Option<&str> {
        match ready {
            super::ROLLOUT_IN_PROGRESS | super::DEPENDENCY_CYCLE | super::TOO_LARGE => None,
            super::POLICY_DENIED => Some(PROBE_DENIED),
            unchanged => Some(unchanged),
        }
    }
}

/// Reasons of a dependency that is checked by a probe, or by the endpoints of a Service.
pub mod probe {
    /// Reason of a dependency: a connection was made, which is enough for a TCP check.
    pub const CONNECTED: &str = "Connected";
    /// Reason of a dependency: a request, a handshake or a look-up had the expected answer.
    pub const ANSWERED: &str = "Answered";
    /// Reason of a dependency: the connection was refused.
    pub const REFUSED: &str = "Refused";
    /// Reason of a dependency: there was no answer within the timeout.
    pub const TIMEOUT: &str = "Timeout";
    /// Reason of a dependency: there is no route to the address.
    pub const UNREACHABLE: &str = "Unreachable";
    /// Reason of a dependency: the connection failed in another way.
    pub const FAILED: &str = "Failed";
    /// Reason of a dependency: there is no Service of that name.
    pub const SERVICE_NOT_FOUND: &str = "ServiceNotFound";
    /// Reason of a dependency: enough endpoints of the Service are ready.
    pub const ENDPOINTS_READY: &str = "EndpointsReady";
    /// Reason of a dependency: some endpoints of the Service are ready, but fewer than `minReady`.
    pub const TOO_FEW_ENDPOINTS: &str = "TooFewEndpoints";
    /// Reason of a dependency: the Service has no such port.
    pub const PORT_NOT_FOUND: &str = "PortNotFound";
    /// Reason of a dependency: the Service has no ready endpoint.
    pub const NO_ENDPOINTS: &str = "NoEndpoints";
    /// Reason of a dependency: the Services cannot be read at present.
    pub const SERVICES_UNKNOWN: &str = "ServicesUnknown";
    /// Reason of a dependency: the addresses of the API server or of the manager itself are unknown at
    /// present, so raw addresses are not probed.
    pub const OWNERS_UNKNOWN: &str = "OwnersUnknown";
    /// Reason of a dependency: the target answers, but has not done so often enough in a row yet.
    pub const TOO_FEW_SUCCESSES: &str = "TooFewSuccesses";
    /// Reason of a dependency: the target closed the connection before it had answered.
    pub const CONNECTION_CLOSED: &str = "ConnectionClosed";
    /// Reason of a dependency: the answer violates the protocol, or is longer than a probe reads.
    pub const PROTOCOL_ERROR: &str = "ProtocolError";
    /// Reason of a dependency: the HTTP or gRPC status does not count as success.
    pub const UNEXPECTED_STATUS: &str = "UnexpectedStatus";
    /// Reason of a dependency: the gRPC health service answered `NOT_SERVING`.
    pub const NOT_SERVING: &str = "NotServing";
    /// Reason of a dependency: the gRPC health service does not know the named service.
    pub const HEALTH_UNKNOWN: &str = "HealthUnknown";
    /// Reason of a dependency: the gRPC server has no health service.
    pub const NO_HEALTH_SERVICE: &str = "NoHealthService";
    /// Reason of a dependency: the TLS handshake failed.
    pub const TLS_FAILED: &str = "TlsFailed";
    /// Reason of a dependency: the TLS certificate of the target has expired.
    pub const CERTIFICATE_EXPIRED: &str = "CertificateExpired";
    /// Reason of a dependency: the TLS certificate of the target is not valid yet.
    pub const CERTIFICATE_NOT_YET_VALID: &str = "CertificateNotYetValid";
    /// Reason of a dependency: the TLS certificate of the target is for other names.
    pub const CERTIFICATE_WRONG_NAME: &str = "CertificateWrongName";
    /// Reason of a dependency: the TLS certificate of the target is not signed by a trusted authority.
    pub const CERTIFICATE_UNTRUSTED: &str = "CertificateUntrusted";
    /// Reason of a dependency: the TLS certificate of the target is invalid for another reason.
    pub const CERTIFICATE_INVALID: &str = "CertificateInvalid";
    /// Reason of a dependency: the `ConfigMap` of authorities, or its key, is missing or cannot be read.
    pub const AUTHORITIES_NOT_FOUND: &str = "AuthoritiesNotFound";
    /// Reason of a dependency: the key of the `ConfigMap` does not contain certificates.
    pub const AUTHORITIES_INVALID: &str = "AuthoritiesInvalid";
    /// Reason of a dependency: the DNS name has no record of the type.
    pub const NAME_NOT_FOUND: &str = "NameNotFound";
    /// Reason of a dependency: the DNS name has fewer records than `minRecords`.
    pub const TOO_FEW_RECORDS: &str = "TooFewRecords";
    /// Reason of a dependency: the name servers could not be reached, or could not answer the query.
    pub const LOOK_UP_FAILED: &str = "LookUpFailed";
    /// Reason of a dependency: it is unknown at present whether the namespace enforces a Pod Security level.
    pub const NAMESPACE_UNKNOWN: &str = "NamespaceUnknown";
    /// Reason of a dependency: the probe panicked; see the log of the manager.
    pub const PROBE_PANICKED: &str = "ProbePanicked";
    /// Reason of a dependency: the only reason for a raw address that does not answer, so that a probe
    /// reveals no more of the network.
    pub const NOT_READY: &str = "NotReady";
}

/// Reasons of a dependency that is checked by the state of one object or several.
pub mod resource {
    /// Reason of a dependency: the object is in the state of the check.
    pub const IN_STATE: &str = "InState";
    /// Reason of a dependency: the object is not in the state of the check.
    pub const NOT_IN_STATE: &str = "NotInState";
    /// Reason of a dependency: there is no such object.
    pub const NOT_FOUND: &str = "NotFound";
    /// Reason of a dependency: the object was deleted after it had reached a final state, such as condition
    /// Complete.
    pub const GONE_AFTER_SUCCESS: &str = "GoneAfterSuccess";
    /// Reason of a dependency: the object has failed and will not reach the state.
    pub const FAILED: &str = "Failed";
    /// Reason of a dependency: the object's status is of an earlier generation.
    pub const NOT_OBSERVED: &str = "NotObserved";
    /// Reason of a dependency: the selector selects more objects than are read, or the objects of all checks
    /// are too large together.
    pub const TOO_MANY_OBJECTS: &str = "TooManyObjects";
    /// Reason of a dependency: the jsonPath selects several values, or an object or a list.
    pub const NOT_ONE_VALUE: &str = "NotOneValue";
    /// Reason of a dependency: the ServiceAccount of the template may not read the object.
    pub const ACCESS_DENIED: &str = "AccessDenied";
    /// Reason of a dependency: the access review of the ServiceAccount failed.
    pub const ACCESS_UNKNOWN: &str = "AccessUnknown";
    /// Reason of a dependency: the API server does not serve the kind.
    pub const KIND_NOT_SERVED: &str = "KindNotServed";
    /// Reason of a dependency: the kind is cluster-scoped.
    pub const KIND_NOT_NAMESPACED: &str = "KindNotNamespaced";
    /// Reason of a dependency: the manager may not watch the kind.
    pub const KIND_FORBIDDEN: &str = "KindForbidden";
    /// Reason of a dependency: the kind cannot be read at present.
    pub const KIND_UNKNOWN: &str = "KindUnknown";
}

/// Returns whether the reason of a dependency means that its check could not be carried out, so that its
/// state is unknown.
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
    /// Rule that denies a probe: the mode of the probe policy allows Services only.
    pub const MODE: &str = "mode";
    /// Rule that denies a probe: no entry of the allow list matches the target.
    pub const ALLOW: &str = "allow";
    /// Rule that denies a probe: the matching entries of the allow list do not name the namespace, which
    /// enforces a Pod Security level.
    pub const POD_SECURITY: &str = "podSecurity";
    /// Rule that denies a probe: the target is a Service of another namespace.
    pub const CROSS_NAMESPACE: &str = "crossNamespace";
    /// Rule that denies a probe: the name of the `dns` check may not be looked up.
    pub const DNS_SUFFIXES: &str = "dnsSuffixes";
    /// Rule that denies a probe: the target is a loopback address.
    pub const LOOPBACK: &str = "allowLoopback";
    /// Rule that denies a probe: the address is in a denied network.
    pub const DENIED: &str = "denied";
    /// Rule that denies a probe: the port is denied.
    pub const DENIED_PORTS: &str = "deniedPorts";
    /// Rule that denies a probe: the port is one that nodes reserve for Kubernetes.
    pub const NODE_PORTS: &str = "nodePorts";
    /// Rule that denies a probe: the address is special to the network, such as a multicast address.
    pub const SPECIAL: &str = "specialAddress";
    /// Rule that denies a probe: the namespace has reached its limit of targets.
    pub const MAX_TARGETS: &str = "maxTargetsPerNamespace";
    /// Rule that denies a probe: the target is the API server.
    pub const API_SERVER: &str = "apiServer";
    /// Rule that denies a probe: the target is the manager itself.
    pub const MANAGER: &str = "manager";

    /// All rules that deny probes.
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

/// Reason of a condition: no Deployment of this WaitDeployment exists.
pub const DEPLOYMENT_NOT_FOUND: &str = "DeploymentNotFound";
/// Reason of a condition: the Deployment has not reported this condition yet.
pub const NOT_REPORTED: &str = "NotReported";
