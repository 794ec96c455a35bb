//! Unit tests of reconcilers: feature `testing`, for `[dev-dependencies]` only.
//!
//! A reconciler reads from stores and writes through its context, so a test gives it both:
//! [`Store::from_objects`] makes a store of plain values, and [`Context::for_test`] a context with an API
//! server in memory ([`TestApi`]), which validates, applies, lists and watches as a real one does.
//! [`reconcile_once`] returns the outcome, the writes and the Events of one run. For tests on a cluster there
//! are [`eventually`] and [`Condition`], and [`rights`] runs one under exactly the rights that the code
//! declares.
//!
//! ```
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use mainstay::prelude::*;
//! use mainstay::testing::reconcile_once;
//! use serde_json::{from_value, json};
//!
//! /// Gives each `ConfigMap` a receipt.
//! struct Receipts(Store<ConfigMap>);
//!
//! impl Reconciler for Receipts {
//!     async fn reconcile(&self, name: &NamespacedName, cx: &Context) -> Outcome {
//!         let Some(map) = self.0.get(name)? else { return Ok(Action::Done) };
//!         let mut receipt = ConfigMap { data: map.data.clone(), ..ConfigMap::default() };
//!         receipt.metadata.name = Some(format!("{}-receipt", name.name()));
//!         cx.apply(&*map, &receipt).await?;
//!         Ok(Action::Done)
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let map = json!({"metadata": {"name": "web", "namespace": "shop"}, "data": {"tea": "3"}});
//! let maps = Store::from_objects([from_value(map).unwrap()]);
//! let cx = Context::for_test().with_store(&maps);
//! let (receipts, web) = (Receipts(maps), NamespacedName::namespaced("shop", "web"));
//!
//! let run = reconcile_once(&receipts, &web, &cx).await;
//! assert_eq!(run.action(), Action::Done);
//! assert_eq!(run.writes[0].to_string(), "apply configmaps shop/web-receipt");
//! assert_eq!(run.writes[0].body["data"]["tea"], "3");
//!
//! // The write has entered the store, so the second run sends nothing.
//! let run = reconcile_once(&receipts, &web, &cx).await;
//! assert!(run.writes.is_empty());
//! # }
//! ```

#![expect(clippy::panic, reason = "a helper of a test fails the test by panicking")]

mod api;
mod rights;
mod wait;

use std::ops::Deref;
use std::sync::Arc;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Resource;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::cache::{Store, UntypedStore};
use crate::client::Recorder;
use crate::client::events::RecordedEvents;
use crate::key::{Cause, Key, KindId, KindScope};
use crate::rbac::{Place, Within};
use crate::reconcile::{Action, Context, Outcome, Part, Reconciler, RunEnvironment, Writes};

pub use crate::client::events::RecordedEvent;
pub use api::{TestApi, Verb, Write};
pub use rights::{RightsError, RightsTest, rights};
pub use wait::{Condition, NotYet, eventually};

/// The name of the controller in the context of a unit test.
const CONTROLLER: &str = "test";

/// A [`Context`] for a unit test of a reconciler, with its API server and its Events. Made by
/// [`Context::for_test`]; derefs to `Context`.
#[derive(derive_more::Debug)]
#[debug("TestContext {{ context: {:?}, .. }}", self.context)]
pub struct TestContext {
    context: Context,
    run_environment: RunEnvironment,
    api: TestApi,
    events: RecordedEvents,
}

/// The result of one reconcile in a unit test: outcome, writes and Events.
#[derive(Debug)]
#[must_use]
pub struct Run {
    /// The outcome that the reconciler returned.
    pub outcome: Outcome,
    /// The writes that the reconciler sent, in order, including refused ones and dry runs.
    pub writes: Vec<Write>,
    /// The Events that the reconciler recorded, in order.
    pub events: Vec<RecordedEvent>,
}

/// Runs a reconciler once for `request`, without queue and timeout, and returns its outcome, writes and
/// Events. Panics are not caught.
pub async fn reconcile_once<Q: Key>(reconciler: &impl Reconciler<Q>, request: &Q, cx: &TestContext) -> Run {
    // Writes and Events of the test itself, before this run.
    drop((cx.api.take_writes(), cx.events.take()));
    let outcome = reconciler.reconcile(request, cx).await;
    Run { outcome, writes: cx.api.take_writes(), events: cx.events.take() }
}

// === impl TestContext ===

impl Context {
    /// Makes a context for a unit test: first attempt, no deadline, and an empty API server in memory
    /// ([`TestApi`]). Only with feature `testing`.
    ///
    /// # Panics
    /// Panics outside a tokio runtime, because kube needs one to make a client: use `#[tokio::test]`.
    #[must_use]
    pub fn for_test() -> TestContext {
        let (recorder, events) = Recorder::in_memory(CONTROLLER);
        let api = TestApi::new();
        let run_environment = RunEnvironment::new(api.client(), recorder, CancellationToken::new());
        TestContext { context: run_environment.context(), run_environment, api, events }
    }
}

impl TestContext {
    /// Gives the API server of the unit test the objects of this store. Writes enter the store, as in a
    /// manager. The reconciler may write the kind of the store with [`Context::apply`].
    ///
    /// # Panics
    /// Panics on an object whose resourceVersion is no number, as no API server would store it.
    #[must_use]
    #[track_caller]
    pub fn with_store<K>(self, store: &Store<K>) -> Self {
        self.api.follow(store.untyped());
        let compare_with = |writes: &mut Writes| writes.compare_with(store.untyped());
        self.writing(store.untyped().kind(), compare_with)
    }

    /// Serves the custom resource of this definition, with its defaults and validation. Must come before the
    /// stores of the kind; without a definition, every field is accepted.
    ///
    /// # Panics
    /// Panics on a definition that an API server refuses.
    #[must_use]
    #[track_caller]
    pub fn with_definition(self, definition: &CustomResourceDefinition) -> Self {
        self.api.define(json!(definition));
        self
    }

    /// Lets the reconciler under test write a kind with [`Context::apply`], as [`Controller::writes`] does.
    /// Not needed for the kind of a store that was given.
    ///
    /// [`Controller::writes`]: crate::controller::Controller::writes
    #[must_use]
    #[track_caller]
    pub fn with_writes<K>(self) -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: KindScope,
    {
        let kind = KindId::of::<K>();
        self.api.serve(&kind);
        self.writing(&kind, |_| {})
    }

    #[track_caller]
    fn writing(mut self, kind: &KindId, change: impl FnOnce(&mut Writes)) -> Self {
        let mut writes = Writes::clone(&self.run_environment.writes);
        for part in [Part::Object, Part::Status] {
            writes.declare(kind, part, Within::Served, Place::caller());
        }
        change(&mut writes);
        self.run_environment.writes = Arc::new(writes.of(&CONTROLLER.into(), &CONTROLLER.into()));
        let attempt = self.context.attempt();
        self.with_attempt(attempt)
    }

    /// Sets the number of the attempt that the reconciler sees, as if the key had failed `attempt - 1` times
    /// in a row.
    #[must_use]
    pub fn with_attempt(self, attempt: u32) -> Self {
        let cause = self.context.cause().clone();
        self.rebuilt(attempt, cause)
    }

    /// Sets the cause that the reconciler sees, by which the key was enqueued.
    #[must_use]
    pub fn with_cause(self, cause: Cause) -> Self {
        let attempt = self.context.attempt();
        self.rebuilt(attempt, cause)
    }

    /// Sets the number of the term of leadership that the reconciler sees, which is 0 by default.
    #[must_use]
    pub fn with_term(mut self, term: u64) -> Self {
        let deadline = self.context.deadline();
        self.context = self.context.within(term, deadline);
        self
    }

    /// Sets the time that [`Context::deadline`] returns. A run that passes it is not dropped.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Instant) -> Self {
        let term = self.context.term();
        self.context = self.context.within(term, Some(deadline));
        self
    }

    /// Sets the client that the reconciler gets, for another server than [`TestApi`], which then gets no
    /// requests.
    #[must_use]
    pub fn with_client(mut self, client: kube::Client) -> Self {
        self.run_environment.client = client;
        let (attempt, cause) = (self.context.attempt(), self.context.cause().clone());
        self.rebuilt(attempt, cause)
    }

    /// Returns the API server of the unit test, to script its answers.
    pub fn api(&self) -> &TestApi {
        &self.api
    }

    /// Removes and returns the writes that were sent through this context, in order, since the last call or
    /// [`reconcile_once`]: for a reconciler that writes in a further cluster, with a context of its own.
    pub fn take_writes(&self) -> Vec<Write> {
        self.api.take_writes()
    }

    /// Removes and returns the Events that were recorded through this context, in order, since the last call
    /// or [`reconcile_once`].
    pub fn take_events(&self) -> Vec<RecordedEvent> {
        self.events.take()
    }

    fn rebuilt(mut self, attempt: u32, cause: Cause) -> Self {
        let (deadline, term) = (self.context.deadline(), self.context.term());
        let run_environment = Arc::new(self.run_environment.clone());
        self.context = Context::new(run_environment, attempt, cause).within(term, deadline);
        self
    }
}

impl Deref for TestContext {
    type Target = Context;

    fn deref(&self) -> &Context {
        &self.context
    }
}

// === impl Run ===

impl Run {
    /// Returns the action that the reconciler returned, if it returned no error.
    ///
    /// # Panics
    /// Panics, with the error, if the run failed.
    #[track_caller]
    pub fn action(&self) -> Action {
        match &self.outcome {
            Ok(action) => *action,
            Err(error) => panic!("the run failed: {error}"),
        }
    }

    /// Returns each write of the reconcile as a line, such as `apply deployments.apps shop/web`.
    pub fn wrote(&self) -> Vec<String> {
        self.writes.iter().map(ToString::to_string).collect()
    }
}

// === impl Store ===

impl<K> Store<K>
where
    K: Resource<DynamicType = ()> + Serialize,
    K::Scope: KindScope,
{
    /// Makes a store of these objects, synced and in all namespaces. A missing namespace becomes `default`; a
    /// missing uid and resourceVersion are filled in. Only with feature `testing`.
    ///
    /// # Panics
    /// Panics on an object without a name.
    #[must_use]
    pub fn from_objects(objects: impl IntoIterator<Item = K>) -> Self {
        let values = objects.into_iter().map(|object| match serde_json::to_value(&object) {
            Ok(value) => value,
            Err(error) => panic!("an object for a store is not JSON: {error}"),
        });
        Self::from_values(&KindId::of::<K>(), values)
    }
}

impl<K> Store<K> {
    /// Makes a store of these JSON objects as [`Store::from_objects`] does, for a kind that may be known only
    /// at run time.
    ///
    /// # Panics
    /// Panics on a value that is no object of this kind or has no name.
    #[must_use]
    pub fn from_values(kind: &KindId, objects: impl IntoIterator<Item = Value>) -> Self {
        let mut objects: Vec<Value> = objects.into_iter().collect();
        let mut version = 0;
        for (object, number) in objects.iter_mut().zip(1_u64..) {
            complete(kind, object, number);
            let given = object["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok());
            version = version.max(given.unwrap_or(0));
        }
        match UntypedStore::filled(kind, &objects, version) {
            Ok(store) => Self::new(store),
            Err(error) => panic!("a store of {kind} cannot hold this object: {error}"),
        }
    }
}

/// Fills in the metadata of a test's object that a server would have set: namespace, uid and resourceVersion.
fn complete(kind: &KindId, object: &mut Value, number: u64) {
    let Some(fields) = object.as_object_mut() else { panic!("a {kind} cannot be {object}") };
    let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
    let Some(metadata) = metadata.as_object_mut() else { panic!("the metadata of a {kind} is {metadata}") };
    let mut default = |field: &str, value: String| {
        let slot = metadata.entry(field).or_insert(Value::Null);
        if slot.is_null() || slot == "" {
            *slot = Value::String(value);
        }
    };
    if kind.is_namespaced() {
        default("namespace", "default".to_owned());
    }
    default("uid", format!("uid-{number}"));
    default("resourceVersion", number.to_string());
}

#[cfg(test)]
mod tests;
