//! Short names of the kinds in scenarios.

use super::script::Alias;

const REGISTRATION: &str = "admissionregistration.k8s.io/v1";

/// Short name, apiVersion, kind, plural and whether it is namespaced.
const ALIASES: &[(&str, &str, &str, &str, bool)] = &[
    ("cm", "v1", "ConfigMap", "configmaps", true),
    ("secret", "v1", "Secret", "secrets", true),
    ("svc", "v1", "Service", "services", true),
    ("ep", "v1", "Endpoints", "endpoints", true),
    ("pod", "v1", "Pod", "pods", true),
    ("sa", "v1", "ServiceAccount", "serviceaccounts", true),
    ("event", "v1", "Event", "events", true),
    ("ns", "v1", "Namespace", "namespaces", false),
    ("node", "v1", "Node", "nodes", false),
    ("pvc", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
    ("deploy", "apps/v1", "Deployment", "deployments", true),
    ("rs", "apps/v1", "ReplicaSet", "replicasets", true),
    ("sts", "apps/v1", "StatefulSet", "statefulsets", true),
    ("ds", "apps/v1", "DaemonSet", "daemonsets", true),
    ("job", "batch/v1", "Job", "jobs", true),
    ("cronjob", "batch/v1", "CronJob", "cronjobs", true),
    ("lease", "coordination.k8s.io/v1", "Lease", "leases", true),
    ("ev", "events.k8s.io/v1", "Event", "events", true),
    ("eps", "discovery.k8s.io/v1", "EndpointSlice", "endpointslices", true),
    ("role", "rbac.authorization.k8s.io/v1", "Role", "roles", true),
    ("rolebinding", "rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings", true),
    ("clusterrole", "rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", false),
    (
        "clusterrolebinding",
        "rbac.authorization.k8s.io/v1",
        "ClusterRoleBinding",
        "clusterrolebindings",
        false,
    ),
    ("sar", "authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", false),
    ("self", "authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", false),
    ("local", "authorization.k8s.io/v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", true),
    ("rules", "authorization.k8s.io/v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", false),
    ("tokenreview", "authentication.k8s.io/v1", "TokenReview", "tokenreviews", false),
    ("whoami", "authentication.k8s.io/v1", "SelfSubjectReview", "selfsubjectreviews", false),
    ("pdb", "policy/v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
    ("rc", "v1", "ReplicationController", "replicationcontrollers", true),
    ("pv", "v1", "PersistentVolume", "persistentvolumes", false),
    ("hpa", "autoscaling/v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("hpa1", "autoscaling/v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", true),
    ("ing", "networking.k8s.io/v1", "Ingress", "ingresses", true),
    ("ingclass", "networking.k8s.io/v1", "IngressClass", "ingressclasses", false),
    ("netpol", "networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", true),
    ("ipaddr", "networking.k8s.io/v1", "IPAddress", "ipaddresses", false),
    ("cidr", "networking.k8s.io/v1", "ServiceCIDR", "servicecidrs", false),
    ("runtime", "node.k8s.io/v1", "RuntimeClass", "runtimeclasses", false),
    ("pc", "scheduling.k8s.io/v1", "PriorityClass", "priorityclasses", false),
    ("csr", "certificates.k8s.io/v1", "CertificateSigningRequest", "certificatesigningrequests", false),
    ("flow", "flowcontrol.apiserver.k8s.io/v1", "FlowSchema", "flowschemas", false),
    ("deviceclass", "resource.k8s.io/v1", "DeviceClass", "deviceclasses", false),
    ("claim", "resource.k8s.io/v1", "ResourceClaim", "resourceclaims", true),
    ("sc", "storage.k8s.io/v1", "StorageClass", "storageclasses", false),
    ("csidriver", "storage.k8s.io/v1", "CSIDriver", "csidrivers", false),
    ("csinode", "storage.k8s.io/v1", "CSINode", "csinodes", false),
    ("capacity", "storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities", true),
    ("attachment", "storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", false),
    ("vac", "storage.k8s.io/v1", "VolumeAttributesClass", "volumeattributesclasses", false),
    ("crd", "apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions", false),
    ("mwc", REGISTRATION, "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", false),
    ("vwc", REGISTRATION, "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", false),
    ("vap", REGISTRATION, "ValidatingAdmissionPolicy", "validatingadmissionpolicies", false),
    ("vapb", REGISTRATION, "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", false),
    ("map", REGISTRATION, "MutatingAdmissionPolicy", "mutatingadmissionpolicies", false),
    ("mapb", REGISTRATION, "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", false),
    // Of the shared definitions.
    ("w", "example.com/v1", "Widget", "widgets", true),
    ("p", "example.com/v1", "Plain", "plains", true),
    ("g", "example.com/v1", "Gauge", "gauges", true),
    ("m", "example.com/v1", "Mult", "mults", true),
    ("m2", "example.com/v2", "Mult", "mults", true),
    ("mb", "example.com/v1beta1", "Mult", "mults", true),
];

/// Returns the kind of a short name.
pub(crate) fn alias(short: &str) -> Option<Alias> {
    let (_, api_version, kind, plural, namespaced) = ALIASES.iter().find(|(name, ..)| *name == short)?;
    Some(Alias { api_version, kind, plural, namespaced: *namespaced })
}
