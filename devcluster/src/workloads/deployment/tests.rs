use serde_json::json;

use super::*;
use crate::workloads::client::Verb;

/// A Deployment with its ReplicaSets, and the part of the cluster that answers their requests.
struct Cluster {
    deployment: Value,
    sets: Vec<Arc<Value>>,
    now: Timestamp,
    /// Number of ReplicaSets created so far.
    created: usize,
}

impl Cluster {
    fn new(replicas: i64, strategy: &Value) -> Self {
        let deployment = json!({
            "metadata": {"name": "web", "namespace": "a", "uid": "d", "generation": 1},
            "spec": {
                "replicas": replicas,
                "strategy": strategy,
                "revisionHistoryLimit": 10,
                "progressDeadlineSeconds": 600,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"image": "1"}},
            },
        });
        Self { deployment, sets: Vec::new(), now: time("04:05"), created: 0 }
    }

    fn decide(&self) -> Decision {
        decide(&self.deployment, &self.sets.iter().collect::<Vec<_>>(), &[], self.now)
    }

    /// Carries out the requests of one pass and returns whether there were any.
    fn pass(&mut self) -> bool {
        let requests = self.decide().requests;
        for request in &requests {
            let mut body = request.body.clone();
            match request.verb {
                Verb::Create => {
                    self.created += 1;
                    body["metadata"]["uid"] = format!("s{}", self.created).into();
                    body["metadata"]["creationTimestamp"] =
                        format!("2026-01-01T00:00:{:02}Z", self.created).into();
                    self.sets.push(Arc::new(body));
                }
                Verb::Delete => self.sets.retain(|set| set.name() != request.name),
                _ if request.resource == resources::deployments() => self.deployment = body,
                _ => {
                    for set in self.sets.iter_mut().filter(|set| set.name() == request.name) {
                        *set = Arc::new(body.clone());
                    }
                }
            }
        }
        !requests.is_empty()
    }

    /// Runs all passes that are due without any Pod changing.
    fn settle(&mut self) {
        assert!((0..20).any(|_| !self.pass()), "the Deployment does not settle: {:?}", self.decide());
    }

    /// Makes as many Pods of each ReplicaSet exist as it wants, ready or not.
    fn run_pods(&mut self, ready: bool) {
        for set in &mut self.sets {
            let replicas = set["spec"]["replicas"].clone();
            let mut changed = Value::clone(set);
            changed["status"] = json!({"replicas": replicas, "observedGeneration": 1});
            if ready {
                changed["status"]["readyReplicas"] = replicas.clone();
                changed["status"]["availableReplicas"] = replicas;
            }
            *set = Arc::new(changed);
        }
    }

    fn change(&mut self, image: &str) {
        self.deployment["spec"]["template"]["spec"]["image"] = image.into();
        self.deployment["metadata"]["generation"] =
            (self.deployment.count("/metadata/generation") + 1).into();
    }

    /// The sizes of all ReplicaSets, oldest first.
    fn sizes(&self) -> Vec<i64> {
        self.sets.iter().map(|set| set.count("/spec/replicas")).collect()
    }

    fn reason(&self, condition: &str) -> (&str, &str, &str) {
        let condition = self.deployment.condition(condition).expect("the condition");
        (condition.text("/status"), condition.text("/reason"), condition.text("/message"))
    }

    fn complete(&mut self) {
        for _ in 0..50 {
            self.settle();
            self.run_pods(true);
        }
        self.settle();
    }
}

fn time(text: &str) -> Timestamp {
    format!("2026-01-02T03:{text}Z").parse().expect("a time")
}

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}})
}

#[test]
fn a_new_deployment_gets_a_set_and_conditions() {
    let mut cluster = Cluster::new(3, &rolling(json!("25%"), json!("25%")));
    assert!(cluster.pass());
    let set = Arc::clone(&cluster.sets[0]);
    let hash = set.label("pod-template-hash").expect("the hash").to_owned();
    assert_eq!(set.name(), format!("web-{hash}"));
    assert_eq!(set["spec"]["selector"]["matchLabels"]["pod-template-hash"], hash);
    assert_eq!(
        set["spec"]["template"]["metadata"]["labels"],
        json!({"app": "web", "pod-template-hash": hash})
    );
    let annotation = |key: &str| set.annotation(&format!("deployment.kubernetes.io/{key}"));
    assert_eq!(
        ["revision", "desired-replicas", "max-replicas"].map(annotation),
        [Some("1"), Some("3"), Some("4")]
    );
    assert_eq!(cluster.deployment.annotation("deployment.kubernetes.io/revision"), Some("1"));
    let message = format!("Created new replica set \"web-{hash}\"");
    assert_eq!(cluster.reason("Progressing"), ("True", "NewReplicaSetCreated", message.as_str()));

    cluster.settle();
    let unavailable =
        ("False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.");
    assert_eq!(cluster.reason("Available"), unavailable);
    assert_eq!(cluster.deployment["status"]["observedGeneration"], 1);
    assert_eq!(cluster.deployment["status"]["unavailableReplicas"], 3);

    cluster.complete();
    let available = ("True", "MinimumReplicasAvailable", "Deployment has minimum availability.");
    assert_eq!(cluster.reason("Available"), available);
    let message = format!("ReplicaSet \"web-{hash}\" has successfully progressed.");
    assert_eq!(cluster.reason("Progressing"), ("True", "NewReplicaSetAvailable", message.as_str()));
}

#[test]
fn a_rolling_update_stays_within_its_limits() {
    let mut cluster = Cluster::new(10, &rolling(json!(3), json!(2)));
    cluster.complete();
    cluster.change("2");
    let mut steps = Vec::new();
    for _ in 0..20 {
        cluster.settle();
        steps.push(cluster.sizes());
        assert!(cluster.sizes().iter().sum::<i64>() <= 13);
        let available: i64 = cluster.sets.iter().map(|set| set.count("/status/availableReplicas")).sum();
        assert!(available >= 8, "{steps:?}");
        cluster.run_pods(true);
    }
    assert_eq!(cluster.sizes(), [0, 10]);
    assert_eq!(steps[0], [8, 5]);
    assert_eq!(cluster.deployment.annotation("deployment.kubernetes.io/revision"), Some("2"));
}

#[test]
fn a_rollback_takes_the_former_set_and_a_new_revision() {
    let mut cluster = Cluster::new(1, &rolling(json!(1), json!(0)));
    cluster.complete();
    cluster.change("2");
    cluster.complete();
    cluster.change("1");
    cluster.complete();
    assert_eq!(cluster.sizes(), [1, 0]);
    let annotation = |key: &str| cluster.sets[0].annotation(&format!("deployment.kubernetes.io/{key}"));
    assert_eq!(["revision", "revision-history"].map(annotation), [Some("3"), Some("1")]);
}

#[test]
fn old_sets_beyond_the_history_limit_are_deleted() {
    let mut cluster = Cluster::new(1, &rolling(json!(1), json!(0)));
    cluster.deployment["spec"]["revisionHistoryLimit"] = 2.into();
    for image in ["1", "2", "3", "4", "5"] {
        cluster.change(image);
        cluster.complete();
    }
    let revisions: Vec<_> = cluster.sets.iter().map(|set| revision::of(set)).collect();
    assert_eq!(revisions, [Some(3), Some(4), Some(5)]);
}

#[test]
fn recreation_waits_for_old_pods_to_end() {
    let mut cluster = Cluster::new(2, &json!({"type": "Recreate"}));
    cluster.complete();
    cluster.change("2");
    cluster.settle();
    assert_eq!(cluster.sizes(), [0], "the old Pods are still counted");
    cluster.run_pods(true);
    let old = Arc::new(json!({"metadata": {"ownerReferences": [{"uid": "s1", "controller": true}]}}));
    let sets: Vec<_> = cluster.sets.iter().collect();
    let creates = |decision: Decision| decision.requests.iter().any(|request| request.verb == Verb::Create);
    assert!(!creates(decide(&cluster.deployment, &sets, &[&old], cluster.now)), "an old Pod runs");
    cluster.settle();
    assert_eq!(cluster.sizes(), [0, 2]);
}

#[test]
fn a_paused_deployment_scales_but_rolls_nothing_out() {
    let mut cluster = Cluster::new(4, &rolling(json!(1), json!(1)));
    cluster.complete();
    cluster.deployment["spec"]["paused"] = true.into();
    cluster.change("2");
    cluster.deployment["spec"]["replicas"] = 6.into();
    cluster.complete();
    assert_eq!(cluster.sizes(), [6]);
    assert_eq!(cluster.reason("Progressing"), ("Unknown", "DeploymentPaused", "Deployment is paused"));
    cluster.deployment["spec"]["paused"] = false.into();
    cluster.complete();
    assert_eq!(cluster.sizes(), [0, 6]);
}

#[test]
fn scaling_in_the_middle_of_a_rollout_is_proportional() {
    let mut cluster = Cluster::new(10, &rolling(json!(3), json!(2)));
    cluster.complete();
    cluster.change("2");
    cluster.settle();
    assert_eq!(cluster.sizes(), [8, 5]);
    cluster.deployment["spec"]["replicas"] = 20.into();
    assert!(cluster.pass());
    assert_eq!(cluster.sizes().iter().sum::<i64>(), 23);
    assert_eq!(cluster.sizes(), [14, 9]);
}

#[test]
fn a_stuck_rollout_passes_its_deadline() {
    let mut cluster = Cluster::new(1, &rolling(json!(1), json!(0)));
    cluster.settle();
    cluster.run_pods(false);
    cluster.settle();
    assert_eq!(cluster.reason("Progressing").1, "ReplicaSetUpdated");
    assert_eq!(cluster.decide().again_at, Some(time("14:06")));
    cluster.now = time("14:06");
    cluster.settle();
    let (status, reason, message) = cluster.reason("Progressing");
    assert_eq!((status, reason), ("False", "ProgressDeadlineExceeded"));
    assert!(message.ends_with("\" has timed out progressing."), "{message}");
    assert_eq!(cluster.decide().again_at, None);

    cluster.run_pods(true);
    cluster.settle();
    assert_eq!(cluster.reason("Progressing").1, "NewReplicaSetAvailable");
}

#[test]
fn annotations_and_min_ready_seconds_reach_the_set() {
    let mut cluster = Cluster::new(1, &rolling(json!(1), json!(0)));
    cluster.complete();
    cluster.deployment["metadata"]["annotations"]["team"] = "x".into();
    cluster.deployment["spec"]["minReadySeconds"] = 5.into();
    cluster.settle();
    assert_eq!(cluster.sets[0].annotation("team"), Some("x"));
    assert_eq!(cluster.sets[0]["spec"]["minReadySeconds"], 5);
}

#[test]
fn a_name_that_is_taken_leads_to_another_hash() {
    let mut cluster = Cluster::new(1, &rolling(json!(1), json!(0)));
    let create = cluster.decide().requests.swap_remove(0);
    let taken = json!({"metadata": {"name": create.name, "namespace": "a", "uid": "x"}});
    cluster.sets.push(Arc::new(taken));
    cluster.settle();
    assert_eq!(cluster.deployment["status"]["collisionCount"], 1);
    assert_eq!(cluster.sets.len(), 2);
    assert_ne!(cluster.sets[1].name(), create.name);
}
