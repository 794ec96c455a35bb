//! The load of the users: creates Pods and patches them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kube::api::{Api, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Client, Config};
use mainstay::client::connect;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at, sleep};

use crate::pods;

/// Number of concurrent users, each with a connection of its own.
const USERS: u32 = 8;
/// Patches per second of all users together.
const RATE: u32 = 300;
/// Name of the owner of all Pods of one namespace. The garbage collector would delete Pods whose owner does
/// not exist.
const OWNER: &str = "owner";

pub(crate) struct Load {
    users: Vec<Client>,
}

// === impl Load ===

impl Load {
    pub(crate) async fn connect(kubeconfig: &Path) -> anyhow::Result<Self> {
        let config: Config = connect::infer(Some(kubeconfig), None).await?;
        let users = (0..USERS).map(|_| Client::try_from(config.clone())).collect::<Result<_, _>>()?;
        Ok(Self { users })
    }

    /// Creates the Pods and writes their status.
    pub(crate) async fn fill(&self, count: u32) -> anyhow::Result<()> {
        let namespaces: BTreeSet<String> =
            (0..count).map(|number| pods::Pod::new(number).namespace()).collect();
        let mut owners = BTreeMap::new();
        for namespace in namespaces {
            let uid = self.namespace(&namespace).await.with_context(|| namespace.clone())?;
            owners.insert(namespace, uid);
        }
        let owners = Arc::new(owners);
        self.all(count, None, move |client, number| {
            let owners = owners.clone();
            async move {
                let pod = pods::Pod::new(number);
                let (namespace, name) = (pod.namespace(), pod.name());
                let owner = owners.get(&namespace).context("a namespace without owner")?;
                let (object, status) = parts(pod, owner)?;
                let pods: Api<Pod> = Api::namespaced(client, &namespace);
                let created: Pod = serde_json::from_value(object)?;
                pods.create(&PostParams::default(), &created).await?;
                let change = Patch::Merge(json!({"status": status}));
                pods.patch_status(&name, &PatchParams::default(), &change).await?;
                Ok(())
            }
        })
        .await
    }

    /// Patches the Pods in turn at `RATE`, with a new value in each round.
    pub(crate) async fn patch(&self, round: usize, pods: u32, patches: u32) -> anyhow::Result<()> {
        self.all(patches, Some(RATE), move |client, number| async move {
            let pod = pods::Pod::new(number.wrapping_mul(7) % pods);
            let api: Api<Pod> = Api::namespaced(client, &pod.namespace());
            let turn = format!("{round}-{number}");
            let change = Patch::Merge(json!({"metadata": {"annotations": {"example.com/turn": turn}}}));
            api.patch(&pod.name(), &PatchParams::default(), &change).await?;
            Ok(())
        })
        .await
    }

    /// Distributes `count` numbered tasks among the users, at `rate` per second if there is one.
    async fn all<F>(
        &self,
        count: u32,
        rate: Option<u32>,
        task: impl Fn(Client, u32) -> F + Clone + Send + 'static,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>> + Send,
    {
        let next = Arc::new(AtomicU32::new(0));
        let mut users = JoinSet::new();
        let began = Instant::now();
        for (user, client) in (0..).zip(self.users.clone()) {
            let (next, task) = (next.clone(), task.clone());
            users.spawn(async move {
                // The users start one after the other, so that requests are evenly spaced.
                let mut ticks = rate.map(|rate| {
                    let apart = Duration::from_secs(1) / rate;
                    interval_at(began + apart * user, apart * USERS)
                });
                loop {
                    if let Some(ticks) = &mut ticks {
                        ticks.tick().await;
                    }
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return anyhow::Ok(());
                    }
                    task(client.clone(), number).await?;
                }
            });
        }
        while let Some(user) = users.join_next().await {
            user??;
        }
        Ok(())
    }

    /// Creates a namespace, waits until Pods can be created in it, and returns the uid of their owner.
    async fn namespace(&self, name: &str) -> anyhow::Result<String> {
        let client = self.users.first().context("no users")?;
        let named = |name: &str| ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        let namespace = Namespace { metadata: named(name), ..Namespace::default() };
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        let owner = ConfigMap { metadata: named(OWNER), ..ConfigMap::default() };
        let owner = Api::namespaced(client.clone(), name).create(&PostParams::default(), &owner).await?;
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
        for _ in 0..600 {
            if accounts.get_opt("default").await?.is_some() {
                return owner.metadata.uid.context("an owner without uid");
            }
            sleep(Duration::from_millis(50)).await;
        }
        anyhow::bail!("the namespace has no service account after 30 s")
    }
}

/// Returns the Pod to create and the status to write afterwards, without the fields that the server writes
/// itself. The Pod names a scheduler that does not exist, and an owner that no controller reconciles.
fn parts(pod: pods::Pod, owner: &str) -> anyhow::Result<(Value, Value)> {
    let mut object: Value = serde_json::from_str(&pod.json(1))?;
    let status = object["status"].take();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in ["uid", "resourceVersion", "generation", "creationTimestamp", "managedFields"] {
            metadata.remove(field);
        }
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": OWNER, "uid": owner});
        metadata.insert("ownerReferences".to_owned(), json!([owner]));
    }
    if let Some(spec) = object["spec"].as_object_mut() {
        for field in ["nodeName", "serviceAccount", "priority", "preemptionPolicy"] {
            spec.remove(field);
        }
        spec.insert("serviceAccountName".to_owned(), json!("default"));
        spec.insert("schedulerName".to_owned(), json!("nobody"));
        spec.insert("automountServiceAccountToken".to_owned(), json!(false));
    }
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
    Ok((object, status))
}
