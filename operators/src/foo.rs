//! Kubernetes' [sample-controller]: each Foo has a Deployment of a name that it chooses.
//!
//! A Deployment that belongs to another object is left alone, and an Event of the Foo reports it. Unlike the
//! original, a change of any field that the Foo sets is undone, not only one of the replicas.
//!
//! [sample-controller]: https://github.com/kubernetes/sample-controller

#![expect(clippy::disallowed_names, reason = "the kind has this name")]

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::{CustomResource, CustomResourceExt as _, Resource as _, ResourceExt as _};
use mainstay::client::controller_of;
use mainstay::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The Deployment that a Foo wants.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "samplecontroller.k8s.io",
    version = "v1alpha1",
    kind = "Foo",
    namespaced,
    status = "FooStatus",
    annotation("api-approved.kubernetes.io", "unapproved, for a sample only"),
    printcolumn(name = "Available", type_ = "integer", json_path = ".status.availableReplicas")
)]
#[serde(rename_all = "camelCase")]
pub struct FooSpec {
    /// The name of the Deployment.
    #[schemars(length(min = 1))]
    pub deployment_name: String,
    /// The number of Pods. Without it, the Foo does not scale the Deployment.
    #[schemars(range(min = 1, max = 10))]
    pub replicas: Option<i32>,
}

/// The state of the Deployment of a Foo.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FooStatus {
    /// The number of Pods that are available.
    pub available_replicas: i32,
}

struct Foos {
    deployments: Store<Deployment>,
}

// === impl Foos ===

impl ObjectReconciler<Foo> for Foos {
    async fn reconcile(&self, foo: Arc<Foo>, cx: &Context) -> Outcome {
        let name = NamespacedName::new(foo.metadata.namespace.as_deref(), &foo.spec.deployment_name);
        let found = self.deployments.get(&name)?;
        if found.as_ref().is_some_and(|found| !is_controlled_by(found, &foo)) {
            let note = format!("Deployment {name} exists and does not belong to this Foo");
            cx.events().event(&foo.object_ref(&()), EventType::Warning, "ErrResourceExists", "Sync", &note);
            return Err(note.into());
        }
        if cx.apply(&*foo, &deployment_of(&foo)).await?.is_change() {
            let note = format!("Deployment {name} is as this Foo wants it");
            cx.events().event(&foo.object_ref(&()), EventType::Normal, "Synced", "Sync", &note);
        }
        let available = found.and_then(|found| found.status.as_ref()?.available_replicas);
        let status = FooStatus { available_replicas: available.unwrap_or(0) };
        cx.apply_status(&*foo, &status).await?;
        Ok(Action::Done)
    }
}

fn is_controlled_by(deployment: &Deployment, foo: &Foo) -> bool {
    controller_of(&deployment.metadata).is_some_and(|owner| Some(&owner.uid) == foo.metadata.uid.as_ref())
}

fn deployment_of(foo: &Foo) -> Deployment {
    let labels = BTreeMap::from([("app".into(), "nginx".into()), ("controller".into(), foo.name_any())]);
    let container =
        Container { name: "nginx".into(), image: Some("nginx:latest".into()), ..Container::default() };
    Deployment {
        metadata: ObjectMeta { name: Some(foo.spec.deployment_name.clone()), ..ObjectMeta::default() },
        spec: DeploymentSpec {
            replicas: foo.spec.replicas,
            selector: LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(PodSpec { containers: vec![container], ..PodSpec::default() }),
            },
            ..DeploymentSpec::default()
        },
        ..Deployment::default()
    }
}

/// Registers the controller of Foos with a manager.
///
/// # Errors
/// Fails if a controller of this name is registered.
pub fn setup(manager: &Manager) -> Result<(), BoxError> {
    let foos = manager.store(Scope::all());
    let deployments = manager.store(Scope::all());
    let controller = Controller::new("foo").reconciles(&foos).owns(&deployments).writes_status::<Foo>();
    manager.register(controller.reconciler(without_finalizer(&foos, Foos { deployments })))?;
    Ok(())
}

/// Returns the program of this operator.
pub fn program() -> Program {
    Program::new("sample-controller", env!("CARGO_PKG_VERSION"), "Keeps a Deployment for each Foo")
        .crds([Foo::crd()])
        .controllers(["foo"])
        .setup(setup)
}
