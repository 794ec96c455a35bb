//! Checks after the faults: convergence, rest, resources, and writes outside of a term.

use std::collections::{BTreeMap, HashMap};
use std::slice::from_ref;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use kube::ResourceExt as _;
use kube::api::ListParams;
use mainstay_api::WaitDeployment;
use mainstay_tests::audit::{outside_of_terms, terms};
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::process::{is_leading, memory, sample};
use mainstay_tests::report::{figure, figure_of_time};
use mainstay_tests::{ManagerProcess, TestCluster};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

/// Longest time until all objects converge: the cluster's own controllers back off up to a minute.
pub(super) const PATIENCE: Duration = Duration::from_mins(3);
const PERIOD: Duration = Duration::from_millis(500);
/// Time without a write that counts as rest.
const REST: Duration = Duration::from_secs(10);
/// Number of samples of a process. The minimum counts, because a probe in flight has a task and a descriptor.
const SAMPLES: usize = 10;

/// Resources of a manager at rest.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Resources {
    pub(super) megabytes: f64,
    pub(super) descriptors: f64,
    /// Number of alive tasks by tokio runtime.
    pub(super) tasks: BTreeMap<String, f64>,
}

/// Waits until every object is ready with the Deployment of its spec, and every Deployment of a deleted
/// object is deleted.
pub(super) async fn until_converged(cluster: &TestCluster, figure: &str) {
    let began = Instant::now();
    loop {
        let unfinished = match list(cluster).await {
            Ok((objects, deployments)) => unfinished(&objects, &deployments),
            Err(error) => vec![error.to_string()],
        };
        if unfinished.is_empty() {
            return figure_of_time(figure, began.elapsed());
        }
        assert!(began.elapsed() < PATIENCE, "not converged after {PATIENCE:?}: {unfinished:#?}");
        sleep(PERIOD).await;
    }
}

async fn list(cluster: &TestCluster) -> kube::Result<(Vec<WaitDeployment>, Vec<Deployment>)> {
    let all = ListParams::default();
    let objects = cluster.api::<WaitDeployment>().list(&all).await?;
    Ok((objects.items, cluster.api::<Deployment>().list(&all).await?.items))
}

/// Returns one line for each object that has not converged.
fn unfinished(objects: &[WaitDeployment], deployments: &[Deployment]) -> Vec<String> {
    let by_name: HashMap<String, &Deployment> =
        deployments.iter().map(|deployment| (deployment.name_any(), deployment)).collect();
    let wrong = objects.iter().filter_map(|object| {
        let wrong = wrong_with(object, by_name.get(&object.name_any()).copied())?;
        let (name, spec, status) = (object.name_any(), json!(object.spec.wait_for), json!(object.status));
        Some(format!("{name}: {wrong}: waits for {spec}: {status}"))
    });
    let names: Vec<String> = objects.iter().map(WaitDeployment::name_any).collect();
    let left = deployments.iter().filter(|deployment| {
        // A deletion with the policy Orphan leaves a Deployment without owners.
        !names.contains(&deployment.name_any()) && !deployment.owner_references().is_empty()
    });
    let left = left.map(|deployment| format!("Deployment {} has no WaitDeployment", deployment.name_any()));
    wrong.chain(left).collect()
}

fn wrong_with(object: &WaitDeployment, deployment: Option<&Deployment>) -> Option<&'static str> {
    if object.metadata.deletion_timestamp.is_some() {
        return Some("it is being deleted");
    }
    let Some(deployment) = deployment else { return Some("it has no Deployment") };
    let owned =
        deployment.owner_references().iter().any(|owner| Some(&owner.uid) == object.metadata.uid.as_ref());
    if !owned {
        return Some("its Deployment has another owner");
    }
    let (wanted, made) = (json!(object.spec), json!(deployment.spec));
    let same = ["/replicas", "/template/spec/containers/0/image"]
        .iter()
        .all(|field| wanted.pointer(field) == made.pointer(field));
    if !same {
        return Some("its Deployment has another spec");
    }
    let mirrored = object.status.as_ref().and_then(|status| status.deployment.as_ref());
    if mirrored.map(|mirrored| &mirrored.uid) != deployment.metadata.uid.as_ref() {
        return Some("its status is of another Deployment");
    }
    let ready = ["Ready", "DependenciesReady", "Available"].iter().all(|type_| {
        object.condition(type_).is_some_and(|condition| {
            condition.status == "True" && condition.observed_generation == object.metadata.generation
        })
    });
    (!ready).then_some("it is not ready")
}

/// Waits until the managers write only their Lease.
pub(super) async fn until_at_rest(cluster: &TestCluster) {
    let began = Instant::now();
    let mut tail = cluster.tail();
    tail.read();
    loop {
        sleep(REST).await;
        let written: Vec<_> = tail.read().into_iter().filter(|write| !write.is_of_lease()).collect();
        if written.is_empty() {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "still written after {PATIENCE:?}: {written:#?}");
    }
}

/// Returns the resources of a process, and whether it leads.
pub(super) async fn resources(process: &ManagerProcess) -> (Resources, bool) {
    let mut least = Resources { megabytes: f64::MAX, descriptors: f64::MAX, tasks: BTreeMap::new() };
    let mut leads = false;
    for _ in 0..SAMPLES {
        let text = process.metrics_text().await;
        let megabytes = memory(process.id(), "VmRSS").expect("a running process");
        let tasks = text.lines().filter(|line| line.starts_with("mainstay_tokio_alive_tasks{"));
        let descriptors = sample(&text, "process_open_fds").expect("a count of descriptors");
        least.megabytes = least.megabytes.min(megabytes);
        least.descriptors = least.descriptors.min(descriptors);
        for (runtime, count) in tasks.filter_map(|line| line.rsplit_once(' ')) {
            let count: f64 = count.parse().expect("a number of tasks");
            let known = least.tasks.entry(runtime.to_owned()).or_insert(count);
            *known = known.min(count);
        }
        leads = is_leading(&text);
        sleep(PERIOD).await;
    }
    (least, leads)
}

/// Asserts that a log contains no panic.
pub(super) fn no_panic(log: &[Value]) {
    let panics: Vec<_> = log.iter().filter(|line| line.to_string().contains("panic")).collect();
    assert!(panics.is_empty(), "{panics:#?}");
}

/// Asserts by the audit log that every write arrived within a term of its writer. Writes of the Lease and of
/// Events do not count.
pub(super) fn no_late_write(cluster: &TestCluster) {
    let writes = cluster.writes();
    let (late, terms) = (outside_of_terms(&writes), terms(&writes));
    let work = writes.iter().filter(|write| write.is_work()).count();
    for (name, count) in [("writes", work), ("terms", terms.len()), ("late_writes", late.len())] {
        figure(&format!("chaos.{name}"), f64::from(u32::try_from(count).expect("few")), "count");
    }
    assert!(late.is_empty(), "written without the Lease: {late:#?}; terms: {terms:#?}");
}

// === tests ===

#[test]
fn every_kind_of_unfinished_object_is_reported() {
    let conditions = ["Ready", "DependenciesReady", "Available"].map(|type_| {
        json!({
            "type": type_, "status": "True", "observedGeneration": 2, "reason": "", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    });
    let object: WaitDeployment = wait_deployment(
        "web",
        &json!({
            "metadata": {"uid": "a", "generation": 2},
            "spec": {"replicas": 1},
            "status": {"deployment": {"name": "web", "uid": "b"}, "conditions": conditions},
        }),
    );
    let owner = json!({
        "apiVersion": "apps.mainstay.dev/v1alpha1", "kind": "WaitDeployment", "name": "web", "uid": "a",
    });
    let made = json!({
        "metadata": {"name": "web", "uid": "b", "ownerReferences": [owner]},
        "spec": {"replicas": 1, "selector": {}, "template": object.spec.template},
    });
    let deployment = |pointer: &str, value: Value| {
        let mut changed = made.clone();
        *changed.pointer_mut(pointer).expect("a field") = value;
        serde_json::from_value::<Deployment>(changed).expect("a Deployment")
    };
    let good = deployment("/spec/replicas", json!(1));
    assert_eq!(unfinished(from_ref(&object), from_ref(&good)), Vec::<String>::new());
    for other in [
        deployment("/metadata/uid", json!("c")),
        deployment("/metadata/ownerReferences/0/uid", json!("c")),
        deployment("/spec/replicas", json!(2)),
        deployment("/spec/template/spec/containers/0/image", json!("c")),
        deployment("/metadata/name", json!("other")),
    ] {
        assert_ne!(unfinished(from_ref(&object), &[other]), Vec::<String>::new());
    }
    let mut edited = object;
    edited.metadata.generation = Some(3);
    assert_eq!(unfinished(from_ref(&edited), from_ref(&good)).len(), 1);
    assert_eq!(unfinished(&[], &[good]), ["Deployment web has no WaitDeployment"]);
}
