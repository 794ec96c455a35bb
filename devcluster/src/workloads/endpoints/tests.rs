use std::sync::Arc;

use super::*;
use crate::workloads::client::{Request, Verb};
use crate::workloads::view::Name;

fn service(target_port: &Value) -> Value {
    json!({
        "metadata": {"name": "web", "namespace": "a", "uid": "s", "labels": {"team": "x"}},
        "spec": {
            "selector": {"app": "web"},
            "clusterIP": "10.0.0.1",
            "ipFamilies": ["IPv4"],
            "ports": [{"name": "http", "port": 80, "targetPort": target_port, "protocol": "TCP"}],
        },
    })
}

fn pod(name: &str, ip: &str, ready: bool) -> Arc<Value> {
    Arc::new(json!({
        "metadata": {"name": name, "namespace": "a", "uid": name, "labels": {"app": "web"}},
        "spec": {
            "nodeName": "devcluster",
            "containers": [{"ports": [{"name": "main", "containerPort": 8080, "protocol": "TCP"}]}],
        },
        "status": {
            "phase": "Running",
            "podIP": ip,
            "podIPs": [{"ip": ip}],
            "conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" }}],
        },
    }))
}

fn slices(service: &Value, pods: &[Arc<Value>], slices: &[Arc<Value>]) -> Vec<Request> {
    decide_slices(service, &pods.iter().collect::<Vec<_>>(), &slices.iter().collect::<Vec<_>>())
}

/// The slice of a request as the server keeps it.
fn kept(request: &Request) -> Arc<Value> {
    let mut slice = request.body.clone();
    slice["metadata"]["name"] = "web-x".into();
    slice["metadata"]["uid"] = "slice".into();
    Arc::new(slice)
}

fn states(request: &Request) -> Vec<(&str, [bool; 3])> {
    let state = |e: &Value| ["ready", "serving", "terminating"].map(|c| e["conditions"][c] == true);
    request.body.list("/endpoints").iter().map(|e| (e.text("/addresses/0"), state(e))).collect()
}

#[test]
fn a_service_without_pods_has_one_empty_slice() {
    let service = service(&json!(8080));
    let created = slices(&service, &[], &[]);
    let [created] = created.as_slice() else { panic!("{created:?}") };
    assert_eq!(created.verb, Verb::Create);
    assert_eq!(
        created.body["metadata"]["labels"],
        json!({
            "team": "x",
            "kubernetes.io/service-name": "web",
            "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        })
    );
    assert_eq!(created.body["metadata"]["generateName"], "web-");
    assert!(created.body.is_controlled_by("s"));
    assert!(slices(&service, &[], &[kept(created)]).is_empty());

    // The empty slice is filled, not replaced.
    let filled = slices(&service, &[pod("p", "198.18.0.1", true)], &[kept(created)]);
    let [filled] = filled.as_slice() else { panic!("{filled:?}") };
    assert_eq!((filled.verb, filled.name.as_str()), (Verb::Update, "web-x"));
    assert_eq!(states(filled), [("198.18.0.1", [true, true, false])]);
}

#[test]
fn endpoints_follow_readiness_and_deletion_of_pods() {
    let service = service(&json!("main"));
    let created = slices(&service, &[pod("p", "198.18.0.1", false)], &[]);
    assert_eq!(created[0].body["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(states(&created[0]), [("198.18.0.1", [false, false, false])]);
    let slice = kept(&created[0]);
    assert!(slices(&service, &[pod("p", "198.18.0.1", false)], &[Arc::clone(&slice)]).is_empty());

    let mut going = Value::clone(&pod("p", "198.18.0.1", true));
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
    let updated = slices(&service, &[Arc::new(going)], &[slice]);
    assert_eq!(states(&updated[0]), [("198.18.0.1", [false, true, true])]);
}

#[test]
fn unready_addresses_are_published_on_request() {
    let mut service = service(&json!(8080));
    service["spec"]["publishNotReadyAddresses"] = true.into();
    let created = slices(&service, &[pod("p", "198.18.0.1", false)], &[]);
    assert_eq!(states(&created[0]), [("198.18.0.1", [true, false, false])]);
}

#[test]
fn a_full_slice_is_followed_by_another() {
    let pods: Vec<_> = (0..150).map(|n| pod(&format!("p{n}"), &format!("198.18.1.{n}"), true)).collect();
    let created = slices(&service(&json!(8080)), &pods, &[]);
    let sizes: Vec<_> = created.iter().map(|slice| slice.body.list("/endpoints").len()).collect();
    assert_eq!(sizes, [100, 50]);
}

#[test]
fn a_service_without_selector_is_left_alone() {
    let mut service = service(&json!(8080));
    service["spec"]["selector"] = Value::Null;
    assert!(slices(&service, &[pod("p", "198.18.0.1", true)], &[]).is_empty());
}

#[test]
fn endpoints_separate_ready_from_unready_addresses() {
    let name = Name::new("a", "web");
    let service = service(&json!(8080));
    let pods = [pod("p", "198.18.0.1", true), pod("q", "198.18.0.2", false)];
    let pods: Vec<_> = pods.iter().collect();
    let created = decide_endpoints(&name, Some(&service), &pods, None);
    let subsets = created[0].body.list("/subsets");
    assert_eq!(subsets.len(), 1);
    assert_eq!(subsets[0].text("/addresses/0/ip"), "198.18.0.1");
    assert_eq!(subsets[0].text("/notReadyAddresses/0/ip"), "198.18.0.2");
    assert_eq!(subsets[0]["ports"], json!([{"name": "http", "port": 8080, "protocol": "TCP"}]));
    assert_eq!(created[0].body.label("endpoints.kubernetes.io/managed-by"), Some("endpoint-controller"));
    assert!(decide_endpoints(&name, Some(&service), &pods, Some(&created[0].body)).is_empty());
    let gone = decide_endpoints(&name, None, &pods, Some(&created[0].body));
    assert_eq!(gone[0].verb, Verb::Delete);
}
