use super::*;

/// A patch replaces the file in the map as a whole, so the component repeats that of the base.
#[test]
fn guarded_metrics_change_nothing_else_of_the_configuration() {
    let file = |documents: &[Value]| -> Value {
        let map = documents.iter().find(|document| document["kind"] == "ConfigMap").expect("a ConfigMap");
        serde_saphyr::from_str(map["data"]["manager.yaml"].as_str().expect("a file")).expect("YAML")
    };
    let component = documents_of("components/metrics-auth");
    let mut expected = file(&documents_of_base());
    expected["metrics"] = json!({"auth": true, "tlsDir": "/etc/mainstay-metrics-tls"});
    assert_eq!(file(&component), expected);
    let patch = component.iter().find(|document| document["kind"] == "Deployment").expect("a patch");
    let mounted = &patch["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0]["mountPath"];
    assert_eq!(*mounted, expected["metrics"]["tlsDir"]);
}

const BASE: &str = "
apiVersion: v1
kind: ServiceAccount
metadata: {name: mainstay, namespace: mainstay-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mainstay}
rules: [{apiGroups: [apps], resources: [deployments], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: mainstay}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: mainstay}
subjects: [{kind: ServiceAccount, name: mainstay, namespace: mainstay-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: viewer, namespace: mainstay-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: User, name: someone}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: mainstay, namespace: mainstay-system}
";

#[test]
fn rules_move_to_the_namespace_and_nothing_else_comes_along() {
    let documents: Vec<Value> = serde_saphyr::from_multiple(BASE).unwrap();
    let moved = in_namespace(&documents, "ns");
    let summary: Vec<String> = moved
        .iter()
        .map(|document| {
            let text = |pointer| document.pointer(pointer).and_then(Value::as_str).unwrap_or("-");
            format!(
                "{} {} in {} refers to {} for {} in {}",
                text("/kind"),
                text("/metadata/name"),
                text("/metadata/namespace"),
                text("/roleRef/name"),
                text("/subjects/0/name"),
                text("/subjects/0/namespace"),
            )
        })
        .collect();
    assert_eq!(
        summary,
        [
            "ServiceAccount mainstay in ns refers to - for - in -",
            "ClusterRole mainstay-ns in - refers to - for - in -",
            "ClusterRoleBinding mainstay-ns in - refers to mainstay-ns for mainstay in ns",
            "RoleBinding viewer in ns refers to view for someone in -",
        ]
    );
    assert_eq!(rules(&moved).len(), 1, "a rule of a role that is not ours is not looked at");
}
