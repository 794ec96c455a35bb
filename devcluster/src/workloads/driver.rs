//! The task of all controllers: applies watch events to the view, and reconciles one item after another.
//!
//! # Invariants
//! 1. No item is reconciled before the view contains all earlier writes of the driver: `awaited` has the
//!    revision of the newest write to each resource. client-go's expectations are therefore not needed.
//! 2. A resource is in `watched` as long as its watch is in `events`.

mod absent;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{FutureExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use serde_json::Value;
use tokio::time::Instant;

use self::absent::{Absent, confirm};
use super::client::{Client, Event, Request, RequestError, Verb};
use super::object::Object as _;
use super::time::Advances;
use super::triggers::{self, Change};
use super::view::{Name, View};
use super::work::{Item, Work};
use super::{
    Decision, Options, aggregation, cron_job, deployment, endpoints, event, garbage, job, namespace, pod,
    replica_set, resources,
};
use crate::store::GroupResource;

/// Delay before another attempt to open a watch.
const REOPEN: Duration = Duration::from_millis(100);

/// An event of a resource; `None` means that its watch has ended.
type Arrival = (GroupResource, Option<Event>);

/// The controllers and their state.
pub(super) struct Driver<C> {
    client: C,
    options: Options,
    view: View,
    work: Work,
    events: SelectAll<BoxStream<'static, Arrival>>,
    watched: BTreeSet<GroupResource>,
    /// The newest revision of each resource that the view contains.
    seen: HashMap<GroupResource, u64>,
    /// The revision of the driver's newest write to each resource, until the view contains it.
    awaited: HashMap<GroupResource, u64>,
    /// Resources without a watch; a resource that is no longer served is dropped at the next attempt.
    unwatched: BTreeSet<GroupResource>,
    /// Number of addresses that were assigned to Pods, modulo 2^32.
    addresses: u32,
    advances: Advances,
}

impl<C: Client> Driver<C> {
    pub(super) fn new(client: C, options: Options, advances: Advances) -> Self {
        Self {
            client,
            options,
            view: View::default(),
            work: Work::default(),
            events: SelectAll::new(),
            watched: BTreeSet::new(),
            seen: HashMap::new(),
            awaited: HashMap::new(),
            unwatched: BTreeSet::new(),
            addresses: 0,
            advances,
        }
    }

    /// Runs the controllers; never returns.
    pub(super) async fn run(mut self) {
        self.refresh_kinds();
        self.add(Item::Node);
        loop {
            self.open_watches().await;
            while let Some(Some(arrival)) = self.events.next().now_or_never() {
                self.arrive(arrival);
            }
            let reopen = !self.unwatched.is_empty();
            if !reopen
                && !self.lags()
                && let Some(item) = self.work.take(Instant::now())
            {
                self.pass(item).await;
                continue;
            }
            let due = self.work.next_due().filter(|_| !reopen && !self.lags());
            if !reopen && !self.lags() && self.advances.is_moving() {
                // A task that has run for long without a pause gets no events although there are some: tokio
                // makes its streams pending until it yields.
                tokio::task::yield_now().await;
                if let Some(Some(arrival)) = self.events.next().now_or_never() {
                    self.arrive(arrival);
                } else {
                    let left = due.map(|due| due.saturating_duration_since(Instant::now()));
                    self.work.advance(self.advances.step(left));
                }
                continue;
            }
            let due = if reopen { Some(Instant::now() + REOPEN) } else { due };
            // All branches only end the wait, so their order does not matter.
            tokio::select! {
                Some(arrival) = self.events.next() => self.arrive(arrival),
                () = self.advances.arrive() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    fn now(&self) -> Timestamp {
        (self.options.clock)()
    }

    fn add(&mut self, item: Item) {
        if self.options.controllers.contains(&item.controller()) {
            self.work.add(item);
        }
    }

    /// Whether the view lacks a write of this driver.
    fn lags(&self) -> bool {
        self.awaited.iter().any(|(resource, revision)| {
            self.watched.contains(resource) && self.seen.get(resource).is_none_or(|seen| seen < revision)
        })
    }

    // --- Watches ---

    /// Reads the served kinds, and enqueues all objects with owners, because an owner's kind may be new.
    fn refresh_kinds(&mut self) {
        let served: BTreeSet<_> = self.view.set_kinds(self.client.kinds()).into_iter().collect();
        self.unwatched = served.difference(&self.watched).cloned().collect();
        for uid in self.view.owned() {
            self.add(Item::Garbage(uid));
        }
    }

    /// Opens the missing watches. A watch that fails to open stays in `unwatched`.
    async fn open_watches(&mut self) {
        for resource in std::mem::take(&mut self.unwatched) {
            match self.client.watch(&resource).await {
                Ok(watch) => {
                    self.watched.insert(resource.clone());
                    self.replace(&resource, watch.objects);
                    self.note_revision(&resource, watch.revision);
                    let named = resource.clone();
                    let events = watch.events.map(move |event| (named.clone(), Some(event)));
                    let end = stream::once(std::future::ready((resource, None)));
                    self.events.push(events.chain(end).boxed());
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => {
                    tracing::debug!(%resource, %error, "cannot watch");
                    self.unwatched.insert(resource);
                }
            }
        }
    }

    /// Replaces the objects of a resource by those of a list.
    fn replace(&mut self, resource: &GroupResource, objects: Vec<Arc<Value>>) {
        let listed: BTreeSet<_> = objects.iter().map(|object| Name::of(object)).collect();
        let gone: Vec<_> = self
            .view
            .all(resource)
            .map(|object| Name::of(object))
            .filter(|name| !listed.contains(name))
            .collect();
        for name in gone {
            self.remove(resource, &name);
        }
        for object in objects {
            self.put(resource, &object);
        }
    }

    fn arrive(&mut self, (resource, event): Arrival) {
        match event {
            Some(Event::Put(object)) => {
                self.note_object(&resource, &object);
                self.put(&resource, &object);
            }
            Some(Event::Gone(object)) => {
                self.note_object(&resource, &object);
                self.remove(&resource, &Name::of(&object));
            }
            None => {
                self.watched.remove(&resource);
                if self.view.is_served(&resource) {
                    self.unwatched.insert(resource.clone());
                } else {
                    self.replace(&resource, Vec::new());
                }
            }
        }
        if resource == resources::custom_resource_definitions() {
            self.refresh_kinds();
        }
    }

    fn put(&mut self, resource: &GroupResource, object: &Arc<Value>) {
        let old = self.view.put(resource, Arc::clone(object));
        self.trigger(Change { resource, old: old.as_ref(), new: Some(object) });
    }

    fn remove(&mut self, resource: &GroupResource, name: &Name) {
        let old = self.view.remove(resource, name);
        self.trigger(Change { resource, old: old.as_ref(), new: None });
    }

    fn trigger(&mut self, change: Change<'_>) {
        let (work, controllers) = (&mut self.work, &self.options.controllers);
        triggers::of(&self.view, change, &mut |item: Item| {
            if controllers.contains(&item.controller()) {
                work.add(item);
            }
        });
    }

    fn note_object(&mut self, resource: &GroupResource, object: &Value) {
        if let Some(revision) = revision_of(object) {
            self.note_revision(resource, revision);
        }
    }

    fn note_revision(&mut self, resource: &GroupResource, revision: u64) {
        let seen = self.seen.entry(resource.clone()).or_default();
        *seen = revision.max(*seen);
        if self.awaited.get(resource).is_some_and(|awaited| *awaited <= *seen) {
            self.awaited.remove(resource);
        }
    }

    // --- Work ---

    /// Reconciles an item: sends the requests of its controller.
    async fn pass(&mut self, item: Item) {
        let decision = match &item {
            Item::Garbage(uid) => {
                let (decision, absent) = self.decide_garbage(uid);
                if let Err(error) = confirm(&self.client, absent).await {
                    return self.failed(item, &error);
                }
                decision
            }
            _ => self.decide(&item, None),
        };
        match self.send_all(decision.requests).await {
            Ok(()) => self.work.succeeded(&item),
            Err(error) => {
                // A ReplicaSet reports the failure in its status.
                let report = self.decide(&item, Some(&error));
                if let Err(error) = self.send_all(report.requests).await {
                    tracing::debug!(?item, %error, "cannot report a failure");
                }
                return self.failed(item, &error);
            }
        }
        if let Some(at) = decision.again_at {
            let delay = Duration::try_from(at.duration_since(self.now())).unwrap_or_default();
            self.work.add_at(item, Instant::now() + delay);
        }
    }

    fn failed(&mut self, item: Item, error: &RequestError) {
        tracing::debug!(?item, %error, "retry");
        self.work.retry(item, Instant::now());
    }

    /// Returns the decision about an item. With `failure` it only contains the report of the failure.
    fn decide(&mut self, item: &Item, failure: Option<&RequestError>) -> Decision {
        let now = self.now();
        if let Item::Pod(name) = item {
            return if failure.is_none() { self.decide_pod(name, now) } else { Decision::default() };
        }
        let view = &self.view;
        let get = |resource: GroupResource, name: &Name| view.get(&resource, name);
        let list = |resource: GroupResource, namespace: &str| view.in_namespace(&resource, namespace);
        match (item, failure) {
            (Item::ReplicaSet(name), failure) => {
                let Some(set) = get(resources::replica_sets(), name) else { return Decision::default() };
                let pods = list(resources::pods(), &name.namespace);
                let message = failure.map(|error| error.message.as_str());
                replica_set::decide(set, pods, message, now)
            }
            (_, Some(_)) | (Item::Pod(_) | Item::Garbage(_), None) => Decision::default(),
            (Item::Deployment(name), None) => {
                let Some(deployment) = get(resources::deployments(), name) else {
                    return Decision::default();
                };
                let sets = list(resources::replica_sets(), &name.namespace);
                deployment::decide(deployment, &sets, &list(resources::pods(), &name.namespace), now)
            }
            (Item::Event(name), None) => {
                let event = get(resources::events(), name);
                event.map(|event| event::decide(event, now)).unwrap_or_default()
            }
            (Item::Job(name), None) => {
                let job = get(resources::jobs(), name);
                job::decide(&name.name, job, list(resources::pods(), &name.namespace), now)
            }
            (Item::CronJob(name), None) => {
                let Some(cron_job) = get(resources::cron_jobs(), name) else { return Decision::default() };
                cron_job::decide(cron_job, list(resources::jobs(), &name.namespace), now)
            }
            (Item::Namespace(name), None) => {
                let namespace = get(resources::namespaces(), &Name::new("", name));
                namespace
                    .map(|namespace| namespace::decide_deletion(namespace, &view.content(name), now).into())
                    .unwrap_or_default()
            }
            (Item::NamespaceDefaults(name), None) => {
                let Some(namespace) = get(resources::namespaces(), &Name::new("", name)) else {
                    return Decision::default();
                };
                let account = get(resources::service_accounts(), &Name::new(name, "default"));
                let config = get(resources::config_maps(), &Name::new(name, namespace::ROOT_CA));
                namespace::decide_defaults(namespace, account, config, &self.options.root_ca).into()
            }
            (Item::Node, None) => {
                let node = get(resources::nodes(), &Name::new("", pod::NODE));
                pod::decide_node(node.map(AsRef::as_ref), now).into()
            }
            (Item::ClusterRoles, None) => aggregation::decide(view.all(&resources::cluster_roles())).into(),
            (Item::EndpointSlices(name), None) => {
                let Some(service) = get(resources::services(), name) else { return Decision::default() };
                let pods = list(resources::pods(), &name.namespace);
                endpoints::decide_slices(service, &pods, &list(resources::endpoint_slices(), &name.namespace))
                    .into()
            }
            (Item::Endpoints(name), None) => {
                let service = get(resources::services(), name).map(AsRef::as_ref);
                let present = get(resources::endpoints(), name).map(AsRef::as_ref);
                endpoints::decide_endpoints(name, service, &list(resources::pods(), &name.namespace), present)
                    .into()
            }
        }
    }

    fn decide_pod(&mut self, name: &Name, now: Timestamp) -> Decision {
        let Some(pod) = self.view.get(&resources::pods(), name) else { return Decision::default() };
        let node = self.view.get(&resources::nodes(), &Name::new("", pod::NODE));
        let schedulable =
            node.is_some_and(|node| node.has_condition("Ready") && node["spec"]["unschedulable"] != true);
        let decision = pod::decide(pod, pod::address(self.addresses), schedulable, now);
        let starts = pod.text("/status/podIP").is_empty();
        if starts && decision.requests.iter().any(|request| request.subresource == "status") {
            self.addresses = self.addresses.wrapping_add(1);
        }
        decision
    }

    /// Returns the decision of the garbage collector about an object, and the absent owners that it relies
    /// on. The caller must confirm their absence before it sends the requests.
    fn decide_garbage(&self, uid: &str) -> (Decision, Vec<Absent>) {
        let Some((resource, object)) = self.view.by_uid(uid) else { return Default::default() };
        let requests = garbage::decide(&self.view, resource, object);
        let mut absent = Vec::new();
        if !requests.is_empty() && !object.is_deleting() {
            absent.extend(garbage::absent_owners(&self.view, object).filter_map(|owner| {
                let (resource, namespace) = self.view.place_of(object, owner)?;
                let name = Name::new(&namespace, owner.text("/name"));
                Some(Absent { resource, name, uid: owner.text("/uid").to_owned() })
            }));
        }
        (requests.into(), absent)
    }

    /// Sends requests in order and stops at the first error. A write to a missing object, and a create in a
    /// namespace that is being deleted, are no errors.
    async fn send_all(&mut self, requests: Vec<Request>) -> Result<(), RequestError> {
        for request in requests {
            let (verb, resource) = (request.verb, request.resource.clone());
            match self.client.send(request).await {
                Ok(object) => {
                    // The response to a deletion has no revision to wait for: it is a `Status`, or the object
                    // before the deletion.
                    let written =
                        matches!(verb, Verb::Create | Verb::Update | Verb::MergePatch | Verb::Apply);
                    if let Some(revision) =
                        revision_of(&object).filter(|_| written && object["kind"] != "Status")
                    {
                        let awaited = self.awaited.entry(resource.clone()).or_default();
                        *awaited = revision.max(*awaited);
                        self.note_revision(&resource, 0);
                    }
                }
                Err(error) if error.is_not_found() && verb != Verb::Create => {}
                Err(error) if error.is_namespace_terminating() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Sleeps until a time; `None` sleeps forever.
async fn sleep_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}

fn revision_of(object: &Value) -> Option<u64> {
    object.text("/metadata/resourceVersion").parse().ok()
}
