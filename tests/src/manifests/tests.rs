use std::collections::BTreeSet;
use std::path::Path;

use super::*;

/// Returns the section of the configuration that a component adds, and the container that it patches. A patch
/// replaces the configuration file as a whole, so the component must repeat the rest of the base's file; this
/// function asserts that it does.
fn changes(component: &str, section: &str) -> (Value, Value) {
    let file = |documents: &[Value]| -> Value {
        let text = one_of(documents, "ConfigMap")["data"]["manager.yaml"].as_str().expect("a file");
        let valid =
            mainstay_controllers::config_schema().parse(text, "m", &mainstay::config::Overrides::default());
        valid.expect("a valid file");
        serde_saphyr::from_str(text).expect("YAML")
    };
    let component = documents_of(component);
    let mut changed = file(&component);
    let added = changed.as_object_mut().and_then(|file| file.remove(section)).expect("its section");
    assert_eq!(changed, file(&documents_of_base()));
    (added, one_of(&component, "Deployment")["spec"]["template"]["spec"]["containers"][0].clone())
}

#[test]
fn guarded_metrics_change_nothing_else_of_the_configuration() {
    let (metrics, container) = changes("components/metrics-auth", "metrics");
    assert_eq!(metrics, json!({"auth": true, "tlsDir": "/etc/mainstay-metrics-tls"}));
    assert_eq!(container["volumeMounts"][0]["mountPath"], metrics["tlsDir"]);
}

#[test]
fn inspection_by_peers_changes_nothing_else_and_its_paths_are_mounted() {
    let (inspect, container) = changes("components/inspect-peers", "inspect");
    assert_eq!(inspect["peers"], true);
    assert_eq!(container["volumeMounts"][0]["mountPath"], inspect["tlsDir"]);
    let token = inspect["tokenFile"].as_str().expect("a path");
    assert_eq!(container["volumeMounts"][1]["mountPath"].as_str(), token.strip_suffix("/token"));
    let port = container["ports"][0]["containerPort"].to_string();
    assert_eq!(
        inspect["bindAddress"].as_str().and_then(|address| address.strip_prefix("0.0.0.0:")),
        Some(&*port)
    );
    let roles = documents_of("components/inspect-peers");
    let reader = roles.iter().find(|role| role["metadata"]["name"] == "mainstay-inspect").expect("a role");
    let urls = reader["rules"][0]["nonResourceURLs"].as_array().expect("a list");
    assert!(urls.contains(&json!("/debug/waitdeployments/*")), "needed by the command why: {urls:?}");
    let policy = documents_of("components/network-policy");
    assert_eq!(one_of(&policy, "NetworkPolicy")["spec"]["ingress"][2]["ports"][0]["port"].to_string(), port);
}

fn one_of<'a>(documents: &'a [Value], kind: &str) -> &'a Value {
    documents.iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

#[test]
fn a_drain_leaves_a_replica() {
    let base = documents_of_base();
    let (budget, deployment) = (one_of(&base, "PodDisruptionBudget"), one_of(&base, "Deployment"));
    assert_eq!(budget["spec"]["selector"], deployment["spec"]["selector"]);
    let number = |value: &Value| value.as_u64().expect("a number");
    assert!(number(&budget["spec"]["maxUnavailable"]) < number(&deployment["spec"]["replicas"]));
}

#[test]
fn the_network_policy_admits_exactly_the_ports_of_the_manager() {
    let component = documents_of("components/network-policy");
    let (policy, base) = (one_of(&component, "NetworkPolicy"), documents_of_base());
    let deployment = one_of(&base, "Deployment");
    assert_eq!(policy["spec"]["podSelector"], deployment["spec"]["selector"]);
    let ports = &deployment["spec"]["template"]["spec"]["containers"][0]["ports"];
    let ports = ports.as_array().expect("a list").iter();
    let names: BTreeSet<_> = ports.filter_map(|port| port["name"].as_str()).collect();
    let rules = policy["spec"]["ingress"].as_array().expect("a list");
    let admitted: BTreeSet<_> = rules.iter().filter_map(|rule| rule["ports"][0]["port"].as_str()).collect();
    assert_eq!(admitted, names);
}

#[test]
fn every_kustomization_lists_all_files_beside_it() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let components = std::fs::read_dir(deploy.join("components")).expect("a folder");
    let components: Vec<_> = components.map(|entry| entry.expect("an entry").path()).collect();
    assert!(!components.is_empty());
    for path in components.into_iter().chain([deploy.join("base")]) {
        let text = std::fs::read_to_string(path.join("kustomization.yaml")).expect("a kustomization");
        let listed: Value = serde_saphyr::from_str(&text).expect("YAML");
        let files = |key: &str| listed[key].as_array().cloned().unwrap_or_default();
        let patches = files("patches").into_iter().map(|patch| patch["path"].clone());
        let listed: BTreeSet<String> = files("resources")
            .into_iter()
            .chain(patches)
            .filter_map(|file| Some(file.as_str()?.to_owned()))
            .collect();
        let there = std::fs::read_dir(&path).expect("a folder");
        let there: BTreeSet<String> = there
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .filter(|name| name != "kustomization.yaml")
            .collect();
        assert_eq!(listed, there, "{}", path.display());
    }
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
fn only_rules_move_to_the_namespace() {
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
    assert_eq!(rules(&moved).len(), 1, "rules of roles outside the documents are skipped");
}
