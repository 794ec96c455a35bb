//! A Deployment denied by an admission policy has a reason of its own and is retried, since the policy may
//! change.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use mainstay_api::WaitDeployment;
use mainstay_tests::fixtures::wait_deployment;
use mainstay_tests::process::get;
use mainstay_tests::wait::until_so;
use mainstay_tests::{LocalManager, TestCluster, wait};
use serde_json::{Value, json};

/// An admission policy that denies all Deployments of the namespace.
struct Freeze {
    name: String,
    policies: Api<ValidatingAdmissionPolicy>,
    bindings: Api<ValidatingAdmissionPolicyBinding>,
}

// === impl Freeze ===

impl Freeze {
    /// Creates the policy without a `reason`, so that the server answers 422 as for an invalid object.
    async fn begin(cluster: &TestCluster) -> Self {
        let name = format!("freeze-{}", cluster.namespace());
        let only_here = json!({"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace()}});
        let rule = json!({
            "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments"],
            "operations": ["CREATE", "UPDATE"],
        });
        let policy = json!({"metadata": {"name": name}, "spec": {
            "matchConstraints": {"resourceRules": [rule], "namespaceSelector": only_here},
            "validations": [{"expression": "false", "message": "change freeze"}],
        }});
        let binding = json!({
            "metadata": {"name": name}, "spec": {"policyName": name, "validationActions": ["Deny"]},
        });
        let freeze =
            Self { name, policies: Api::all(cluster.client()), bindings: Api::all(cluster.client()) };
        let policy = serde_json::from_value(policy).expect("a policy");
        freeze.policies.create(&PostParams::default(), &policy).await.expect("created");
        let binding = serde_json::from_value(binding).expect("a binding");
        freeze.bindings.create(&PostParams::default(), &binding).await.expect("created");
        until_so("the policy to be in force", async || denies(cluster).await).await;
        freeze
    }

    async fn end(self, cluster: &TestCluster) {
        self.bindings.delete(&self.name, &DeleteParams::default()).await.expect("deleted");
        self.policies.delete(&self.name, &DeleteParams::default()).await.expect("deleted");
        until_so("the policy to be gone", async || !denies(cluster).await).await;
    }
}

async fn denies(cluster: &TestCluster) -> bool {
    let labels = json!({"app": "trial"});
    let trial = json!({"metadata": {"name": "trial"}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
    }});
    let trial: Deployment = serde_json::from_value(trial).expect("a Deployment");
    let params = PostParams { dry_run: true, ..PostParams::default() };
    match cluster.api().create(&params, &trial).await {
        Ok(_) => false,
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 422, "{status:?}");
            true
        }
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_by_a_policy_has_its_own_reason_and_is_retried() {
    let Some(cluster) = TestCluster::shared().await else { return };
    let identity = cluster.install_base().await;
    let freeze = Freeze::begin(&cluster).await;
    let changes = json!({"inspect": {"bindAddress": "127.0.0.1:0"}});
    let manager = LocalManager::start(&cluster, &identity, &changes).await;
    let objects = cluster.api::<WaitDeployment>();
    let object = wait_deployment("web", &json!({"spec": {"replicas": 0}}));
    objects.create(&PostParams::default(), &object).await.expect("created");
    let web = wait::until(&objects, "web", "Ready to be False", |web| {
        web.condition("Ready").is_some_and(|ready| ready.status == "False")
    })
    .await;
    for type_ in ["Ready", "Stalled", "TemplateAccepted"] {
        let found = web.condition(type_).expect(type_);
        assert_eq!(found.reason.as_deref(), Some("AdmissionDenied"), "{found:?}");
    }
    let message = web.condition("Ready").and_then(|ready| ready.message.as_deref()).unwrap_or_default();
    assert!(message.contains("denied request: change freeze"), "{message}");

    let inspect = manager.manager.inspect_addr().expect("an address");
    until_so("its key to wait for the next try", async || {
        let (_, page) = get(inspect, "/debug/controllers/wait-deployment/queue").await;
        let page: Value = serde_json::from_str(&page).expect("JSON");
        page["keys"].as_array().expect("a list").iter().any(|key| {
            assert_ne!(key["state"], "parked", "never retried: {key}");
            key["state"] == "backoff"
        })
    })
    .await;

    // The next retry, due within a minute, is requested now.
    freeze.end(&cluster).await;
    let again = Patch::Merge(json!({"metadata": {"annotations": {"mainstay.dev/reconcile-at": "now"}}}));
    objects.patch("web", &PatchParams::default(), &again).await.expect("annotated");
    wait::until(&cluster.api::<Deployment>(), "web", "its Deployment", |_| true).await;
    manager.stop().await.expect("stopped in order");
}
