//! The manager on a Kubernetes API server in this process.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, CustomResourceExt, ResourceExt};
use mainstay::client::infer;
use mainstay::config::Overrides;
use mainstay::prelude::*;
use mainstay::testing::Condition;
use mainstay_devcluster::DevCluster;
use shop::api::shop::Shop;

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_becomes_ready_and_a_rule_refuses_an_image() -> Result<(), BoxError> {
    let cluster = DevCluster::start().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let params = PostParams::default();
    let definition = definitions.create(&params, &Shop::crd()).await?;
    let established = Condition::is_true("Established");
    established.wait(&definitions, &definition.name_any()).await?;

    let connection = infer(Some(cluster.kubeconfig_path()), None).await?;
    let manager = Manager::for_test_of(shop::program().schema(), connection, shop::setup)?;
    let objects: Api<Shop> = Api::default_namespaced(cluster.client());
    let mut sample: Shop = serde_saphyr::from_str(include_str!("../samples/shop.yaml"))?;
    objects.create(&params, &sample).await?;
    let ready = Condition::is_true("Ready");
    ready.wait(&objects, &sample.name_any()).await?;

    sample.metadata.name = Some("other".into());
    sample.spec.image = "nginx:latest".into();
    let refused = objects.create(&params, &sample).await.unwrap_err();
    assert!(refused.to_string().contains("name a version"), "{refused}");
    manager.stop().await?;
    cluster.stop().await;
    Ok(())
}

#[test]
fn the_configuration_file_is_valid() {
    let (text, program) = (include_str!("../config/manager.yaml"), shop::program());
    let loaded = program.schema().parse(text, "manager.yaml", &Overrides::default());
    assert!(loaded.is_ok(), "{loaded:?}");
}
