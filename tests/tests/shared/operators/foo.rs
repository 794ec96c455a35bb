//! The scenarios of Kubernetes' sample-controller.

use k8s_openapi::api::apps::v1::Deployment;
use mainstay_operators::foo::{self, Foo};

use super::*;

const SAMPLE: &str = include_str!("../../../../operators/samples/foo/foo.yaml");

fn foo(name: &str, deployment: &str, replicas: i32) -> Value {
    let spec = json!({"deploymentName": deployment, "replicas": replicas});
    json!({"metadata": {"name": name}, "spec": spec})
}

fn available(count: i32) -> impl Fn(&Value) -> bool {
    move |object| object["status"]["availableReplicas"] == count
}

async fn scenarios(cluster: &TestCluster) -> Result<(), BoxError> {
    let (foos, deployments) = (Objects::<Foo>::of(cluster), Objects::<Deployment>::of(cluster));

    // The Deployment is created, and the status counts its Pods.
    let sample = foos.create(serde_saphyr::from_str(SAMPLE)?).await?;
    foos.until("example-foo", "has one Pod", available(1)).await?;
    let deployment = json!(deployments.0.get("example-foo").await?);
    let owner = &deployment["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["controller"]), (&json!("Foo"), &json!(true)));
    assert_eq!(owner["uid"], json!(sample.metadata.uid));
    assert_eq!(deployment["spec"]["replicas"], 1);
    recorded(cluster, "example-foo", "Synced").await?;

    // It follows the replicas.
    foos.patch("example-foo", json!({"spec": {"replicas": 3}})).await?;
    foos.until("example-foo", "has three Pods", available(3)).await?;
    assert_eq!(json!(deployments.0.get("example-foo").await?)["spec"]["replicas"], 3);

    // A change by hand is undone.
    let containers = json!([{"name": "nginx", "image": "example.invalid/other:1"}]);
    let by_hand = json!({"spec": {"replicas": 5, "template": {"spec": {"containers": containers}}}});
    let changed = deployments.patch("example-foo", by_hand).await?;
    let restored = |deployment: &Value| {
        let image = &deployment["spec"]["template"]["spec"]["containers"][0]["image"];
        deployment["spec"]["replicas"] == 3 && image == "nginx:latest"
    };
    let restored = deployments.until("example-foo", "is restored", restored).await?;
    assert!(restored["metadata"]["generation"].as_i64() > changed.metadata.generation);

    // A Deployment of another owner is left alone until it has gone.
    let labels = json!({"app": "taken"});
    let theirs = deployments.create(json!({
        "metadata": {"name": "taken"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "example.invalid/main:1"}]},
            },
        },
    }));
    let theirs = theirs.await?;
    foos.create(foo("second", "taken", 1)).await?;
    recorded(cluster, "second", "ErrResourceExists").await?;
    let still = deployments.0.get("taken").await?;
    assert_eq!((&still.metadata.uid, still.spec), (&theirs.metadata.uid, theirs.spec));
    assert_eq!(still.metadata.owner_references, None);
    assert!(foos.0.get("second").await?.status.is_none());
    deployments.delete("taken").await?;
    foos.until("second", "has a Deployment of its own", available(1)).await?;

    // The schema has the limits of the original.
    let many = foos.refused(foo("many", "many", 11)).await;
    assert!(many.contains("spec.replicas"), "{many}");
    let nameless = foos.refused(foo("nameless", "", 1)).await;
    assert!(nameless.contains("spec.deploymentName"), "{nameless}");

    // The Deployment is deleted with its Foo.
    foos.delete("example-foo").await?;
    deployments.gone("example-foo").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foo_keeps_its_deployment_and_leaves_others_alone() {
    let Some(cluster) = TestCluster::shared().await else { return };
    run::<Foo>(&cluster, &foo::program(), foo::setup, async || Box::pin(scenarios(&cluster)).await).await;
    cluster.stop().await;
}
