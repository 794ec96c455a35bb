//! `resource` checks on a real server, with the shipped rights and those of the waiting Pods.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Service;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use mainstay::cache::{Scope, Store};
use mainstay::key::NamespacedName;
use mainstay_api::json_path::{JsonPath, NotOneValue};
use mainstay_api::{Check, WaitDeployment};
use mainstay_controllers::dependency::observation::{Observation, State};
use mainstay_controllers::dependency::resource::{ResourceWatch, Resources};
use mainstay_controllers::settings::PROBE_POLICY;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::wait::{PATIENCE, until_so};
use mainstay_tests::{LocalManager, TestCluster};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// A waiting gate: evaluates the check of one dependency each time the resources notify it.
struct Waiting {
    request: NamespacedName,
    objects: Store<WaitDeployment>,
    resources: Resources,
    enqueued: mpsc::UnboundedReceiver<NamespacedName>,
}

impl Waiting {
    fn observe(&self) -> Option<Observation> {
        let object = self.objects.get(&self.request).ok().flatten()?;
        let plan = object.plan().expect("a plan");
        let mut watched = self.resources.watch(&self.request, &plan);
        let dependency = &plan.dependencies[0];
        let Check::Resource(check) = &dependency.check else { panic!("the dependency is no resource check") };
        Some(watched.observe(dependency, check))
    }

    /// Evaluates the check at each notification, and at no other time.
    async fn until(&mut self, reason: &str) -> Observation {
        let mut seen = None;
        let agreed = async {
            loop {
                let observation = self.observe();
                if observation.as_ref().is_some_and(|observation| observation.reason == reason) {
                    return observation;
                }
                seen = observation;
                self.enqueued.recv().await.expect("a running manager");
            }
        };
        let agreed = timeout(PATIENCE, agreed).await.ok().flatten();
        agreed.unwrap_or_else(|| panic!("waited for {reason}; last {seen:?}"))
    }
}

/// Returns a suspended Job.
pub(super) fn job(name: &str) -> Job {
    let container = json!({"name": "main", "image": "example.invalid/migrate:1"});
    serde_json::from_value(json!({
        "metadata": {"name": name},
        // Suspended, so that no controller runs it: the test writes its status.
        "spec": {"suspend": true,
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}}},
    }))
    .expect("a Job")
}

fn waits_for(resource: &Value) -> WaitDeployment {
    let wait_for = json!({"dependencies": [{"name": "schema", "resource": resource}]});
    let template = json!({"spec": {"serviceAccountName": "web"}});
    wait_deployment("web", &json!({"spec": {"waitFor": wait_for, "template": template}}))
}

/// Starts a manager with a second set of checks, for the test alone.
async fn start(cluster: &TestCluster, allowed: &[&str]) -> (LocalManager, Waiting) {
    let identity = cluster.install_base().await;
    let (sender, enqueued) = mpsc::unbounded_channel();
    let mut waiting = None;
    let allowed: Vec<String> = allowed.iter().map(|kind| (*kind).to_owned()).collect();
    // The manager's own gate checks nothing: it would record in the status that a dependency was ready.
    let changes = json!({"probePolicy": {"resources": []}});
    let manager = LocalManager::start_with(cluster, &identity, &changes, |manager| {
        let objects = manager.store::<WaitDeployment>(Scope::all());
        let resources = Resources::new(&objects, allowed, move |request| drop(sender.send(request)));
        let declare = manager.clone();
        let watch = ResourceWatch::new(
            &resources,
            move |kind| declare.store(Scope::all().of(kind)),
            manager.section(PROBE_POLICY).expect("a section"),
        );
        manager.add(watch).expect("added");
        let request = NamespacedName::namespaced(cluster.namespace(), "web");
        waiting = Some(Waiting { request, objects, resources, enqueued });
    })
    .await;
    manager.leads().await;
    (manager, waiting.expect("registered"))
}

/// Grants a ServiceAccount to get objects of a kind, and waits until that is in force.
pub(super) async fn admit(cluster: &TestCluster, account: &str, resource: &str) {
    cluster.kubectl(&["create", "role", account, "--verb=get", "--resource", resource]).await;
    let subject = format!("--serviceaccount={}:{account}", cluster.namespace());
    cluster.kubectl(&["create", "rolebinding", account, "--role", account, &subject]).await;
    until_so("the ServiceAccount to have the right", async || may_get(cluster, account, resource).await)
        .await;
}

/// Revokes the right that [`admit`] granted, and waits until that is in force.
pub(super) async fn dismiss(cluster: &TestCluster, account: &str, resource: &str) {
    cluster.kubectl(&["delete", "role,rolebinding", account]).await;
    until_so("the ServiceAccount to have lost the right", async || {
        !may_get(cluster, account, resource).await
    })
    .await;
}

async fn may_get(cluster: &TestCluster, account: &str, resource: &str) -> bool {
    let user = format!("--as=system:serviceaccount:{}:{account}", cluster.namespace());
    let answer = cluster.try_kubectl(&["auth", "can-i", "get", resource, &user]).await;
    match answer.stdout.trim_ascii() {
        b"yes" => true,
        b"no" => false,
        _ => panic!("kubectl neither allows nor refuses {user}: {answer:?}"),
    }
}

/// Writes the status of a complete Job, as its controller does.
pub(super) async fn finish(cluster: &TestCluster, name: &str) {
    let done = json!({"status": {"conditions": [
        {"type": "SuccessCriteriaMet", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Complete", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ], "startTime": "2026-01-01T00:00:00Z", "completionTime": "2026-01-01T00:00:01Z"}});
    let jobs = cluster.api::<Job>();
    jobs.patch_status(name, &PatchParams::default(), &Patch::Merge(done)).await.expect("finished");
}

/// Creates the object, and waits until the manager's cache has it.
async fn make(cluster: &TestCluster, waiting: &Waiting, object: &WaitDeployment) {
    let made = cluster.api::<WaitDeployment>().create(&PostParams::default(), object).await.expect("created");
    waiting.objects.caught_up(&made).await.expect("in scope");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_reported_once_the_account_may_read_it() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (manager, mut waiting) = start(&cluster, &["Job.batch"]).await;
    let resource =
        json!({"apiVersion": "batch/v1", "kind": "Job", "name": "migrate", "condition": "Complete"});
    make(&cluster, &waiting, &waits_for(&resource)).await;
    let denied = waiting.until("AccessDenied").await;
    assert_eq!(denied.state, State::Blind);
    assert!(denied.message.contains(&format!("ServiceAccount {}/web", cluster.namespace())), "{denied:?}");

    let jobs = cluster.api::<Job>();
    jobs.create(&PostParams::default(), &job("migrate")).await.expect("created");
    admit(&cluster, "reader", "jobs.batch").await;
    let other = json!({"spec": {"template": {"spec": {"serviceAccountName": "reader"}}}});
    let objects = cluster.api::<WaitDeployment>();
    let other = objects.patch("web", &PatchParams::default(), &Patch::Merge(other)).await.expect("patched");
    waiting.objects.caught_up(&other).await.expect("in scope");
    waiting.until("NotInState").await;

    finish(&cluster, "migrate").await;
    assert_eq!(waiting.until("InState").await.state, State::Ready);
    jobs.delete("migrate", &DeleteParams::background()).await.expect("deleted");
    assert_eq!(
        waiting.until("NotFound").await.state,
        State::NotReady,
        "the status has no record that it was ready"
    );
    manager.stop().await.expect("stopped in order");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_json_path_check_is_ready_once_the_status_has_the_value() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (manager, mut waiting) = start(&cluster, &["Job.batch"]).await;
    admit(&cluster, "web", "jobs.batch").await;
    cluster.api::<Job>().create(&PostParams::default(), &job("migrate")).await.expect("created");
    let resource = json!({
        "apiVersion": "batch/v1", "kind": "Job", "name": "migrate",
        "jsonPath": "{.status.conditions[?(@.type==\"Complete\")].status}", "value": "True",
    });
    make(&cluster, &waiting, &waits_for(&resource)).await;
    waiting.until("NotInState").await;
    finish(&cluster, "migrate").await;
    assert_eq!(waiting.until("InState").await.state, State::Ready);
    manager.stop().await.expect("stopped in order");
}

/// The differential test of the paths: `kubectl wait` and a path find the same values of one object.
#[tokio::test(flavor = "multi_thread")]
async fn a_json_path_finds_the_same_value_as_kubectl() {
    let Some(cluster) = TestCluster::shared().await else { return };
    if !cluster.has_kubectl().await {
        return;
    }
    let service: Service = serde_json::from_value(json!({
        "metadata": {"name": "db", "labels": {"app.kubernetes.io/name": "db"}},
        "spec": {
            "publishNotReadyAddresses": true,
            "ports": [
                {"name": "http", "port": 80, "protocol": "TCP"},
                {"name": "https", "port": 443, "protocol": "TCP"},
                {"name": "dns", "port": 53, "protocol": "UDP"},
            ],
        },
    }))
    .expect("a Service");
    let service = cluster.api::<Service>().create(&PostParams::default(), &service).await.expect("created");
    let object = serde_json::to_vec(&service).expect("JSON");
    let wait = async |path: &str, value: &str| {
        let condition = format!("--for=jsonpath={path}={value}");
        cluster.try_kubectl(&["wait", "service/db", &condition, "--timeout=0s"]).await
    };
    for (path, expected) in [
        ("{.metadata.name}", Ok(Some("db"))),
        ("spec.type", Ok(Some("ClusterIP"))),
        (r"{.metadata.labels.app\.kubernetes\.io/name}", Ok(Some("db"))),
        (r"{.metadata.labels['app\.kubernetes\.io/name']}", Ok(Some("db"))),
        ("{.spec['type']}", Ok(Some("ClusterIP"))),
        ("{.spec.publishNotReadyAddresses}", Ok(Some("true"))),
        ("{.spec.ports[0].port}", Ok(Some("80"))),
        ("{.spec.ports[-1].name}", Ok(Some("dns"))),
        ("{.spec.ports[?(@.name==\"https\")].port}", Ok(Some("443"))),
        ("{.spec.ports[?( @.protocol == 'UDP' )].name }", Ok(Some("dns"))),
        ("{.spec.ports[?(@.port==443)].name}", Ok(Some("https"))),
        ("{.spec.other}", Ok(None)),
        ("{.spec.ports[?(@.name==\"ssh\")].port}", Ok(None)),
        ("{.spec.ports[3].port}", Ok(None)),
        ("{.spec.ports[?(@.protocol==\"TCP\")].port}", Err(NotOneValue::Several)),
        ("{.spec.ports}", Err(NotOneValue::List)),
        ("{.spec}", Err(NotOneValue::Object)),
    ] {
        let found = path.parse::<JsonPath>().expect("a path").find(&object);
        let found = found.map(|found| found.map(|scalar| scalar.text));
        assert_eq!(found.as_ref().map(Option::as_deref), expected.as_ref().copied(), "{path}");
        let other = wait(path, "other").await;
        assert!(!other.status.success(), "{path}: {other:?}");
        if let Ok(Some(value)) = expected {
            let same = wait(path, value).await;
            assert!(same.status.success(), "{path}={value}: {same:?}");
        }
        if expected.is_err() {
            let error = String::from_utf8_lossy(&other.stderr);
            assert!(!error.contains("timed out"), "kubectl should refuse the path too: {path}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kind_that_the_manager_may_not_watch_can_be_granted_by_a_label() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let (manager, mut waiting) = start(&cluster, &["PodTemplate", "Nothing.example.com", "Node"]).await;
    let resource = |version: &str, kind: &str| {
        let (name, condition) = ("any", "Ready");
        json!({"apiVersion": version, "kind": kind, "name": name, "condition": condition})
    };
    admit(&cluster, "web", "podtemplates").await;
    make(&cluster, &waiting, &waits_for(&resource("v1", "PodTemplate"))).await;
    let forbidden = waiting.until("KindForbidden").await;
    assert!(forbidden.message.contains("mainstay.dev/aggregate-to-manager"), "{forbidden:?}");

    cluster
        .aggregate(&json!([{"apiGroups": [""], "resources": ["podtemplates"], "verbs": ["list", "watch"]}]))
        .await;
    waiting.until("NotFound").await;

    let objects = cluster.api::<WaitDeployment>();
    for (resource, reason) in [
        (resource("example.com/v1", "Nothing"), "KindNotServed"),
        (resource("v1", "Node"), "KindNotNamespaced"),
        (resource("v1", "Pod"), "PolicyDenied"),
    ] {
        let other =
            json!({"spec": {"waitFor": {"dependencies": [{"name": "schema", "resource": resource}]}}});
        let other =
            objects.patch("web", &PatchParams::default(), &Patch::Merge(other)).await.expect("patched");
        waiting.objects.caught_up(&other).await.expect("in scope");
        waiting.until(reason).await;
    }
    manager.stop().await.expect("stopped in order");
}
