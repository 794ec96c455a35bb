//! The files that `mainstay add` writes, compiled and tested as in a project.

#[path = "../../controllers/templates/controller.rs"]
mod auditor;
#[path = "../../controllers/templates/kind/controller.rs"]
mod shop;
#[path = "../../controllers/templates/kind/api.rs"]
mod shop_api;

/// The module in which a project has its kinds.
mod api {
    pub(crate) use super::shop_api as shop;
}

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, CustomResourceExt as _, ResourceExt as _};
use mainstay::client::infer;
use mainstay::manager::Manager;
use mainstay::reconcile::BoxError;
use mainstay::testing::Condition;
use mainstay_devcluster::DevCluster;
use serde_json::json;

use self::api::shop::Shop;

#[test]
fn conditions_are_merged_by_their_type() {
    for definition in [::shop::api::shop::Shop::crd(), Shop::crd()] {
        let status = "/spec/versions/0/schema/openAPIV3Schema/properties/status";
        let definition = json!(definition);
        let conditions = &definition.pointer(status).unwrap()["properties"]["conditions"];
        assert_eq!(conditions["x-kubernetes-list-type"], "map", "{conditions}");
        assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sample_of_an_added_kind_becomes_ready() -> Result<(), BoxError> {
    let cluster = DevCluster::start().await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(cluster.client());
    let definition = definitions.create(&PostParams::default(), &Shop::crd()).await?;
    Condition::is_true("Established").wait(&definitions, &definition.name_any()).await?;
    let connection = infer(Some(cluster.kubeconfig_path()), None).await?;
    let manager = Manager::for_test(connection, |manager| {
        shop::setup(manager)?;
        auditor::setup(manager)
    })?;
    let sample: Shop = serde_saphyr::from_str(include_str!("../../controllers/templates/kind/sample.yaml"))?;
    let objects: Api<Shop> = Api::default_namespaced(cluster.client());
    objects.create(&PostParams::default(), &sample).await?;
    Condition::is_true("Ready").wait(&objects, &sample.name_any()).await?;
    manager.stop().await?;
    cluster.stop().await;
    Ok(())
}
