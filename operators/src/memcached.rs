//! operator-sdk's [Memcached]: a Deployment of memcached, with conditions, Events and a finalizer.
//!
//! The image is in the section `memcached` of the configuration file, where the original has an environment
//! variable. Unlike in the original, `Available` follows the Pods, and each Memcached selects its own Pods.
//!
//! [Memcached]: https://sdk.operatorframework.io/docs/building-operators/golang/tutorial/

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec};
use k8s_openapi::api::core::v1::{
    Capabilities, Container, ContainerPort, PodSecurityContext, PodSpec, PodTemplateSpec, SeccompProfile,
    SecurityContext,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, ObjectMeta};
use kube::{CustomResource, CustomResourceExt as _, Resource as _, ResourceExt as _};
use mainstay::config::Section;
use mainstay::prelude::*;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::conditions::{Wanted, conditions};

const FINALIZER: &str = "cache.example.com/finalizer";

/// The memcached that a Memcached wants.
#[derive(CustomResource, Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "cache.example.com",
    version = "v1alpha1",
    kind = "Memcached",
    plural = "memcacheds",
    namespaced,
    status = "MemcachedStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct MemcachedSpec {
    /// The number of Pods.
    #[schemars(range(min = 1, max = 3))]
    pub size: i32,
    /// The port of each Pod.
    #[schemars(range(min = 1, max = 65535))]
    pub container_port: i32,
}

/// The state of a Memcached.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MemcachedStatus {
    /// `Available`: all Pods are. `Degraded`: it is being deleted.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The Pods of each Memcached.
#[derive(Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct MemcachedSettings {
    /// The image of memcached.
    pub image: String,
}

struct Memcacheds {
    deployments: Store<Deployment>,
    image: String,
}

// === impl MemcachedSettings ===

impl Default for MemcachedSettings {
    fn default() -> Self {
        Self { image: "memcached:1.6-alpine".into() }
    }
}

impl Section for MemcachedSettings {
    const RESTART: &'static [&'static str] = &["image"];
}

// === impl Memcacheds ===

impl ObjectReconciler<Memcached> for Memcacheds {
    async fn reconcile(&self, memcached: Arc<Memcached>, cx: &Context) -> Outcome {
        let applied = cx.apply(&*memcached, &deployment_of(&memcached, &self.image)).await;
        let name = NamespacedName::of(&*memcached);
        let (size, deployment) = (memcached.spec.size, self.deployments.get(&name)?);
        let available = deployment.and_then(|found| found.status.as_ref()?.available_replicas).unwrap_or(0);
        let message = format!("{available} of {size} Pods are available");
        let available = match &applied {
            Err(error) => ("Available", false, "Resizing", error.to_string()),
            Ok(_) if available < size => ("Available", false, "Resizing", message),
            Ok(_) => ("Available", true, "Reconciling", message),
        };
        let degraded = ("Degraded", false, "Reconciling", "it is not being deleted".into());
        write_status(cx, &memcached, [available, degraded]).await?;
        if let Effect::Created(_) = applied? {
            let note = format!("Deployment {name} runs it");
            cx.events().event(&memcached.object_ref(&()), EventType::Normal, "Created", "Create", &note);
        }
        Ok(Action::Done)
    }

    async fn cleanup(&self, memcached: Arc<Memcached>, cx: &Context) -> Outcome {
        let note = format!("Memcached {} is being deleted", memcached.name_any());
        cx.events().event(&memcached.object_ref(&()), EventType::Warning, "Deleting", "Delete", &note);
        let available = ("Available", false, "Finalizing", note.clone());
        write_status(cx, &memcached, [available, ("Degraded", true, "Finalizing", note)]).await?;
        Ok(Action::Done)
    }
}

async fn write_status(
    cx: &Context,
    memcached: &Memcached,
    wanted: [Wanted<'_>; 2],
) -> Result<(), ReconcileError> {
    let known = memcached.status.as_ref().map_or(&[][..], |status| &status.conditions);
    let conditions = conditions(&memcached.metadata, known, wanted, Timestamp::now());
    cx.apply_status(memcached, &MemcachedStatus { conditions }).await?;
    Ok(())
}

fn deployment_of(memcached: &Memcached, image: &str) -> Deployment {
    let labels = BTreeMap::from([
        ("app.kubernetes.io/name".into(), "memcached".into()),
        ("app.kubernetes.io/instance".into(), memcached.name_any()),
        ("app.kubernetes.io/managed-by".into(), "memcached-operator".into()),
    ]);
    let command = ["memcached", "--memory-limit=64", "--extended=modern", "-v"].map(String::from);
    let port = memcached.spec.container_port;
    let container = Container {
        name: "memcached".into(),
        image: Some(image.into()),
        command: Some([&command[..], &[format!("--port={port}")]].concat()),
        ports: Some(vec![ContainerPort { container_port: port, ..ContainerPort::default() }]),
        security_context: Some(SecurityContext {
            run_as_user: Some(1001),
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".into()]), ..Capabilities::default() }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    };
    let security = PodSecurityContext {
        run_as_non_root: Some(true),
        seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".into(), ..SeccompProfile::default() }),
        ..PodSecurityContext::default()
    };
    let pod = PodSpec { containers: vec![container], security_context: Some(security), ..PodSpec::default() };
    Deployment {
        metadata: ObjectMeta { name: memcached.metadata.name.clone(), ..ObjectMeta::default() },
        spec: DeploymentSpec {
            replicas: Some(memcached.spec.size),
            selector: LabelSelector { match_labels: Some(labels.clone()), ..LabelSelector::default() },
            template: PodTemplateSpec {
                metadata: Some(ObjectMeta { labels: Some(labels), ..ObjectMeta::default() }),
                spec: Some(pod),
            },
            ..DeploymentSpec::default()
        },
        ..Deployment::default()
    }
}

/// Registers the controller of Memcacheds with a manager.
///
/// # Errors
/// Fails if a controller of this name is registered.
pub fn setup(manager: &Manager) -> Result<(), BoxError> {
    let memcacheds = manager.store(Scope::all());
    let deployments = manager.store(Scope::all());
    let image = manager.section::<MemcachedSettings>("memcached")?.borrow().image.clone();
    let controller = Controller::new("memcached")
        .reconciles(&memcacheds)
        .owns(&deployments)
        .writes_status::<Memcached>()
        .reconciler(with_finalizer(&memcacheds, FINALIZER, Memcacheds { deployments, image }));
    manager.register(controller)?;
    Ok(())
}

/// Returns the program of this operator.
pub fn program() -> Program {
    Program::new("memcached-operator", env!("CARGO_PKG_VERSION"), "Runs a memcached for each Memcached")
        .crds([Memcached::crd()])
        .controllers(["memcached"])
        .section::<MemcachedSettings>("memcached")
        .setup(setup)
}
