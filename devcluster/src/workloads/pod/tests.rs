use super::*;

fn time(text: &str) -> Timestamp {
    format!("2026-01-02T03:{text}Z").parse().expect("a time")
}

fn pod(annotation: &str, value: &str) -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "a", "uid": "u", "annotations": {annotation: value}},
        "spec": {"nodeName": NODE, "containers": [{"name": "main", "image": "i"}]},
        "status": {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]},
    })
}

/// The Pod after the writes of a pass, and the time of the next one.
fn pass(pod: &Value, at: &str) -> (Value, Option<Timestamp>) {
    let decision = decide(pod, address(0), true, time(at));
    let after = decision.requests.last().map_or_else(|| pod.clone(), |request| request.body.clone());
    (after, decision.again_at)
}

#[test]
fn a_pod_is_bound_to_the_node_unless_it_waits() {
    let mut pod = pod("x", "y");
    pod["spec"]["nodeName"] = Value::Null;
    let decision = decide(&pod, address(0), true, time("04:05"));
    assert_eq!(decision.requests[0].subresource, "binding");
    assert_eq!(decision.requests[0].body["target"]["name"], NODE);
    assert!(decide(&pod, address(0), false, time("04:05")).requests.is_empty(), "there is no Node");
    pod["spec"]["schedulingGates"] = json!([{"name": "example.com/wait"}]);
    assert!(decide(&pod, address(0), true, time("04:05")).requests.is_empty(), "it has a gate");
}

#[test]
fn a_pod_runs_and_is_ready_at_once() {
    let (running, again) = pass(&pod("x", "y"), "04:05");
    assert_eq!((running.text("/status/phase"), again), ("Running", None));
    assert!(running.has_condition("Ready") && running.has_condition("PodScheduled"));
    assert_eq!(running.text("/status/podIP"), "198.18.0.1");
    assert_eq!(running.list("/status/containerStatuses").len(), 1);
    assert!(
        decide(&running, address(1), true, time("04:06")).requests.is_empty(),
        "nothing changes after that"
    );
}

#[test]
fn a_pod_that_is_never_ready_stays_pending() {
    let pod = pod(NEVER_READY, "true");
    assert!(decide(&pod, address(0), true, time("04:05")).requests.is_empty());
}

#[test]
fn readiness_can_be_delayed() {
    let (running, again) = pass(&pod(READY_AFTER, "5s"), "04:05");
    assert!(!running.has_condition("Ready"));
    assert_eq!(
        running.condition("Ready").map(|ready| ready.text("/message")),
        Some("containers with unready status: [main]")
    );
    assert_eq!(again, Some(time("04:10")));
    let (ready, again) = pass(&running, "04:10");
    assert!(ready.has_condition("Ready") && again.is_none());
    assert_eq!(
        ready.condition("Ready").map(|ready| ready.text("/lastTransitionTime")),
        Some("2026-01-02T03:04:10Z")
    );
}

#[test]
fn a_crash_loop_restarts_with_growing_delays() {
    let (first, again) = pass(&pod(CRASH_LOOP, "true"), "04:05");
    let state = |pod: &Value| {
        let status = &pod["status"]["containerStatuses"][0];
        (status.count("/restartCount"), status.text("/state/waiting/message").to_owned())
    };
    assert_eq!(state(&first), (0, "back-off 10s restarting failed container=main pod=p_a(u)".to_owned()));
    assert_eq!(again, Some(time("04:15")));
    let (second, again) = pass(&first, "04:15");
    assert_eq!(state(&second), (1, "back-off 20s restarting failed container=main pod=p_a(u)".to_owned()));
    assert_eq!(again, Some(time("04:35")));
    assert!(!second.has_condition("Ready"));
}

#[test]
fn a_pod_of_a_job_succeeds() {
    let mut pod = pod("x", "y");
    pod["metadata"]["ownerReferences"] = json!([{"kind": "Job", "controller": true}]);
    let (running, _) = pass(&pod, "04:05");
    let (ended, _) = pass(&running, "04:05");
    assert_eq!(ended.text("/status/phase"), "Succeeded");
    assert_eq!(ended.condition("Ready").map(|ready| ready.text("/reason")), Some("PodCompleted"));
    assert!(decide(&ended, address(0), true, time("04:06")).requests.is_empty());
}

#[test]
fn a_deleted_pod_goes_when_its_containers_have_stopped() {
    let mut pod = pod(STOP_AFTER, "5");
    pod["metadata"]["deletionGracePeriodSeconds"] = 30.into();
    pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:35Z".into();
    let decision = decide(&pod, address(0), true, time("04:05"));
    assert_eq!((decision.requests.len(), decision.again_at), (0, Some(time("04:10"))));
    let decision = decide(&pod, address(0), true, time("04:10"));
    assert_eq!(decision.requests[0].body["gracePeriodSeconds"], 0);
    // Only a finalizer can keep it after that.
    pod["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    assert!(decide(&pod, address(0), true, time("04:10")).requests.is_empty());
}
