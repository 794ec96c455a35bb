use serde_json::json;

use super::*;

fn round_trip(object: &Value) -> Value {
    let decoded: WaitDeployment = serde_json::from_value(object.clone()).unwrap();
    serde_json::to_value(decoded).unwrap()
}

#[test]
fn fields_of_a_newer_cluster_are_kept() {
    let object = json!({
        "apiVersion": "apps.mainstay.dev/v1alpha1",
        "kind": "WaitDeployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "waitProbe": {"address": "postgres:5432", "timeout": 3_000_000_000_i64},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "10%", "maxNew": 1}},
            "podReplacementPolicy": "TerminationComplete",
            "template": {
                "metadata": {"labels": {"app": "web"}, "creationTimestamp": null},
                "spec": {
                    "containers": [{"name": "web", "image": "web", "quantumCores": 1.5}],
                    "futureField": [null]
                }
            }
        }
    });
    assert_eq!(round_trip(&object), object);
}

#[test]
fn a_manifest_of_the_articles_go_client_decodes() {
    // Go's encoder writes every struct, empty or not.
    let object = json!({
        "apiVersion": "apps.mainstay.dev/v1alpha1",
        "kind": "WaitDeployment",
        "metadata": {"name": "web", "creationTimestamp": null},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "strategy": {},
            "template": {"metadata": {"creationTimestamp": null}, "spec": {"containers": null}}
        },
        "status": {},
        "waitProbe": {}
    });
    let decoded: WaitDeployment = serde_json::from_value(object).unwrap();
    assert_eq!(decoded.wait_probe, Some(WaitProbe::default()));
    assert_eq!(decoded.spec.replicas, None, "an absent count stays absent");
}
