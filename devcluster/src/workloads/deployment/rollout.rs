//! One step of a Deployment towards its Pod template and size.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::revision;
use super::size::{self, limits};
use super::status::{self, Condition};
use super::template::{self, HASH_LABEL};
use crate::workloads::Decision;
use crate::workloads::client::Request;
use crate::workloads::object::{Object as _, controller_reference, differ, has_ended};
use crate::workloads::resources;

/// Most characters of the name of a ReplicaSet.
const NAME_LENGTH: usize = 253;

/// A Deployment and its ReplicaSets with the changes of this step.
pub(super) struct Rollout<'a> {
    deployment: Value,
    /// The ReplicaSet of the present template.
    newest: Option<Value>,
    /// The other ReplicaSets, oldest first.
    old: Vec<Value>,
    /// All ReplicaSets of the namespace.
    others: &'a [&'a Arc<Value>],
    requests: Vec<Request>,
    now: Timestamp,
}

impl<'a> Rollout<'a> {
    pub(super) fn new(
        deployment: &Value,
        owned: &[&Arc<Value>],
        others: &'a [&'a Arc<Value>],
        now: Timestamp,
    ) -> Self {
        let mut old: Vec<Value> = owned.iter().map(|set| Value::clone(set)).collect();
        old.sort_by(|a, b| age(a).cmp(&age(b)));
        let template = deployment.at("/spec/template");
        let newest = old.iter().position(|set| template::are_equal(set.at("/spec/template"), template));
        let newest = newest.map(|index| old.remove(index));
        Self { deployment: deployment.clone(), newest, old, others, requests: Vec::new(), now }
    }

    /// Ends the step of a Deployment that selects all Pods: it is only marked as seen.
    pub(super) fn refuse_selector(mut self) -> Decision {
        let generation = self.deployment.count("/metadata/generation");
        if self.deployment.count("/status/observedGeneration") < generation {
            self.deployment["status"]["observedGeneration"] = generation.into();
            self.requests.push(Request::update_status(&resources::deployments(), self.deployment));
        }
        self.requests.into()
    }

    /// Takes the step.
    pub(super) fn decide(mut self, pods: &[&Arc<Value>]) -> Decision {
        let deleting = self.deployment.is_deleting();
        if (!deleting && self.note_pause()) || self.update_newest() {
            return self.requests.into();
        }
        if deleting {
            self.write_counts();
        } else if self.deployment["spec"]["paused"] == true || self.was_scaled() {
            self.scale();
            if self.deployment["spec"]["paused"] == true {
                self.forget_old();
            }
            self.write_counts();
        } else if size::is_rolling(&self.deployment) {
            if self.newest.is_none() {
                self.create_newest();
                return self.requests.into();
            }
            if !self.grow_newest() && !self.shrink_old() {
                self.forget_old_when_complete();
            }
            self.write_status();
        } else if self.stop_old() || self.old_pods_run(pods) {
            self.write_status();
        } else if self.newest.is_none() {
            self.create_newest();
        } else {
            self.resize_newest(self.replicas());
            self.forget_old_when_complete();
            self.write_status();
        }
        self.requests.into()
    }

    fn replicas(&self) -> i64 {
        self.deployment.count("/spec/replicas")
    }

    /// Marks Progressing when the Deployment has been paused or resumed, so that a pause is no lack of
    /// progress.
    fn note_pause(&mut self) -> bool {
        let reason = self.deployment.condition("Progressing").map(|progress| progress.text("/reason"));
        if status::deadline(&self.deployment).is_none() || reason == Some("ProgressDeadlineExceeded") {
            return false;
        }
        let (reason, message) =
            match (self.deployment["spec"]["paused"] == true, reason == Some("DeploymentPaused")) {
                (true, false) => ("DeploymentPaused", "Deployment is paused"),
                (false, true) => ("DeploymentResumed", "Deployment is resumed"),
                _ => return false,
            };
        self.set_progressing("Unknown", reason, message.to_owned());
        self.write_deployment();
        true
    }

    /// Keeps annotations and `minReadySeconds` of the newest ReplicaSet up to date, and the Deployment's
    /// revision.
    fn update_newest(&mut self) -> bool {
        let Some(newest) = &self.newest else { return false };
        let mut changed = newest.clone();
        revision::annotate_newest(&self.deployment, &mut changed, revision::highest(&self.old) + 1);
        let min_ready = self.deployment.count("/spec/minReadySeconds");
        if changed.count("/spec/minReadySeconds") != min_ready {
            changed["spec"]["minReadySeconds"] = min_ready.into();
        }
        if differ(&changed, newest) {
            self.requests.push(Request::update(&resources::replica_sets(), changed));
            return true;
        }
        let revision = newest.annotation(revision::REVISION).unwrap_or_default().to_owned();
        let without_progress = status::deadline(&self.deployment).is_some()
            && self.deployment.condition("Progressing").is_none();
        let message = format!("Found new replica set {:?}", newest.name());
        let revised = self.set_revision(&revision);
        if without_progress {
            self.set_progressing("True", "FoundNewReplicaSet", message);
        }
        if revised || without_progress {
            self.write_deployment();
        }
        revised || without_progress
    }

    /// Creates the ReplicaSet of the template, as large as it may be at once.
    fn create_newest(&mut self) {
        let collisions = self.deployment.int("/status/collisionCount");
        let hash = template::hash(self.deployment.at("/spec/template"), collisions);
        let base: String =
            self.deployment.name().chars().take(NAME_LENGTH.saturating_sub(hash.len() + 1)).collect();
        let name = format!("{base}-{hash}");
        if self.others.iter().any(|other| other.name() == name) {
            // The name is another ReplicaSet's; a different count leads to a different hash.
            self.deployment["status"]["collisionCount"] = (collisions.unwrap_or_default() + 1).into();
            self.write_deployment();
            return;
        }
        let mut template = self.deployment.at("/spec/template").clone();
        template["metadata"]["labels"][HASH_LABEL] = hash.as_str().into();
        let mut selector = self.deployment.at("/spec/selector").clone();
        selector["matchLabels"][HASH_LABEL] = hash.into();
        let of_all = self.old.iter().map(|set| set.count("/spec/replicas")).sum();
        let revision = revision::highest(&self.old) + 1;
        let mut set = json!({
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": {
                "name": name,
                "namespace": self.deployment.namespace(),
                "labels": template["metadata"]["labels"],
                "ownerReferences": [controller_reference(&self.deployment, "apps/v1", "Deployment")],
            },
            "spec": {
                "replicas": size::newest(&self.deployment, 0, of_all),
                "selector": selector,
                "template": template,
            },
        });
        let min_ready = self.deployment.count("/spec/minReadySeconds");
        if min_ready > 0 {
            set["spec"]["minReadySeconds"] = min_ready.into();
        }
        revision::annotate_newest(&self.deployment, &mut set, revision);
        revision::annotate_size(&mut set, self.replicas(), self.replicas() + limits(&self.deployment).surge);
        self.requests.push(Request::create(&resources::replica_sets(), set));

        self.set_revision(&revision.to_string());
        if status::deadline(&self.deployment).is_some() {
            let message = format!("Created new replica set {name:?}");
            self.set_progressing("True", "NewReplicaSetCreated", message);
        }
        self.write_deployment();
    }

    /// Whether the Deployment has another size than when an active ReplicaSet was last scaled.
    fn was_scaled(&self) -> bool {
        let desired = |set: &Value| revision::number(set, revision::DESIRED);
        self.active().any(|set| desired(set).is_some_and(|desired| desired != self.replicas()))
    }

    /// Returns the ReplicaSets that should have Pods.
    fn active(&self) -> impl Iterator<Item = &Value> {
        self.old.iter().chain(&self.newest).filter(|set| set.count("/spec/replicas") > 0)
    }

    /// Follows a new size of the Deployment outside of a rollout, or proportionally in the middle of one.
    fn scale(&mut self) {
        let mut active: Vec<_> = self.active().cloned().collect();
        if active.len() <= 1 {
            let only = active.pop().or_else(|| self.newest.clone()).or_else(|| self.old.last().cloned());
            if let Some(only) = only {
                self.resize(&only, self.replicas(), false);
            }
            return;
        }
        let replicas = self.replicas();
        let saturated = self.newest.as_ref().is_some_and(|newest| {
            newest.count("/spec/replicas") == replicas
                && revision::number(newest, revision::DESIRED) == Some(replicas)
                && newest.count("/status/availableReplicas") == replicas
        });
        if saturated {
            self.stop_old();
            return;
        }
        if !size::is_rolling(&self.deployment) {
            return;
        }
        let total: i64 = active.iter().map(|set| set.count("/spec/replicas")).sum();
        let allowed = if replicas > 0 { replicas + limits(&self.deployment).surge } else { 0 };
        let to_add = allowed - total;
        // From the largest to the smallest; of equal ones the newer grows first and the older shrinks first.
        active.sort_by(|a, b| {
            let by_size = b.count("/spec/replicas").cmp(&a.count("/spec/replicas"));
            by_size.then_with(|| if to_add > 0 { age(b).cmp(&age(a)) } else { age(a).cmp(&age(b)) })
        });
        let mut remaining = to_add;
        let mut sizes = Vec::new();
        for set in &active {
            let proportion = size::proportion(set, &self.deployment, remaining);
            remaining -= proportion;
            sizes.push(set.count("/spec/replicas") + proportion);
        }
        for (index, (set, size)) in active.iter().zip(sizes).enumerate() {
            let leftover = if index == 0 { remaining } else { 0 };
            self.resize(set, (size + leftover).max(0), true);
        }
    }

    /// Sets the size of a ReplicaSet; returns whether it changed. With `annotate` its annotations are brought
    /// up to date even if the size stays.
    fn resize(&mut self, set: &Value, replicas: i64, annotate: bool) -> bool {
        let changes = set.count("/spec/replicas") != replicas;
        if !changes && !annotate {
            return false;
        }
        let mut resized = set.clone();
        resized["spec"]["replicas"] = replicas.into();
        let desired = self.replicas();
        revision::annotate_size(&mut resized, desired, desired + limits(&self.deployment).surge);
        if !differ(&resized, set) {
            return false;
        }
        self.requests.push(Request::update(&resources::replica_sets(), resized.clone()));
        if let Some(kept) = self.old.iter_mut().chain(&mut self.newest).find(|kept| kept.uid() == set.uid()) {
            *kept = resized;
        }
        changes
    }

    fn resize_newest(&mut self, replicas: i64) -> bool {
        let Some(newest) = self.newest.clone() else { return false };
        self.resize(&newest, replicas, false)
    }

    /// Scales the newest ReplicaSet up as far as the surge allows, or down to the size of the Deployment.
    fn grow_newest(&mut self) -> bool {
        let Some(newest) = &self.newest else { return false };
        let current = newest.count("/spec/replicas");
        let of_all = self.active().map(|set| set.count("/spec/replicas")).sum();
        let wanted = if current > self.replicas() {
            self.replicas()
        } else {
            size::newest(&self.deployment, current, of_all)
        };
        self.resize_newest(wanted)
    }

    /// Scales old ReplicaSets down: first Pods that are unavailable anyway, then as many as may be missing.
    fn shrink_old(&mut self) -> bool {
        let count = |sets: &mut dyn Iterator<Item = &Value>, pointer: &str| -> i64 {
            sets.map(|set| set.count(pointer)).sum()
        };
        let min_available = self.replicas() - limits(&self.deployment).unavailable;
        let new_unavailable = self
            .newest
            .as_ref()
            .map_or(0, |newest| newest.count("/spec/replicas") - newest.count("/status/availableReplicas"));
        let mut budget = count(&mut self.active(), "/spec/replicas") - min_available - new_unavailable;
        if budget <= 0 {
            return false;
        }
        let mut sizes: Vec<i64> = self.old.iter().map(|set| set.count("/spec/replicas")).collect();
        for (set, size) in self.old.iter().zip(&mut sizes) {
            let unhealthy = (*size - set.count("/status/availableReplicas")).clamp(0, budget);
            *size -= unhealthy;
            budget -= unhealthy;
        }
        let available = count(&mut self.active(), "/status/availableReplicas");
        let mut budget = (available - min_available).max(0);
        for size in &mut sizes {
            let step = (*size).min(budget);
            *size -= step;
            budget -= step;
        }
        let mut changed = false;
        for (set, size) in self.old.clone().iter().zip(sizes) {
            changed |= self.resize(set, size, false);
        }
        changed
    }

    /// Scales all old ReplicaSets to zero.
    fn stop_old(&mut self) -> bool {
        let mut changed = false;
        for set in self.old.clone() {
            changed |= self.resize(&set, 0, false);
        }
        changed
    }

    /// Whether Pods of old ReplicaSets still run.
    fn old_pods_run(&self, pods: &[&Arc<Value>]) -> bool {
        self.old.iter().any(|set| {
            set.count("/status/replicas") > 0
                || pods.iter().any(|pod| pod.is_controlled_by(set.uid()) && !has_ended(pod))
        })
    }

    fn forget_old_when_complete(&mut self) {
        if status::is_complete(&self.deployment, &self.deployment["status"]) {
            self.forget_old();
        }
    }

    /// Deletes the oldest of those ReplicaSets without Pods that are beyond the history limit.
    fn forget_old(&mut self) {
        let limit = self.deployment.int("/spec/revisionHistoryLimit");
        let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else { return };
        let mut sets: Vec<_> = self.old.iter().filter(|set| !set.is_deleting()).collect();
        sets.sort_by(|a, b| revision::of(a).cmp(&revision::of(b)).then_with(|| age(a).cmp(&age(b))));
        let surplus = sets.len().saturating_sub(limit);
        let unused = sets.iter().take(surplus).filter(|set| {
            set.count("/status/replicas") == 0
                && set.count("/spec/replicas") == 0
                && set.count("/metadata/generation") <= set.count("/status/observedGeneration")
        });
        self.requests.extend(unused.map(|set| Request::delete(&resources::replica_sets(), set, json!({}))));
    }

    fn set_revision(&mut self, revision: &str) -> bool {
        let changes = self.deployment.annotation(revision::REVISION) != Some(revision);
        if changes {
            revision::annotate(&mut self.deployment, revision::REVISION, revision);
        }
        changes
    }

    fn set_progressing(&mut self, value: &'static str, reason: &str, message: String) {
        let condition = Condition { kind: "Progressing", status: value, reason, message };
        status::set_condition(&mut self.deployment["status"], condition, self.now);
    }

    fn write_counts(&mut self) {
        let status = status::counted(&self.deployment, self.newest.as_ref(), &self.old, self.now);
        self.write_if_changed(status);
    }

    fn write_status(&mut self) {
        let status = status::of_rollout(&self.deployment, self.newest.as_ref(), &self.old, self.now);
        self.write_if_changed(status);
    }

    fn write_if_changed(&mut self, status: Value) {
        if differ(&self.deployment["status"], &status) {
            self.deployment["status"] = status;
            self.write_deployment();
        }
    }

    fn write_deployment(&mut self) {
        self.requests.push(Request::update_status(&resources::deployments(), self.deployment.clone()));
    }
}

/// Returns what ReplicaSets are ordered by: creation, then name.
fn age(set: &Value) -> (Option<Timestamp>, &str) {
    (set.time("/metadata/creationTimestamp"), set.name())
}
