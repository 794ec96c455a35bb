//! What users do to the cluster: they fill it with Pods, and patch them.

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

/// Users at work at once, each with a connection of its own.
const USERS: u32 = 8;
/// Patches a second, of all users together.
const RATE: u32 = 300;
/// What keeps the owner of all Pods of one namespace: without a living owner they would be collected.
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

    /// Creates the Pods and their status.
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

    /// Patches Pods in turn, evenly; in each round to something new.
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

    /// Shares numbered tasks among the users.
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
                // One after the other, not all at once.
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

    /// Makes a namespace that Pods can be created in, and returns the uid of their owner.
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
        anyhow::bail!("it has no service account after 30 s")
    }
}

/// Returns what is created, and the status that is written then. Left out is what the server writes itself; no
/// scheduler takes the Pod, and its owner is one that nobody reconciles.
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
