use super::*;
use crate::workloads::client::Verb;

fn now() -> Timestamp {
    "2026-01-02T03:04:05Z".parse().expect("a time")
}

fn set(replicas: usize) -> Value {
    json!({
        "metadata": {"name": "web-1", "namespace": "a", "uid": "set", "generation": 1},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}, "annotations": {"x": "y"}},
                "spec": {"containers": []},
            },
        },
    })
}

fn pod(name: &str, ready_since: Option<&str>) -> Arc<Value> {
    let ready = json!({
        "type": "Ready",
        "status": if ready_since.is_some() { "True" } else { "False" },
        "lastTransitionTime": ready_since,
    });
    Arc::new(json!({
        "metadata": {
            "name": name, "namespace": "a", "uid": name, "labels": {"app": "web"},
            "ownerReferences": [{"uid": "set", "controller": true}],
        },
        "spec": {"nodeName": "devcluster"},
        "status": {"phase": "Running", "conditions": [ready]},
    }))
}

fn status_of(decision: &Decision) -> &Value {
    &decision.requests.last().expect("a request").body["status"]
}

#[test]
fn missing_pods_are_created_from_the_template() {
    let decision = decide(&set(2), &[], None, now());
    let [first, second, status] = decision.requests.as_slice() else { panic!("{decision:?}") };
    assert_eq!((first, first.verb), (second, Verb::Create));
    assert_eq!(first.body["metadata"]["generateName"], "web-1-");
    assert_eq!(first.body["metadata"]["annotations"], json!({"x": "y"}));
    assert!(first.body.is_controlled_by("set"));
    assert_eq!(
        status.body["status"],
        json!({"replicas": 0, "terminatingReplicas": 0, "observedGeneration": 1})
    );
}

#[test]
fn unready_and_young_pods_go_first() {
    let pods = [
        pod("old", Some("2026-01-01T00:00:00Z")),
        pod("young", Some("2026-01-02T03:04:04Z")),
        pod("unready", None),
    ];
    let decision = decide(&set(1), &pods, None, now());
    let gone: Vec<_> =
        decision.requests.iter().filter(|r| r.verb == Verb::Delete).map(|r| &*r.name).collect();
    assert_eq!(gone, ["unready", "young"]);
}

#[test]
fn a_ready_pod_becomes_available_after_min_ready_seconds() {
    let mut set = set(2);
    set["spec"]["minReadySeconds"] = 10.into();
    let pods = [pod("p", Some("2026-01-02T03:04:00Z")), pod("q", Some("2026-01-02T03:03:00Z"))];
    let decision = decide(&set, &pods, None, now());
    assert_eq!(decision.again_at, "2026-01-02T03:04:10Z".parse().ok());
    let expected = json!({
        "replicas": 2, "fullyLabeledReplicas": 2, "readyReplicas": 2, "availableReplicas": 1,
        "terminatingReplicas": 0, "observedGeneration": 1,
    });
    assert_eq!(status_of(&decision), &expected);
}

#[test]
fn a_refused_creation_is_a_condition_until_it_succeeds() {
    let decision = decide(&set(1), &[], Some("no room"), now());
    let [update] = decision.requests.as_slice() else { panic!("{decision:?}") };
    let failure = &update.body["status"]["conditions"][0];
    assert_eq!((failure.text("/reason"), failure.text("/message")), ("FailedCreate", "no room"));
    let recovered = decide(&update.body, &[], None, now());
    assert!(status_of(&recovered)["conditions"].is_null());
}

#[test]
fn a_deleted_pod_is_terminating_and_replaced() {
    let mut gone = Value::clone(&pod("p", Some("2026-01-02T03:04:00Z")));
    gone["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
    let decision = decide(&set(1), &[Arc::new(gone)], None, now());
    assert_eq!(decision.requests[0].verb, Verb::Create);
    assert_eq!(status_of(&decision)["terminatingReplicas"], 1);
}
