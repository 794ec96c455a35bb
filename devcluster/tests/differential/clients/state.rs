//! The objects of the namespace, once all controllers and clients have nothing left to do.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{ApiGroup, Discovery, Scope, verbs};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::super::normal;
use super::NAMESPACE;

/// Longer than client-go's backoff of a Foo whose Deployment was deleted late.
const PATIENCE: Duration = Duration::from_mins(2);
/// How long nothing may change.
const QUIET: Duration = Duration::from_secs(3);

/// All objects of the namespace, by plural and name.
pub(crate) type Objects = Map<String, Value>;

/// Waits until the objects are as their owners want them and stay so; else returns one that is not.
pub(crate) async fn settled(client: &Client) -> Result<Objects, (Objects, String)> {
    let end = Instant::now() + PATIENCE;
    let mut before = Objects::new();
    loop {
        let objects = list(client).await.expect("lists");
        let why = if objects == before { unsettled(&objects) } else { Some("objects change".to_owned()) };
        let Some(why) = why else { return Ok(objects) };
        if Instant::now() >= end {
            return Err((objects, format!("the objects do not settle: {why}")));
        }
        before = objects;
        tokio::time::sleep(QUIET).await;
    }
}

/// Lists every kind except for Events: how many there are depends on the speed of their writers.
async fn list(client: &Client) -> kube::Result<Objects> {
    let discovery = Discovery::new(client.clone()).run().await?;
    let mut objects = Objects::new();
    for (resource, capabilities) in discovery.groups().flat_map(ApiGroup::recommended_resources) {
        let listed = capabilities.scope == Scope::Namespaced && capabilities.supports_operation(verbs::LIST);
        if !listed || resource.kind == "Event" {
            continue;
        }
        let api = Api::<DynamicObject>::namespaced_with(client.clone(), NAMESPACE, &resource);
        for object in api.list(&ListParams::default()).await?.items {
            let name = object.metadata.name.clone().unwrap_or_default();
            objects.insert(format!("{}/{name}", resource.plural), untyped(object));
        }
    }
    Ok(objects)
}

/// Returns the object without its kind, which the items of lists may lack.
pub(crate) fn untyped(mut object: DynamicObject) -> Value {
    object.types = None;
    serde_json::to_value(object).expect("JSON")
}

/// Returns an object that a controller or client must still change.
fn unsettled(objects: &Objects) -> Option<String> {
    let uids: HashSet<_> = objects.values().map(|object| &object["metadata"]["uid"]).collect();
    let owned = |object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array();
        owners.is_none_or(|owners| owners.iter().all(|owner| uids.contains(&owner["uid"])))
    };
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let done = |key: &str, object: &Value| {
        let (metadata, spec, status) = (&object["metadata"], &object["spec"], &object["status"]);
        let (plural, name) = key.split_once('/').unwrap_or_default();
        let available = number(&spec["replicas"]) == number(&status["availableReplicas"]);
        let own = |key: String| {
            objects.get(&key).filter(|it| it["metadata"]["ownerReferences"][0]["uid"] == metadata["uid"])
        };
        match plural {
            "pods" if metadata["ownerReferences"][0]["kind"] == "Job" => status["phase"] == "Succeeded",
            "pods" => status["phase"] == "Running",
            "jobs" => status["succeeded"] == spec["completions"] && !status["completionTime"].is_null(),
            "replicasets" => available && metadata["labels"]["hello"] == "world",
            "deployments" => {
                available
                    && status["replicas"] == status["updatedReplicas"]
                    && metadata["generation"] == status["observedGeneration"]
            }
            "foos" => {
                let child = own(format!("configmaps/{name}-child"));
                available
                    && own(format!("deployments/of-{name}")).is_some()
                    && child.is_some_and(|it| {
                        it["data"]["replicas"].as_str() == Some(&spec["replicas"].to_string())
                    })
            }
            _ => true,
        }
    };
    let unsettled = objects.iter().find(|(key, object)| {
        !object["metadata"]["deletionTimestamp"].is_null() || !owned(object) || !done(key, object)
    });
    unsettled.map(|(key, object)| format!("{key}: {object}"))
}

/// Returns the objects without values that depend on the speed of controllers, or that a server chooses.
pub(crate) fn comparable(mut objects: Objects) -> Value {
    // The launcher of the real programs runs no controller for it.
    objects.remove("configmaps/kube-root-ca.crt");
    let names = chosen(&objects);
    // A Deployment that changes twice at once may skip a ReplicaSet, so that there are fewer old ones.
    objects.retain(|key, object| !key.starts_with("replicasets/") || object["spec"]["replicas"] != 0);
    let text = Value::Object(objects).to_string();
    let text = names.iter().fold(text, |text, (name, stable)| text.replace(name, stable));
    let mut objects: Objects = serde_json::from_str(&text).expect("JSON");
    for (key, object) in &mut objects {
        let fields = object["metadata"].as_object_mut().expect("metadata");
        fields.remove("resourceVersion");
        if let Some(Value::Object(annotations)) = fields.get_mut("annotations") {
            annotations.remove("deployment.kubernetes.io/revision");
            annotations.remove("deployment.kubernetes.io/revision-history");
        }
        if fields.contains_key("ownerReferences") {
            // A controller may take several changes as one.
            fields.remove("generation");
            object["status"]["observedGeneration"].take();
        }
        if key.starts_with("deployments/") {
            // Counts names that a ReplicaSet of the same Deployment before had, if that was deleted late.
            without(object, &["collisionCount", "f:collisionCount"]);
            // In the order in which they were first true or false.
            if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
                conditions.sort_by_key(|condition| condition["type"].to_string());
            }
        }
        if key.starts_with("replicasets/") {
            without(object, &["f:deployment.kubernetes.io/revision-history"]);
        }
        if key.starts_with("jobs/") {
            without(object, &["completionTime", "lastProbeTime"]);
        }
        if key.starts_with("pods/") {
            // The rest is by kwok, or by the embedded server's imitation of a kubelet.
            object["status"] = object["status"]["phase"].take();
            let managers = object["metadata"]["managedFields"].as_array_mut().expect("managers");
            managers.retain(|manager| manager["subresource"] != "status");
        }
    }
    normal::normalised(Value::Object(objects))
}

/// Removes fields of these names at any depth.
fn without(value: &mut Value, names: &[&str]) {
    if let Value::Object(fields) = value {
        fields.retain(|name, _| !names.contains(&name.as_str()));
        fields.values_mut().for_each(|field| without(field, names));
    } else if let Value::Array(items) = value {
        for item in items {
            without(item, names);
        }
    }
}

/// Returns the uids, names of Pods and hashes that a server chose, each with a replacement.
fn chosen(objects: &Objects) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let (mut uids, mut names, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
    let mut pods = BTreeMap::<&str, usize>::new();
    for (key, object) in objects {
        let metadata = &object["metadata"];
        uids.extend(text(&metadata["uid"]).map(|uid| (uid, format!("<uid of {key}>"))));
        hashes.extend(text(&metadata["labels"]["pod-template-hash"]).map(|it| (it, "<hash>".to_owned())));
        if let (Some(name), Some(owner)) = (key.strip_prefix("pods/"), metadata["generateName"].as_str()) {
            let number = pods.entry(owner).and_modify(|number| *number += 1).or_default();
            names.push((name.to_owned(), format!("{owner}<pod {number}>")));
        }
    }
    [uids, names, hashes].concat()
}

/// Returns how a client's cache of one kind differs from the server's objects.
pub(crate) fn differences(plural: &str, cached: &BTreeMap<String, Value>, objects: &Objects) -> Vec<String> {
    let prefix = format!("{plural}/");
    let listed: BTreeMap<_, _> = objects.iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
    let mut keys: Vec<_> = cached.keys().chain(listed.keys().copied()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| cached.get(*key) != listed.get(key).copied());
    let text = |object: Option<&Value>| object.map_or_else(|| "absent".to_owned(), Value::to_string);
    let differences = keys.into_iter().map(|key| {
        format!("{key}:\n  cached {}\n  listed {}", text(cached.get(key)), text(objects.get(key)))
    });
    differences.collect()
}
