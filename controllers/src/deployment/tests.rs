//! The desired Deployment, the parts that are held back, and ownership.

use super::*;

fn object(value: &Value) -> WaitDeployment {
    let mut object = json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "generation": 4},
        "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"x": [1, null]}}},
    });
    for (key, value) in value.as_object().unwrap() {
        object[key.as_str()] = value.clone();
    }
    serde_json::from_value(object).unwrap()
}

fn live(desired: &Value) -> LiveDeployment {
    let mut live = desired.clone();
    live["metadata"]["uid"] = json!("d1");
    live["metadata"]["generation"] = json!(1);
    live["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"] = json!("now");
    serde_json::from_value(live).unwrap()
}

#[test]
fn the_spec_is_copied_unchanged_and_the_deployment_is_owned() {
    let desired = desired(&object(&json!({})), &[]);
    assert_eq!(
        desired,
        json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": "web",
                "namespace": "shop",
                "annotations": {
                    "apps.mainstay.dev/generation": "4",
                    "apps.mainstay.dev/template": "5db908cae62f76e0",
                },
                "ownerReferences": [{
                    "apiVersion": "apps.mainstay.dev/v1alpha1", "kind": "WaitDeployment",
                    "name": "web", "uid": "u1",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"spec": {"x": [1, null]}}},
        }),
        "replicas is absent because the WaitDeployment does not set it"
    );
}

#[test]
fn tracking_keys_are_not_copied() {
    let marks = json!({
        "team": "a", "example.com/owner": "b", "app.kubernetes.io/name": "web",
        "app.kubernetes.io/instance": "x", "argocd.argoproj.io/tracking-id": "x", "helm.sh/chart": "x",
        "kustomize.toolkit.fluxcd.io/name": "x", "meta.helm.sh/release-name": "x",
        "mainstay.dev/paused": "false",
        "kubectl.kubernetes.io/last-applied-configuration": "{}", "deployment.kubernetes.io/revision": "3",
    });
    let meta = json!({"name": "web", "uid": "u1", "labels": marks, "annotations": marks});
    let desired = desired(&object(&json!({"metadata": meta})), &[]);
    let kept = json!({"team": "a", "example.com/owner": "b", "app.kubernetes.io/name": "web"});
    assert_eq!(desired["metadata"]["labels"], kept);
    let mut with_marks = kept;
    with_marks[GENERATION_ANNOTATION] = json!("0");
    with_marks[TEMPLATE_ANNOTATION] = json!("5db908cae62f76e0");
    assert_eq!(desired["metadata"]["annotations"], with_marks);
}

#[test]
fn configured_keys_and_domains_are_not_copied_and_annotations_of_the_gate_are_kept() {
    let marks = json!({
        "team": "a", "example.com/team": "b", "example.com/owner": "c", "sub.example.com/owner": "d",
        "example.org/team": "e", "teams": "f",
    });
    let except = ["team", "example.com/*", "example.org/team", "apps.mainstay.dev/*"].map(str::to_owned);
    let meta = json!({"name": "web", "uid": "u1", "labels": marks, "annotations": marks});
    let desired = desired(&object(&json!({"metadata": meta})), &except);
    assert_eq!(desired["metadata"]["labels"], json!({"sub.example.com/owner": "d", "teams": "f"}));
    assert_eq!(desired["metadata"]["annotations"][GENERATION_ANNOTATION], "0");
    assert_eq!(desired["metadata"]["annotations"].as_object().unwrap().len(), 4);
}

#[test]
fn held_parts_keep_their_annotations_and_all_other_fields_are_updated() {
    let running = live(&desired(&object(&json!({})), &[]));
    let edited = json!({"replicas": 2, "selector": {}, "template": {"spec": {"x": []}}});
    let meta = json!({"name": "web", "uid": "u1", "generation": 5, "labels": {"team": "b"}});
    let asked = desired(&object(&json!({"metadata": meta, "spec": edited})), &[]);
    let old = json!({"metadata": {"creationTimestamp": null}, "spec": {"x": [1]}});
    let held = with_template_held(asked.clone(), &running, &old);
    assert_eq!(held["spec"]["template"], json!({"metadata": {}, "spec": {"x": [1]}}));
    assert_eq!(held["spec"]["replicas"], 2);
    assert_eq!(held["metadata"]["labels"], json!({"team": "b"}));
    let marks = |body: &Value| {
        let annotations = &body["metadata"]["annotations"];
        (annotations[GENERATION_ANNOTATION].clone(), annotations[TEMPLATE_ANNOTATION].clone())
    };
    assert_eq!(marks(&held), (json!("4"), json!("5db908cae62f76e0")));

    let empty = with_replicas_held(asked.clone(), Some(&running));
    assert_eq!(empty["spec"]["replicas"], 0);
    let (generation, template) = marks(&empty);
    assert_eq!((generation, &template), (json!("4"), &marks(&asked).1), "the new template is written");
    let (generation, _) = marks(&with_replicas_held(asked.clone(), None));
    assert_eq!(generation, Value::Null, "a Deployment created with held replicas has no generation");
    assert_eq!(
        marks(&with_no_replicas(asked.clone())),
        marks(&asked),
        "a scale-down keeps the desired annotations"
    );
}

#[test]
fn only_changes_of_written_fields_change_the_fingerprint() {
    let desired = desired(&object(&json!({})), &[]);
    let before = Fingerprint::of(&desired, Some(&live(&desired)));
    let check = |change: fn(&mut LiveDeployment), same: bool, case: &str| {
        let mut live = live(&desired);
        change(&mut live);
        assert_eq!(Fingerprint::of(&desired, Some(&live)) == before, same, "{case}");
    };
    check(|live| drop(live.status.insert("replicas".into(), json!(3))), true, "status");
    check(|live| drop(live.metadata.labels.insert("foreign".into(), "x".into())), true, "a foreign label");
    check(|live| live.metadata.generation += 1, false, "an edited spec");
    check(|live| live.metadata.uid = "d2".into(), false, "a new Deployment");
    check(|live| live.metadata.annotations.clear(), false, "a written annotation removed");
    check(|live| live.metadata.owner_references.clear(), false, "the owner reference removed");
    let edited =
        super::desired(&object(&json!({"spec": {"replicas": 2, "selector": {}, "template": {}}})), &[]);
    assert_ne!(Fingerprint::of(&edited, Some(&live(&desired))), before, "an edited WaitDeployment");
}

#[test]
fn control_is_by_uid() {
    let live = live(&desired(&object(&json!({})), &[]));
    assert!(live.is_controlled_by(&object(&json!({}))));
    assert!(!live.is_controlled_by(&object(&json!({"metadata": {"name": "web", "uid": "u2"}}))));
    assert!(
        !live.is_controlled_by(&object(&json!({"metadata": {"name": "web"}}))),
        "an object without a uid controls no Deployment"
    );
}
