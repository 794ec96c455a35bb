//! Random changes of objects, the same on both servers.
//!
//! Their result does not depend on the speed of controllers: a change either does not read what it changes,
//! or is repeated after a conflict. A Pod's name is used once, since a deleted Pod stays for a while.

use std::collections::BTreeSet;
use std::time::Duration;

use fastrand::Rng;
use kube::Client;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use mainstay_devcluster::DevCluster;
use serde_json::{Value, json};

use super::super::{pair, variable};
use super::programs::Programs;
use super::relay::Relay;
use super::{api, resource};

/// The time between two changes.
const PAUSE: Duration = Duration::from_millis(40);
/// Ten seconds, or with `MAINSTAY_LONG=1` two minutes.
const STEPS: [usize; 2] = [250, 3_000];
/// Connections are cut after so many steps, and the API server restarts after so many, first in the middle of
/// the short form.
const CUT: usize = 50;
const RESTART: usize = 500;
const FIRST_RESTART: usize = 125;

/// Kinds in proportion to their changes.
const CHANGED: &[&str] = &[
    "configmaps",
    "configmaps",
    "configmaps",
    "configmaps",
    "foos",
    "foos",
    "deployments",
    "deployments",
    "jobs",
    "replicasets",
    "replicasets",
    "pods",
    "pods",
];
const NAMES: &[&str] = &["a", "b", "c", "d"];

/// The state of the changes on one server.
pub(crate) struct Churn {
    random: Rng,
    client: Client,
    alive: BTreeSet<String>,
    /// Pods so far by name.
    pods: usize,
}

// === impl Churn ===

impl Churn {
    /// Makes all changes and returns their number.
    pub(crate) async fn run(cluster: &DevCluster, relay: &Relay, programs: &mut Programs) -> usize {
        let seed = variable("DIFFERENTIAL_SEED").map_or(1, |text| text.parse().expect("a seed"));
        let random = Rng::with_seed(seed);
        let mut churn = Self { random, client: client(cluster).await, alive: BTreeSet::new(), pods: 0 };
        let steps = STEPS[usize::from(variable("MAINSTAY_LONG").is_some_and(|value| value == "1"))];
        for step in 1..=steps {
            churn.step().await;
            tokio::time::sleep(PAUSE).await;
            if step % CUT == 0 {
                relay.cut();
            }
            if step % RESTART == FIRST_RESTART {
                restart(cluster).await;
                programs.restart_controllers().await;
                churn.client = client(cluster).await;
            }
        }
        steps
    }

    async fn step(&mut self) {
        let plural = CHANGED[self.random.usize(..CHANGED.len())];
        let letter = NAMES[self.random.usize(..NAMES.len())];
        let mut name = format!("{plural}-{letter}");
        if plural == "pods" {
            // The letter's Pod that is there, or else a new one.
            let prefix = format!("{name}-");
            let there = self.alive.iter().find(|alive| alive.starts_with(&prefix));
            self.pods += usize::from(there.is_none());
            name = there.cloned().unwrap_or_else(|| format!("{prefix}{}", self.pods));
        }
        let body = self.body(plural, &name);
        let objects = api(&self.client, plural);
        let params = PatchParams::default();
        let changes =
            ["create", "delete", "merge", "merge", "strategic", "replace", "apply", "apply", "apply"];
        let change = match (changes[self.random.usize(..changes.len())], self.alive.contains(&name)) {
            ("apply", _) => "apply",
            (_, false) => "create",
            ("create", true) => "replace",
            ("strategic", true) if plural == "foos" => "merge",
            (change, true) => change,
        };
        let done = match change {
            "create" => objects.create(&PostParams::default(), &object(body)).await.map(drop),
            // Without a policy a Job leaves its Pods behind.
            "delete" if plural == "jobs" => {
                objects.delete(&name, &DeleteParams::background()).await.map(drop)
            }
            "delete" => objects.delete(&name, &DeleteParams::default()).await.map(drop),
            "merge" => objects.patch(&name, &params, &Patch::Merge(body)).await.map(drop),
            "strategic" => objects.patch(&name, &params, &Patch::Strategic(body)).await.map(drop),
            "replace" => replace(&objects, &name, &body).await,
            _ => {
                let params = PatchParams::apply(["one", "two"][self.random.usize(..2)]).force();
                objects.patch(&name, &params, &Patch::Apply(body)).await.map(drop)
            }
        };
        if let Err(error) = done {
            panic!("{change} of {plural}/{name} failed: {error}");
        }
        if change == "delete" {
            self.alive.remove(&name);
        } else {
            self.alive.insert(name);
        }
    }

    /// Returns an object with random values.
    fn body(&mut self, plural: &str, name: &str) -> Value {
        let resource = resource(plural);
        let (replicas, image) = (self.random.u8(..3), format!("image:{}", self.random.u8(..2)));
        let tier = if self.random.bool() { "a" } else { "b" };
        // The existing Pods of a ReplicaSet would keep an earlier image.
        let run = if plural == "replicasets" { "image" } else { &image };
        let pod = json!({"containers": [{"name": "c", "image": run}]});
        let mut body = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, "labels": {"tier": tier}},
        });
        match plural {
            "configmaps" if self.random.bool() => body["data"] = json!({"k": image}),
            "configmaps" => body["data"] = json!({"k": image, "l": "m"}),
            "foos" => {
                body["spec"] = json!({"deploymentName": format!("of-{name}"), "replicas": replicas + 1});
            }
            "pods" => body["spec"] = pod,
            // Everything else of a Job is immutable.
            "jobs" => {
                let pod = json!({"containers": [{"name": "c", "image": "image"}], "restartPolicy": "Never"});
                body["spec"] = json!({
                    "completions": 2, "parallelism": replicas.max(1), "template": {"spec": pod},
                });
            }
            _ => {
                let selector = json!({"matchLabels": {"app": name}});
                let template = json!({"metadata": {"labels": {"app": name}}, "spec": pod});
                body["spec"] = json!({"replicas": replicas, "selector": selector, "template": template});
            }
        }
        body
    }
}

/// Returns a client without the relay.
pub(crate) async fn client(cluster: &DevCluster) -> Client {
    Client::try_from(pair::config(cluster.kubeconfig_path()).await).expect("a client")
}

/// Restarts the API server; clients that watched from an older version must list again.
async fn restart(cluster: &DevCluster) {
    if let Some(embedded) = cluster.as_embedded() {
        embedded.compact();
    }
    cluster.restart_apiserver().await.expect("the API server starts again");
    if let Some(real) = cluster.as_real() {
        real.restart_controllers().await.expect("its controllers start again");
    }
}

fn object(body: Value) -> DynamicObject {
    serde_json::from_value(body).expect("an object")
}

/// Reads, changes and updates an object, again after a conflict.
async fn replace(objects: &Api<DynamicObject>, name: &str, change: &Value) -> kube::Result<()> {
    loop {
        let mut body = serde_json::to_value(objects.get(name).await?).expect("JSON");
        json_patch::merge(&mut body, change);
        match objects.replace(name, &PostParams::default(), &object(body)).await {
            Err(kube::Error::Api(status)) if status.reason == "Conflict" => {}
            done => return done.map(drop),
        }
    }
}
