//! Builds an answer from the cache and the probe engine.

use std::collections::BTreeSet;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use mainstay::cache::Store;
use mainstay::inspect::PageError;
use mainstay::key::{Key as _, NamespacedName};
use mainstay_api::plan::{Objects, ResourceCheck, ResourceState};
use mainstay_api::wait_for::HttpScheme;
use mainstay_api::{Check, GROUP, KIND, Plan, PlannedDependency, ProbeCheck, WaitDeployment};
use serde_json::Value;
use tokio::sync::watch;

use super::{Answer, Dependency, Probe};
use crate::dependency::probe::{Description, MAX_NAMED, NextProbe};
use crate::dependency::{Dependencies, Described};
use crate::reasons::condition;
use crate::selector;

/// Maximum number of WaitDeployments that one answer of the page shows with their dependencies: tenants
/// choose how many there are.
pub(super) const MAX_EXPANDED: usize = 100;

/// The debug page about a WaitDeployment and its dependencies.
#[derive(Clone, Debug)]
pub struct Why {
    objects: Store<WaitDeployment>,
    dependencies: Dependencies,
    leading: watch::Receiver<bool>,
}

// === impl Why ===

impl Why {
    /// Makes the debug page about the WaitDeployments in `objects`.
    pub fn new(
        objects: &Store<WaitDeployment>,
        dependencies: Dependencies,
        leading: watch::Receiver<bool>,
    ) -> Self {
        Self { objects: objects.clone(), dependencies, leading }
    }

    /// Returns the answer of the page about a WaitDeployment, as JSON; `path` is the rest of the request's
    /// path, a namespace and a name.
    ///
    /// # Errors
    /// Fails if `path` is anything else, or the cache has no such object.
    pub fn page(&self, path: &[&str], now: Timestamp) -> Result<Value, PageError> {
        let [namespace, name] = path else {
            let text = "expected /debug/waitdeployments/NAMESPACE/NAME";
            return Err(PageError::BadRequest(text.to_owned()));
        };
        let request = NamespacedName::namespaced(*namespace, *name);
        let answer = self.answer(&request, now, &mut BTreeSet::new())?;
        let answer = answer
            .ok_or_else(|| PageError::NotFound(format!("no WaitDeployment {request} is known here")))?;
        serde_json::to_value(answer).map_err(|error| PageError::Unavailable(error.to_string()))
    }

    /// Returns the answer about a WaitDeployment, or `None` if it does not exist. Objects in `expanded` have
    /// their dependencies elsewhere in the answer already.
    fn answer(
        &self,
        request: &NamespacedName,
        now: Timestamp,
        expanded: &mut BTreeSet<NamespacedName>,
    ) -> Result<Option<Answer>, PageError> {
        let object = self.objects.get(request).map_err(|error| PageError::Unavailable(error.to_string()))?;
        let Some(object) = object else { return Ok(None) };
        let mut answer = self.answer_from_status(request, &object, now);
        if expanded.len() >= MAX_EXPANDED || !expanded.insert(request.clone()) {
            answer.elsewhere = true;
            return Ok(Some(answer));
        }
        match object.plan() {
            Err(invalid) => answer.invalid = Some(invalid.to_string()),
            Ok(plan) => {
                answer.on_deadline = format!("{:?}", plan.on_deadline);
                answer.r#match = format!("{:?}", plan.match_policy);
                answer.dependencies = self.dependencies(request, &object, &plan, now, expanded);
            }
        }
        Ok(Some(answer))
    }

    /// Returns the part of the answer about a WaitDeployment that is in its status.
    fn answer_from_status(
        &self,
        request: &NamespacedName,
        object: &WaitDeployment,
        now: Timestamp,
    ) -> Answer {
        let ready = object.condition(condition::READY);
        let text = |text: Option<&String>| text.cloned().unwrap_or_default();
        let status = object.status.clone().unwrap_or_default();
        Answer {
            namespace: request.namespace().unwrap_or_default().to_owned(),
            name: request.name().to_owned(),
            leading: *self.leading.borrow(),
            ready: text(ready.map(|ready| &ready.status)),
            reason: text(ready.and_then(|ready| ready.reason.as_ref())),
            message: text(ready.and_then(|ready| ready.message.as_ref())),
            observed: status.observed_generation == object.metadata.generation,
            closed_seconds: status.gate_closed_time.map(|closed| seconds_since(&closed, now)),
            deadline_seconds: status.deadline_time.map(|deadline| -seconds_since(&deadline, now)),
            ..Answer::default()
        }
    }

    fn dependencies(
        &self,
        request: &NamespacedName,
        object: &WaitDeployment,
        plan: &Plan,
        now: Timestamp,
        expanded: &mut BTreeSet<NamespacedName>,
    ) -> Vec<Dependency> {
        let described = self.dependencies.describe(request, plan);
        let mut lines = Vec::with_capacity(plan.dependencies.len());
        for (dependency, described) in plan.dependencies.iter().zip(described) {
            let mut line = dependency_from_status(object, dependency, now);
            match described {
                Described::Cached { others } => {
                    line.others = others.len();
                    line.named = others.iter().take(MAX_NAMED).map(ToString::to_string).collect();
                }
                Described::Probed(description) => {
                    line.others = description.others;
                    line.named = description.named.iter().map(ToString::to_string).collect();
                    line.probe = Some(Probe::from(&*description));
                }
                Described::NotRegistered => {}
            }
            if let Some(next) = awaited_object(request, &dependency.check) {
                // For an object that cannot be read, the message of the dependency has the cause.
                line.waits = self.answer(&next, now, expanded).ok().flatten().map(Box::new);
            }
            lines.push(line);
        }
        lines
    }
}

/// Returns the part of a dependency's state that is in the status of the WaitDeployment.
fn dependency_from_status(
    object: &WaitDeployment,
    dependency: &PlannedDependency,
    now: Timestamp,
) -> Dependency {
    let status = object.status.as_ref();
    let entry =
        status.and_then(|status| status.dependencies.iter().find(|entry| entry.name == dependency.name));
    let text = |text: Option<&String>| text.cloned().unwrap_or_default();
    Dependency {
        name: dependency.name.clone(),
        check: check_text(&dependency.check),
        optional: dependency.optional,
        ready: entry.map(|entry| entry.ready),
        reason: text(entry.and_then(|entry| entry.reason.as_ref())),
        message: text(entry.and_then(|entry| entry.message.as_ref())),
        since_seconds: entry
            .and_then(|entry| entry.last_transition_time.as_ref())
            .map(|since| seconds_since(since, now)),
        ..Dependency::default()
    }
}

/// Returns the WaitDeployment that a check waits for by name; `None` for a check of anything else.
fn awaited_object(request: &NamespacedName, check: &Check) -> Option<NamespacedName> {
    match check {
        Check::Resource(ResourceCheck { group, kind, objects: Objects::Name(name), .. })
            if group == GROUP && kind == KIND =>
        {
            Some(NamespacedName::namespaced(request.namespace().unwrap_or_default(), name.as_str()))
        }
        _ => None,
    }
}

/// Returns a text that describes a check in a few words, such as `TCP db:5432`.
fn check_text(check: &Check) -> String {
    match check {
        Check::Service(service) => {
            let port = service.port.as_ref().map(|port| format!(", port {port}")).unwrap_or_default();
            let count = if service.min_ready > 1 {
                format!(", {} endpoints", service.min_ready)
            } else {
                String::new()
            };
            format!("Service {}{port}{count}", service.name)
        }
        Check::Probe(ProbeCheck::Tcp(address)) => format!("TCP {address}"),
        Check::Probe(ProbeCheck::Http(http)) => {
            let scheme = match http.scheme {
                HttpScheme::Http => "http",
                HttpScheme::Https => "https",
            };
            format!("GET {scheme}://{}{}", http.address, http.path)
        }
        Check::Probe(ProbeCheck::Grpc(grpc)) => {
            let service = if grpc.service.is_empty() { "the server" } else { &grpc.service };
            format!("gRPC health of {service} at {}", grpc.address)
        }
        Check::Probe(ProbeCheck::Tls(tls)) => format!("TLS {} as {}", tls.address, tls.server_name),
        Check::Probe(ProbeCheck::Dns(dns)) => format!("DNS {} ({:?})", dns.name, dns.record),
        Check::Resource(resource) => {
            let objects = match &resource.objects {
                Objects::Name(name) => name.clone(),
                Objects::Selector(selector) => format!("with {}", selector::text_of(selector)),
            };
            let state = match &resource.state {
                ResourceState::Condition { type_, status } => format!("{type_}={status}"),
                ResourceState::JsonPath { path, value } => format!("{path}={value}"),
            };
            format!("{} {objects}: {state}", resource.kind)
        }
    }
}

fn seconds_since(time: &Time, now: Timestamp) -> f64 {
    now.duration_since(time.0).as_secs_f64()
}

// === impl Probe ===

impl From<&Description> for Probe {
    fn from(description: &Description) -> Self {
        let seconds = |duration: Option<std::time::Duration>| duration.map(|duration| duration.as_secs_f64());
        let (next, delayed_by) = match description.next {
            NextProbe::In(next) => (Some(next.as_secs_f64()), None),
            NextProbe::InFlight => (None, Some("inFlight")),
            NextProbe::Delayed(limit) => (None, Some(limit.as_str())),
            NextProbe::OverTargetLimit => (None, Some("max_targets_per_namespace")),
        };
        Self {
            period_seconds: description.period.as_secs_f64(),
            began_seconds: seconds(description.began),
            took_seconds: seconds(description.took),
            last: description.result.as_ref().map(|result| result.reason().to_owned()),
            unchanged_seconds: seconds(description.unchanged_for),
            successes: description.successes,
            failures: description.failures,
            next_seconds: next,
            delayed_by: delayed_by.map(str::to_owned),
        }
    }
}
