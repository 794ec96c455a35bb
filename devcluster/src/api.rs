//! The Kubernetes API without HTTP: verbs on resources, with everything that a request passes through.
//!
//! [`Api::call`] is the one way in. A write is decoded, passes the admission hooks, gets its defaults, is validated,
//! and has its ownership recorded; then the store keeps it under optimistic concurrency. Reads and watches return
//! the encodings that the store shares among all readers.

pub mod admission;
mod builtin;
mod call;
mod create;
mod definitions;
mod delete;
mod events;
mod list;
mod object;
mod options;
mod patch;
mod registry;
mod request;
mod response;
mod scale;
mod selector;
mod served;
mod services;
mod start;
mod status;
mod subresources;
mod update;
mod watch;

use std::fmt;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use serde_json::Value;

use crate::kinds::Kind;
use crate::kinds::custom::CustomKind;
use crate::store::{Clock, Store, Window};
use admission::{Admission, NamespaceLifecycle};
use call::Call;
use registry::Registry;
use served::Served;
use subresources::Tokens;

pub use request::{Body, PatchType, Query, Request, Target, User, Verb};
pub use response::{Content, List, Object, Response};
pub use selector::LabelSelector;
pub use status::{Cause, Details, Failure, Status};
pub use watch::{Watch, WatchEvent};

/// A server without HTTP; clones share it.
#[derive(Clone)]
pub struct Api {
    shared: Arc<Shared>,
}

/// The settings of an [`Api`].
#[derive(Clone)]
pub struct ApiOptions {
    /// The wall clock.
    pub clock: Clock,
    /// The seed of uids, generated names and the lengths of watches.
    pub seed: u64,
    /// How much of the past is kept.
    pub window: Window,
    /// Hooks for writes, besides those of the server itself.
    pub admission: Vec<Arc<dyn Admission>>,
}

struct Shared {
    store: Store,
    clock: Clock,
    random: Mutex<fastrand::Rng>,
    registry: RwLock<Arc<Registry>>,
    tokens: Tokens,
    admission: Vec<Arc<dyn Admission>>,
}

// === impl ApiOptions ===

impl ApiOptions {
    /// Settings with the clock and the random seed of the machine.
    pub fn new(clock: Clock) -> Self {
        Self { clock, seed: fastrand::u64(..), window: Window::default(), admission: Vec::new() }
    }
}

impl fmt::Debug for ApiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiOptions")
            .field("seed", &self.seed)
            .field("window", &self.window)
            .finish_non_exhaustive()
    }
}

// === impl Api ===

impl Api {
    /// Starts a server with what every cluster holds: its namespaces and the Service `kubernetes`.
    pub async fn new(options: ApiOptions) -> Self {
        let store = Store::new(options.window, Arc::clone(&options.clock));
        let mut admission: Vec<Arc<dyn Admission>> = vec![Arc::new(NamespaceLifecycle::new(store.clone()))];
        admission.extend(options.admission);
        let shared = Shared {
            store,
            clock: options.clock,
            random: Mutex::new(fastrand::Rng::with_seed(options.seed)),
            registry: RwLock::new(Arc::new(Registry::builtin())),
            tokens: Tokens::default(),
            admission,
        };
        let api = Self { shared: Arc::new(shared) };
        api.create_first_objects().await;
        api
    }

    /// Does what a request asks for.
    pub async fn call(&self, request: Request) -> Result<Response, Status> {
        let target = &request.target;
        let served = self.served(&target.group, &target.version, &target.resource).ok_or_else(|| {
            Status::new(404, "NotFound", "the server could not find the requested resource")
        })?;
        let mut call = Call::new(served, request);
        let mut response = self.dispatch(&mut call).await?;
        response.warnings = call.into_warnings();
        Ok(response)
    }

    /// Returns the kind that is served under a group, version and plural name.
    pub fn kind(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.served(group, version, plural).map(|served| Arc::clone(&served.kind))
    }

    /// Returns all served kinds, sorted by group, version and plural name.
    pub fn kinds(&self) -> Vec<Arc<Kind>> {
        let mut kinds: Vec<_> = self.registry().all().map(|served| Arc::clone(&served.kind)).collect();
        kinds.sort_by(|a, b| (&a.group, &a.version, &a.plural).cmp(&(&b.group, &b.version, &b.plural)));
        kinds
    }

    /// Returns what a custom resource has besides its kind, such as its columns; `None` for built-in kinds.
    pub fn custom_kind(&self, group: &str, version: &str, plural: &str) -> Option<Arc<CustomKind>> {
        let served = self.served(group, version, plural)?;
        served.custom.as_ref().map(|custom| Arc::clone(&custom.version))
    }

    /// Returns the store, for compaction and figures.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.shared.registry.read())
    }

    fn served(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Served>> {
        self.registry().find(group, version, plural).map(Arc::clone)
    }

    fn change_registry(&self, change: impl FnOnce(&mut Registry)) {
        let mut current = self.shared.registry.write();
        let mut registry = Registry::clone(&current);
        change(&mut registry);
        *current = Arc::new(registry);
    }

    fn now(&self) -> jiff::Timestamp {
        (self.shared.clock)()
    }

    fn random<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.shared.random.lock())
    }

    /// Passes a write through the hooks that may change it.
    async fn admit(
        &self,
        call: &mut Call,
        operation: admission::Operation,
        old: Option<&Value>,
        object: &mut Value,
    ) -> Result<(), Status> {
        for hook in &self.shared.admission {
            let warnings = hook.admit(&call.attributes(operation, old), object).await?;
            call.warnings.extend(warnings);
        }
        Ok(())
    }

    /// Passes a write through the hooks that may only refuse it.
    async fn validate(
        &self,
        call: &mut Call,
        operation: admission::Operation,
        old: Option<&Value>,
        object: &Value,
    ) -> Result<(), Status> {
        for hook in &self.shared.admission {
            let warnings = hook.validate(&call.attributes(operation, old), object).await?;
            call.warnings.extend(warnings);
        }
        Ok(())
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("store", &self.shared.store).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
