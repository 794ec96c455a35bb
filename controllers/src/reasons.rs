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
    /// True: the API server has accepted the Deployment, or would. Written by the gate.
    pub const TEMPLATE_ACCEPTED: &str = "TemplateAccepted";
    /// True: on the way, nobody needs to act. Written by the gate.
    pub const RECONCILING: &str = "Reconciling";
    /// True: will not go on before somebody acts. Written by the gate.
    pub const STALLED: &str = "Stalled";
    /// True: part of the current spec is held back from a Deployment that runs. Written by the gate, only while true.
    pub const UPDATE_HELD: &str = "UpdateHeld";
    /// True: the gate waits for itself by way of others, all of them closed. Written by the gate, only while true.
    pub const DEPENDENCY_CYCLE: &str = "DependencyCycle";
    /// Copied from the Deployment by the mirror.
    pub const AVAILABLE: &str = "Available";
    /// Copied from the Deployment by the mirror.
    pub const PROGRESSING: &str = "Progressing";
    /// Copied from the Deployment by the mirror.
    pub const REPLICA_FAILURE: &str = "ReplicaFailure";

    /// What the gate writes, in this order; the last two only while they are true.
    pub const OF_GATE: [&str; 7] =
        [READY, DEPENDENCIES_READY, TEMPLATE_ACCEPTED, RECONCILING, STALLED, UPDATE_HELD, DEPENDENCY_CYCLE];
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
/// An admission policy or webhook denies the Deployment; tried again slowly.
pub const ADMISSION_DENIED: &str = "AdmissionDenied";
/// The API server refused the Deployment by RBAC, quota or the like; tried again slowly.
pub const APPLY_FORBIDDEN: &str = "ApplyForbidden";
/// The object, or its Deployment, is longer than is decoded; nothing is done for it until it shrinks.
pub const TOO_LARGE: &str = "TooLarge";
/// `waitProbe` cannot be acted on; only an edit helps, and nothing is dialled.
pub const INVALID_PROBE: &str = "InvalidProbe";
/// `spec.waitFor` cannot be acted on, or one of its dependencies cannot be looked at as it is written; only an edit helps.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// The prerequisites did not hold in time.
pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
/// A prerequisite was lost, and did not come back in time.
pub const RECOVERY_DEADLINE_EXCEEDED: &str = "RecoveryDeadlineExceeded";
/// A prerequisite was lost, and the Deployment has no replicas until it is back.
pub const SCALED_TO_ZERO: &str = "ScaledToZero";
/// Objects wait for each other, and none can begin.
pub const DEPENDENCY_CYCLE: &str = "DependencyCycle";
/// The probe policy forbids the address; nothing is dialled.
pub const POLICY_DENIED: &str = "PolicyDenied";

/// All prerequisites hold, or held when the gate opened.
pub const ALL_READY: &str = "AllReady";
/// There is nothing to wait for.
pub const NO_DEPENDENCIES: &str = "NoDependencies";
/// A prerequisite does not hold.
pub const WAITING: &str = "Waiting";
/// A prerequisite does not hold that had held when the gate opened.
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

/// Reasons of Events that are no reasons of a condition, or are called differently there.
pub mod event {
    /// A prerequisite holds that did not before.
    pub const DEPENDENCY_READY: &str = "DependencyReady";
    /// A prerequisite is lost that had held.
    pub const DEPENDENCY_LOST: &str = "DependencyLost";
    /// The gate has opened; with the time it was closed.
    pub const GATE_OPENED: &str = "GateOpened";
    /// The gate has opened at its deadline.
    pub const PROCEEDED_AFTER_DEADLINE: &str = "ProceededAfterDeadline";
    /// The Deployment was created.
    pub const DEPLOYMENT_CREATED: &str = "DeploymentCreated";
    /// The Deployment was changed.
    pub const DEPLOYMENT_UPDATED: &str = "DeploymentUpdated";
    /// A Deployment that nobody controlled was taken over.
    pub const DEPLOYMENT_ADOPTED: &str = "DeploymentAdopted";
    /// Part of the current spec is held back.
    pub const UPDATE_HELD: &str = "UpdateHeld";
    /// Objects wait for each other, and none can begin.
    pub const DEPENDENCY_CYCLE: &str = super::DEPENDENCY_CYCLE;
    /// The policy forbids to look at a prerequisite.
    pub const PROBE_DENIED: &str = "ProbeDenied";
    /// The object cannot be read; what it has started is left as it is.
    pub const UNREADABLE: &str = "Unreadable";

    /// Returns the reason under which a new reason of Ready is told; `None` for those that are no news, or are told as
    /// something else.
    pub fn of(ready: &str) -> Option<&'static str> {
        let told_as_themselves = [
            super::AVAILABLE,
            super::WAITING_FOR_DEPENDENCIES,
            super::UNAVAILABLE,
            super::PAUSED,
            super::PROGRESS_DEADLINE_EXCEEDED,
            super::DEPLOYMENT_CONFLICT,
            super::DEPLOYMENT_TERMINATING,
            super::TEMPLATE_REJECTED,
            super::ADMISSION_DENIED,
            super::APPLY_FORBIDDEN,
            super::INVALID_PROBE,
            super::INVALID_SPEC,
            super::DEADLINE_EXCEEDED,
            super::RECOVERY_DEADLINE_EXCEEDED,
            super::SCALED_TO_ZERO,
        ];
        if ready == super::POLICY_DENIED {
            return Some(PROBE_DENIED);
        }
        told_as_themselves.into_iter().find(|reason| *reason == ready)
    }
}

/// Reasons of one prerequisite.
pub mod probe {
    /// A connection was made, which is all that a TCP check asks for.
    pub const CONNECTED: &str = "Connected";
    /// A request, a handshake or a look-up was answered as it should be.
    pub const ANSWERED: &str = "Answered";
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
    /// Which addresses are the API server's and the manager's own cannot be told at present, so none is connected to.
    pub const OWNERS_UNKNOWN: &str = "OwnersUnknown";
    /// It answers, and has not done so often enough in a row yet.
    pub const TOO_FEW_SUCCESSES: &str = "TooFewSuccesses";
    /// The other side ended the connection before it had answered.
    pub const CONNECTION_CLOSED: &str = "ConnectionClosed";
    /// What came back is not the protocol that was spoken, or more than a probe reads.
    pub const PROTOCOL_ERROR: &str = "ProtocolError";
    /// An HTTP or gRPC status that does not count as success.
    pub const UNEXPECTED_STATUS: &str = "UnexpectedStatus";
    /// The gRPC health service says that it does not serve.
    pub const NOT_SERVING: &str = "NotServing";
    /// The gRPC health service does not know the service that was asked about.
    pub const HEALTH_UNKNOWN: &str = "HealthUnknown";
    /// The gRPC server has no health service.
    pub const NO_HEALTH_SERVICE: &str = "NoHealthService";
    /// No TLS handshake came about.
    pub const TLS_FAILED: &str = "TlsFailed";
    /// The certificate has expired.
    pub const CERTIFICATE_EXPIRED: &str = "CertificateExpired";
    /// The certificate is not valid yet.
    pub const CERTIFICATE_NOT_YET_VALID: &str = "CertificateNotYetValid";
    /// The certificate is for other names.
    pub const CERTIFICATE_WRONG_NAME: &str = "CertificateWrongName";
    /// The certificate is by no authority that is trusted.
    pub const CERTIFICATE_UNTRUSTED: &str = "CertificateUntrusted";
    /// The certificate is not acceptable for another reason.
    pub const CERTIFICATE_INVALID: &str = "CertificateInvalid";
    /// The `ConfigMap` of authorities, or its key, is not there or cannot be read.
    pub const AUTHORITIES_NOT_FOUND: &str = "AuthoritiesNotFound";
    /// The key of the `ConfigMap` holds something else than certificates.
    pub const AUTHORITIES_INVALID: &str = "AuthoritiesInvalid";
    /// The name has no such record.
    pub const NAME_NOT_FOUND: &str = "NameNotFound";
    /// The name has fewer records than asked for.
    pub const TOO_FEW_RECORDS: &str = "TooFewRecords";
    /// The name servers could not be asked.
    pub const LOOK_UP_FAILED: &str = "LookUpFailed";
    /// Whether the namespace is restricted cannot be known at present.
    pub const NAMESPACE_UNKNOWN: &str = "NamespaceUnknown";
    /// The probe panicked; see the log of the manager.
    pub const PROBE_PANICKED: &str = "ProbePanicked";
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
    /// Deleted after it had reached a final state, such as condition Complete.
    pub const GONE_AFTER_SUCCESS: &str = "GoneAfterSuccess";
    /// It has failed for good.
    pub const FAILED: &str = "Failed";
    /// Its status is of an earlier generation.
    pub const NOT_OBSERVED: &str = "NotObserved";
    /// The selector selects more objects than are read, or the objects of all checks are too large together.
    pub const TOO_MANY_OBJECTS: &str = "TooManyObjects";
    /// The jsonPath selects several values, or an object or a list.
    pub const NOT_ONE_VALUE: &str = "NotOneValue";
    /// The ServiceAccount of the template may not read it.
    pub const ACCESS_DENIED: &str = "AccessDenied";
    /// The access review of the ServiceAccount failed.
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

/// Returns whether a reason of one prerequisite says that it cannot be looked at, and so nothing of it.
pub fn is_blind(reason: &str) -> bool {
    let of_probes = [
        probe::SERVICES_UNKNOWN,
        probe::OWNERS_UNKNOWN,
        probe::NAMESPACE_UNKNOWN,
        probe::LOOK_UP_FAILED,
        probe::AUTHORITIES_NOT_FOUND,
        probe::AUTHORITIES_INVALID,
        probe::PROBE_PANICKED,
    ];
    let of_resources = [
        resource::TOO_MANY_OBJECTS,
        resource::ACCESS_DENIED,
        resource::ACCESS_UNKNOWN,
        resource::KIND_NOT_SERVED,
        resource::KIND_FORBIDDEN,
        resource::KIND_UNKNOWN,
    ];
    of_probes.into_iter().chain(of_resources).any(|blind| blind == reason)
}

/// The rules by which a probe is denied, for metrics and logs: mostly keys of `probePolicy`.
pub mod denial {
    /// The mode admits Services only.
    pub const MODE: &str = "mode";
    /// No entry of the allow list is for it.
    pub const ALLOW: &str = "allow";
    /// The entries that are for it do not name the namespace, which enforces a Pod Security level.
    pub const POD_SECURITY: &str = "podSecurity";
    /// A Service of another namespace.
    pub const CROSS_NAMESPACE: &str = "crossNamespace";
    /// A name that may not be looked up.
    pub const DNS_SUFFIXES: &str = "dnsSuffixes";
    /// A loopback address.
    pub const LOOPBACK: &str = "allowLoopback";
    /// A network that is listed.
    pub const DENIED: &str = "denied";
    /// A port that is listed.
    pub const DENIED_PORTS: &str = "deniedPorts";
    /// A port that nodes keep for Kubernetes.
    pub const NODE_PORTS: &str = "nodePorts";
    /// An address that is special to the network.
    pub const SPECIAL: &str = "specialAddress";
    /// One target more than the namespace has places for.
    pub const MAX_TARGETS: &str = "maxTargetsPerNamespace";
    /// The API server.
    pub const API_SERVER: &str = "apiServer";
    /// The manager itself.
    pub const MANAGER: &str = "manager";

    /// All of them.
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
