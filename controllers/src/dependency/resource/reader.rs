//! The observations of one WaitDeployment's resource checks, read from the cache.

use kube::core::DynamicObject;
use mainstay::cache::{Entry, Store};
use mainstay::key::{Key as _, NamespacedName};
use mainstay_api::PlannedDependency;
use mainstay_api::plan::{Objects, ResourceCheck, ResourceState};
use tokio::time::Instant;

use super::check::{gvk, is_final, kind_name, select, verb};
use super::messages::{self, ObjectsText, of_found, of_trouble, unreadable};
use super::rights::Answer;
use super::state::{Found, compare};
use super::{Resources, questions};
use crate::dependency::observation::{Observation, State};
use crate::reasons::{self, resource};

/// Maximum number of objects that the selector of one check may select: each is read whenever one of them
/// changes.
pub(super) const MAX_SELECTED: usize = 500;
/// Maximum size of the JSON that the checks of one WaitDeployment may read in one reconcile, in bytes,
/// counted once per step of a path. A worker of a controller is busy for some hundredths of a second with it.
const MAX_BYTES: usize = 8 << 20;

/// Reads the objects of the `resource` checks of one WaitDeployment from the cache, within one bound of
/// bytes. See [`Resources::watch`].
#[derive(Debug)]
pub struct ResourceReader<'a> {
    resources: &'a Resources,
    request: &'a NamespacedName,
    /// The ServiceAccount of the WaitDeployment's Pod template, which must have access to the objects.
    account: String,
    bytes_left: usize,
}

/// The observation of a check if its objects cannot be read, or if their state is known without reading them.
type NotRead = Observation;

// === impl ResourceReader ===

impl<'a> ResourceReader<'a> {
    pub(super) fn new(resources: &'a Resources, request: &'a NamespacedName, account: String) -> Self {
        Self { resources, request, account, bytes_left: MAX_BYTES }
    }

    /// Returns the observation of a dependency with a `resource` check.
    pub fn observe(&mut self, dependency: &PlannedDependency, check: &ResourceCheck) -> Observation {
        self.read(dependency, check).unwrap_or_else(|not_read| not_read)
    }

    fn read(
        &mut self,
        dependency: &PlannedDependency,
        check: &ResourceCheck,
    ) -> Result<Observation, NotRead> {
        let namespace = self.request.namespace().unwrap_or_default();
        let store = self.readable(namespace, check)?;
        let objects = ObjectsText { namespace, check };
        let entries = match &check.objects {
            Objects::Name(name) => {
                let entry = store.entry(&NamespacedName::namespaced(namespace, name.as_str()));
                match entry.map_err(|error| unreadable(&store, &error))? {
                    Some(entry) => vec![entry],
                    None if self.had_succeeded(dependency, check) => {
                        let reason = resource::GONE_AFTER_SUCCESS;
                        return Ok(Observation::new(State::Ready, reason, objects.in_state()));
                    }
                    None => {
                        let message = format!("{objects} does not exist");
                        return Err(Observation::not_ready(resource::NOT_FOUND, message));
                    }
                }
            }
            Objects::Selector(selector) => {
                let invalid = |cause| Observation::invalid(reasons::probe::FAILED, cause);
                let select = select(namespace, selector).map_err(invalid)?;
                store.list(&select).map_err(|error| unreadable(&store, &error))?
            }
        };
        if entries.is_empty() {
            return Err(Observation::not_ready(resource::NOT_FOUND, format!("{objects} do not exist")));
        }
        if entries.len() > MAX_SELECTED {
            let message = format!("{objects} are more than {MAX_SELECTED}; narrow the selector");
            return Err(Observation::blind(resource::TOO_MANY_OBJECTS, message));
        }
        let mut worst = Found::InState;
        for entry in &entries {
            worst = worst.max(self.compare(&store, entry, &objects)?);
        }
        Ok(of_found(&objects, worst))
    }

    fn compare(
        &mut self,
        store: &Store<DynamicObject>,
        entry: &Entry<DynamicObject>,
        objects: &ObjectsText<'_>,
    ) -> Result<Found, NotRead> {
        let json = entry.view().bytes().map_err(|error| unreadable(store, &error))?;
        let times = match &objects.check.state {
            ResourceState::Condition { .. } => 1,
            ResourceState::JsonPath { path, .. } => path.step_count(),
        };
        let bytes_left = self.bytes_left.checked_sub(json.len().saturating_mul(times));
        self.bytes_left = bytes_left.ok_or_else(|| {
            let message = format!(
                "the objects of all checks of this WaitDeployment are too large to be read together, and \
                 {objects} come last; narrow the selectors or shorten the paths"
            );
            Observation::blind(resource::TOO_MANY_OBJECTS, message)
        })?;
        let found = compare(objects.check, &json, entry.meta().generation);
        found.map_err(|refused| messages::of_refusal(objects, refused))
    }

    /// Returns the store of the check's kind, if `probePolicy.resources` lists the kind and the
    /// ServiceAccount may read the objects.
    fn readable(&self, namespace: &str, check: &ResourceCheck) -> Result<Store<DynamicObject>, NotRead> {
        let (kind, now, account) = (gvk(check), Instant::now(), &self.account);
        let shared = &self.resources.shared;
        let mut known = shared.known.lock();
        let name = kind_name(&kind);
        if !known.allowed.contains(&name) {
            let message = format!("kind {name} is not among probePolicy.resources");
            return Err(Observation::new(State::Denied, reasons::POLICY_DENIED, message));
        }
        let (kind, store) = match known.kinds.open(&kind, now) {
            Ok(open) => (open.kind.clone(), open.store.clone()),
            Err(trouble) => {
                drop(known);
                shared.wake.notify_one();
                return Err(trouble.map_or_else(Observation::unknown, |trouble| of_trouble(check, &trouble)));
            }
        };
        let answer = questions(namespace, account, &kind, check)
            .map(|question| known.rights.answer(&question, now))
            .find(|answer| *answer != Some(Answer::No))
            .unwrap_or(Some(Answer::No));
        drop(known);
        match answer {
            Some(Answer::Yes) => Ok(store),
            Some(Answer::No) => {
                let (verb, objects) = (verb(check), ObjectsText { namespace, check });
                let message = format!(
                    "ServiceAccount {namespace}/{account} of the template may not {verb} {objects}; allow it \
                     by a Role"
                );
                Err(Observation::blind(resource::ACCESS_DENIED, message))
            }
            Some(Answer::Failed) => Err(Observation::blind(
                resource::ACCESS_UNKNOWN,
                format!("the access review of ServiceAccount {namespace}/{account} failed"),
            )),
            None => {
                shared.wake.notify_one();
                Err(Observation::unknown())
            }
        }
    }

    /// Returns whether the deleted object of a check was in the state before. The status of the
    /// WaitDeployment records that, whichever replica wrote it.
    fn had_succeeded(&self, dependency: &PlannedDependency, check: &ResourceCheck) -> bool {
        let Ok(Some(object)) = self.resources.shared.objects.get(self.request) else { return false };
        let Some(status) = object.status.as_ref().filter(|_| is_final(check)) else { return false };
        let ready = status.dependencies.iter().find(|entry| entry.name == dependency.name && entry.ready);
        // An edit may have put another object under the name of the dependency; the message names the object.
        let message =
            ObjectsText { namespace: self.request.namespace().unwrap_or_default(), check }.in_state();
        ready.is_some_and(|entry| entry.message.as_ref() == Some(&message))
    }
}
