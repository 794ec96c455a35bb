//! An admission hook that resolves classes: the priority of a Pod, its runtime, and the default classes of
//! Ingresses and claims.

use std::cmp::Reverse;
use std::sync::Arc;

use futures_util::future::{BoxFuture, FutureExt};
use serde_json::{Map, Value, json};

use super::{Admission, Attributes, Operation};
use crate::api::Status;
use crate::api::object;
use crate::store::{At, GroupResource, Key, Store, Version};

const DEFAULT_INGRESS_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
const DEFAULT_STORAGE_CLASS: &str = "storageclass.kubernetes.io/is-default-class";
/// The former name of [`DEFAULT_STORAGE_CLASS`].
const DEFAULT_STORAGE_CLASS_BETA: &str = "storageclass.beta.kubernetes.io/is-default-class";

/// The hook; reads classes from the store.
#[derive(Debug)]
pub(crate) struct Classes {
    store: Store,
}

// === impl Classes ===

impl Classes {
    pub(crate) fn new(store: Store) -> Self {
        Self { store }
    }

    fn apply(&self, attributes: &Attributes<'_>, object: &mut Value) -> Result<(), Status> {
        let Attributes { operation, kind, target, .. } = attributes;
        if !target.subresource.is_empty() {
            return Ok(());
        }
        match (kind.group.as_str(), kind.kind.as_str(), operation) {
            ("", "Pod", Operation::Create) => {
                let name = object::meta(object, "name").to_owned();
                let forbidden = |why| Status::forbidden(kind, &name, why);
                let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return Ok(()) };
                self.prioritise(spec).map_err(forbidden)?;
                tolerate_unready_nodes(spec);
                self.choose_runtime(spec).map_err(forbidden)
            }
            ("", "Pod", Operation::Update) => {
                keep_priority(object, attributes.old);
                Ok(())
            }
            ("scheduling.k8s.io", "PriorityClass", Operation::Create | Operation::Update) => {
                let name = object::meta(object, "name").to_owned();
                let update = *operation == Operation::Update;
                match self.default_priority().filter(|_| object["globalDefault"] == true) {
                    Some(class) if !update || class.key().name() != name => {
                        let why = format!(
                            "PriorityClass {} is already marked as default. Only one default can exist",
                            class.key().name()
                        );
                        Err(Status::forbidden(kind, &name, why))
                    }
                    _ => Ok(()),
                }
            }
            ("networking.k8s.io", "Ingress", Operation::Create) => {
                let annotations = object::meta_value(object, "annotations");
                let named = annotations.is_some_and(|all| all.get("kubernetes.io/ingress.class").is_some());
                if !named && object["spec"]["ingressClassName"].is_null() {
                    let class = self.default_of("networking.k8s.io", "ingressclasses");
                    set_name(object, "ingressClassName", class.as_deref());
                }
                Ok(())
            }
            ("", "PersistentVolumeClaim", Operation::Create) => {
                let annotations = object::meta_value(object, "annotations");
                let beta = "volume.beta.kubernetes.io/storage-class";
                let named = annotations.is_some_and(|all| all.get(beta).is_some());
                if !named && object["spec"]["storageClassName"].is_null() {
                    let class = self.default_of("storage.k8s.io", "storageclasses");
                    set_name(object, "storageClassName", class.as_deref());
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Sets the priority and the preemption policy of a new Pod from its class.
    fn prioritise(&self, spec: &mut Map<String, Value>) -> Result<(), String> {
        let name = spec.get("priorityClassName").and_then(Value::as_str).unwrap_or_default().to_owned();
        let class = if name.is_empty() {
            self.default_priority()
        } else {
            let class = self.get("scheduling.k8s.io", "priorityclasses", &name);
            Some(class.ok_or_else(|| format!("no PriorityClass with name {name} was found"))?)
        };
        let (mut priority, mut policy) = (json!(0), json!("PreemptLowerPriority"));
        if let Some(class) = &class {
            priority = class.value()["value"].clone();
            policy = class.value()["preemptionPolicy"].clone();
            spec.insert("priorityClassName".to_owned(), class.key().name().into());
        }
        let given = |field: &str| spec.get(field).filter(|value| !value.is_null());
        if let Some(given) = given("priority").filter(|given| **given != priority) {
            return Err(format!(
                "the integer value of priority ({given}) must not be provided in pod spec; priority \
                 admission controller computed {priority} from the given PriorityClass name"
            ));
        }
        if let Some(given) = given("preemptionPolicy").filter(|given| **given != policy && !policy.is_null())
        {
            let text = |policy: &Value| policy.as_str().unwrap_or_default().to_owned();
            return Err(format!(
                "the string value of PreemptionPolicy ({}) must not be provided in pod spec; priority \
                 admission controller computed {} from the given PriorityClass name",
                text(given),
                text(&policy)
            ));
        }
        spec.insert("priority".to_owned(), priority);
        if !policy.is_null() {
            spec.insert("preemptionPolicy".to_owned(), policy);
        }
        Ok(())
    }

    /// Adds the overhead and the scheduling rules of a Pod's `RuntimeClass`.
    fn choose_runtime(&self, spec: &mut Map<String, Value>) -> Result<(), String> {
        let Some(name) = spec.get("runtimeClassName").and_then(Value::as_str) else { return Ok(()) };
        let class = self
            .get("node.k8s.io", "runtimeclasses", name)
            .ok_or_else(|| format!("pod rejected: RuntimeClass \"{name}\" not found"))?;
        let overhead = &class.value()["overhead"]["podFixed"];
        if !overhead.is_null() {
            spec.insert("overhead".to_owned(), overhead.clone());
        }
        let scheduling = &class.value()["scheduling"];
        let selector = spec.entry("nodeSelector").or_insert_with(|| json!({}));
        if let (Some(selector), Some(wanted)) =
            (selector.as_object_mut(), scheduling["nodeSelector"].as_object())
        {
            for (label, value) in wanted {
                if let Some(own) = selector.insert(label.clone(), value.clone()).filter(|own| own != value) {
                    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
                    return Err(format!(
                        "conflict: runtimeClass.scheduling.nodeSelector[{label}] = {}; \
                         pod.spec.nodeSelector[{label}] = {}",
                        text(value),
                        text(&own)
                    ));
                }
            }
        }
        if spec.get("nodeSelector").is_some_and(object::is_empty) {
            spec.remove("nodeSelector");
        }
        if let Some(added) = scheduling["tolerations"].as_array() {
            let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
            if let Some(tolerations) = tolerations.as_array_mut() {
                let new: Vec<_> = added.iter().filter(|it| !tolerations.contains(it)).cloned().collect();
                tolerations.extend(new);
            }
        }
        Ok(())
    }

    fn get(&self, group: &str, plural: &str, name: &str) -> Option<Arc<Version>> {
        self.store.get(&GroupResource::new(group, plural), &Key::new("", name))
    }

    fn all(&self, group: &str, plural: &str) -> Vec<Arc<Version>> {
        let listing = self.store.list(&GroupResource::new(group, plural), None, None, At::Newest);
        listing.map(|listing| listing.items).unwrap_or_default()
    }

    /// Returns the default class of priorities; of several the one with the lowest value.
    fn default_priority(&self) -> Option<Arc<Version>> {
        let all = self.all("scheduling.k8s.io", "priorityclasses");
        let defaults = all.into_iter().filter(|class| class.value()["globalDefault"] == true);
        defaults.min_by_key(|class| class.value()["value"].as_i64())
    }

    /// Returns the name of the default class; of several that of the newest.
    fn default_of(&self, group: &str, plural: &str) -> Option<String> {
        let marks = match plural {
            "ingressclasses" => &[DEFAULT_INGRESS_CLASS][..],
            _ => &[DEFAULT_STORAGE_CLASS, DEFAULT_STORAGE_CLASS_BETA],
        };
        let marked = |class: &Arc<Version>| {
            let annotations = object::meta_value(class.value(), "annotations");
            marks
                .iter()
                .any(|mark| annotations.is_some_and(|all| all.get(mark).is_some_and(|it| it == "true")))
        };
        let mut classes: Vec<_> = self.all(group, plural).into_iter().filter(marked).collect();
        classes.sort_by_key(|class| Reverse(object::meta(class.value(), "creationTimestamp").to_owned()));
        classes.first().map(|class| class.key().name().to_owned())
    }
}

impl Admission for Classes {
    fn admit<'a>(
        &'a self,
        attributes: &'a Attributes<'a>,
        object: &'a mut Value,
    ) -> BoxFuture<'a, Result<Vec<String>, Status>> {
        std::future::ready(self.apply(attributes, object).map(|()| Vec::new())).boxed()
    }
}

/// Keeps the priority of a changed Pod that was sent without one.
fn keep_priority(pod: &mut Value, old: Option<&Value>) {
    for field in ["priority", "preemptionPolicy"] {
        let former = old.map(|old| &old["spec"][field]).filter(|former| !former.is_null());
        if let (Some(former), Some(spec)) = (former, pod.get_mut("spec").and_then(Value::as_object_mut)) {
            spec.entry(field).or_insert_with(|| former.clone());
        }
    }
}

/// Adds the tolerations of every Pod, which keep it for some minutes on a Node that is not ready.
fn tolerate_unready_nodes(spec: &mut Map<String, Value>) {
    const GRACE_SECONDS: u64 = 300;
    let tolerations = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Some(tolerations) = tolerations.as_array_mut() else { return };
    for state in ["not-ready", "unreachable"] {
        let key = format!("node.kubernetes.io/{state}");
        let tolerated = tolerations.iter().any(|toleration| {
            let (of, effect) = (object::text(toleration, "key"), object::text(toleration, "effect"));
            (of == key || of.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        });
        if !tolerated {
            let (operator, effect) = ("Exists", "NoExecute");
            tolerations.push(json!({
                "key": key, "operator": operator, "effect": effect, "tolerationSeconds": GRACE_SECONDS,
            }));
        }
    }
}

fn set_name(object: &mut Value, field: &str, name: Option<&str>) {
    if let (Some(name), Some(spec)) = (name, object.get_mut("spec").and_then(Value::as_object_mut)) {
        spec.insert(field.to_owned(), name.into());
    }
}
