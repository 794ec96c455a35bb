//! The life cycle of CustomResourceDefinitions: accept names, serve versions, and delete all objects
//! before the definition.
//!
//! kube-apiserver does this work in controllers that watch definitions. Here it follows directly after the
//! write that causes it, in the same steps, each with its own revision.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::call::Call;
use super::object;
use super::options::DeleteOptions;
use super::request::{Request, Target, Verb};
use super::served::Author;
use super::{Api, admission, builtin};
use crate::kinds::custom::{self, Conversion, status};
use crate::kinds::{Kind, conditions};
use crate::store::{At, GroupResource, Key, Version};

/// The finalizer that keeps a definition until its objects are deleted.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A status condition without its transition time.
struct Condition {
    name: &'static str,
    status: &'static str,
    reason: &'static str,
    message: String,
}

// === impl Api ===

impl Api {
    /// Reacts to a stored write: advances a definition, or has the rights read again. Called after each write
    /// of an object.
    pub(super) fn after_write(&self, kind: &Kind, version: &Version) {
        self.note_change(kind);
        if builtin::is_definition(kind) {
            self.settle_definition(version.key());
        }
    }

    /// Reacts to a deletion. Called after each deletion of an object: a deleted definition is no longer
    /// served, and the last deleted object lets a terminating definition go.
    pub(super) fn after_delete(&self, kind: &Kind, version: &Version) {
        self.note_change(kind);
        if builtin::is_definition(kind) {
            self.forget_definition(version.value());
        } else if kind.type_name.is_none() {
            let registry = self.registry();
            let served = registry.any_version(&kind.group, &kind.plural);
            if served.and_then(|served| served.custom.as_ref()).is_some_and(|custom| custom.terminating) {
                self.settle_definition(&Key::new("", &kind.resource()));
            }
        }
    }

    /// Has what is derived from objects of this kind read again.
    pub(super) fn note_change(&self, kind: &Kind) {
        self.shared.rbac.note_change(kind);
        if kind.group == admission::GROUP {
            self.shared.configured.changed();
        }
    }

    /// Serves the definitions of a store that was opened, and goes on with their status or deletion.
    pub(super) fn restore_definitions(&self) {
        let listing = self.shared.store.list(&definitions(), None, None, At::Newest);
        for version in listing.into_iter().flat_map(|listing| listing.items) {
            self.settle_definition(version.key());
        }
    }

    /// Performs the status or deletion steps of a definition until none is left.
    fn settle_definition(&self, key: &Key) {
        let resource = definitions();
        while let Some(version) = self.shared.store.get(&resource, key) {
            let definition = version.value();
            let next = if object::is_terminating(definition) {
                self.terminate(definition)
            } else {
                self.next_status(definition, key)
            };
            if status::is_established(definition) {
                self.serve(&version);
            }
            let Some(next) = next else { return };
            let next = self.owned_by_server(definition, next);
            let store = &self.shared.store;
            if object::is_terminating(&next) && object::finalizers(&next).next().is_none() {
                if store.delete(&resource, key, version.revision()).is_ok() {
                    return self.forget_definition(&next);
                }
            } else if next == *definition {
                return;
            } else if let Ok(version) = store.update(&resource, key, next, version.revision())
                && status::is_established(version.value())
            {
                self.serve(&version);
            }
        }
    }

    /// Returns the definition with the next step of its status; `None` after the last step.
    fn next_status(&self, definition: &Value, key: &Key) -> Option<Value> {
        let listing = self.shared.store.list(&definitions(), None, None, At::Newest);
        let all: Vec<_> = listing.into_iter().flat_map(|listing| listing.items).collect();
        let others = all.iter().filter(|version| version.key() != key).map(|version| version.value());
        let now = object::time(self.now());
        let changed =
            status::accept_names(definition, others, &now).or_else(|| status::establish(definition, &now))?;
        let mut next = definition.clone();
        if let Some(next) = next.as_object_mut() {
            next.insert("status".to_owned(), changed);
        }
        Some(next)
    }

    /// Records that the server itself has changed the status of a definition.
    fn owned_by_server(&self, definition: &Value, next: Value) -> Value {
        let author =
            Author { manager: "kube-apiserver", subresource: "status", now: self.now(), conversions: None };
        match self.served("apiextensions.k8s.io", "v1", "customresourcedefinitions") {
            Some(served) if next != *definition => served.own(Some(definition), next, &author),
            _ => next,
        }
    }

    /// Serves the versions of a definition.
    fn serve(&self, version: &Version) {
        let definition = version.value();
        let generation = object::generation(definition);
        let terminating = object::is_terminating(definition);
        self.change_registry(|registry| {
            // A later write serves its own version, and a deletion none.
            let current = self.shared.store.get(&definitions(), version.key());
            if current.is_some_and(|current| current.revision() == version.revision()) {
                let (kinds, conversion) = (custom::kinds(definition), Conversion::of(definition));
                registry.serve(kinds, generation, version.revision(), terminating, conversion);
            }
        });
    }

    /// Deletes the objects of a terminating definition. Returns the definition with its next condition, and
    /// without the finalizer once no object is left; `None` while objects remain or the finalizer is gone.
    fn terminate(&self, definition: &Value) -> Option<Value> {
        if !object::finalizers(definition).any(|finalizer| finalizer == CLEANUP) {
            return None;
        }
        let mut next = definition.clone();
        let now = self.now();
        let reason = condition(definition, "Terminating").map(|condition| object::text(condition, "reason"));
        let step = |status, reason, message: &str| Condition {
            name: "Terminating",
            status,
            reason,
            message: message.to_owned(),
        };
        if reason != Some("InstanceDeletionInProgress") {
            let begun = step("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress");
            set_condition(&mut next, begun, now);
            return Some(next);
        }
        if !status::is_established(definition) {
            set_condition(
                &mut next,
                step("False", "NeverEstablished", "resource was never established"),
                now,
            );
        } else if self.delete_instances(definition) {
            set_condition(
                &mut next,
                step("False", "InstanceDeletionCompleted", "removed all instances"),
                now,
            );
        } else {
            return None;
        }
        let others = object::finalizers(definition).filter(|finalizer| *finalizer != CLEANUP);
        let others: Vec<String> = others.map(str::to_owned).collect();
        object::set_finalizers(&mut next, &others);
        Some(next)
    }

    /// Deletes all objects of a definition. Returns whether no object is left.
    fn delete_instances(&self, definition: &Value) -> bool {
        let (group, plural) = names_of(definition);
        let Some(served) = self.registry().any_version(&group, &plural).map(Arc::clone) else { return true };
        let store = &self.shared.store;
        let instances =
            || store.list(&served.resource, None, None, At::Newest).map_or(Vec::new(), |list| list.items);
        for version in instances() {
            let target = Target::new(&group, &served.kind.version, &plural)
                .namespace(version.key().namespace())
                .name(version.key().name());
            let call = Call::new(Arc::clone(&served), Request::new(Verb::Delete, target));
            self.delete_now(&call, &DeleteOptions::default(), &version);
        }
        instances().is_empty()
    }

    /// Stops serving the versions of a definition and ends their watches.
    fn forget_definition(&self, definition: &Value) {
        let (group, plural) = names_of(definition);
        self.change_registry(|registry| registry.remove(&group, &plural));
        self.shared.store.end_watches(&GroupResource::new(&group, &plural));
    }
}

/// Adds the cleanup finalizer and the condition `Terminating` to a definition.
pub(super) fn start_deletion(definition: &mut Value, now: Timestamp) {
    let mut finalizers: Vec<String> = object::finalizers(definition).map(str::to_owned).collect();
    if !finalizers.iter().any(|finalizer| finalizer == CLEANUP) {
        finalizers.push(CLEANUP.to_owned());
    }
    object::set_finalizers(definition, &finalizers);
    let message =
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon".to_owned();
    let pending =
        Condition { name: "Terminating", status: "True", reason: "InstanceDeletionPending", message };
    set_condition(definition, pending, now);
}

fn definitions() -> GroupResource {
    GroupResource::new("apiextensions.k8s.io", "customresourcedefinitions")
}

/// Returns the group and the plural name of a definition's resource.
fn names_of(definition: &Value) -> (String, String) {
    let text = |path| definition.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
    (text("/spec/group"), text("/spec/names/plural"))
}

fn condition<'a>(definition: &'a Value, name: &str) -> Option<&'a Value> {
    let conditions = definition.pointer("/status/conditions")?.as_array()?;
    conditions.iter().find(|condition| object::text(condition, "type") == name)
}

/// Sets a condition; its transition time changes only with its status.
fn set_condition(definition: &mut Value, new: Condition, now: Timestamp) {
    let Condition { name, status, reason, message } = new;
    let Some(fields) = definition.get_mut("status").filter(|fields| fields.is_object()) else { return };
    let condition = json!({"type": name, "status": status, "reason": reason, "message": message});
    conditions::set(fields, condition, &object::time(now));
}
