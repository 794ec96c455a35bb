//! The Kubernetes API without HTTP: requests with a verb, a resource and options, and their responses.
//!
//! [`Api::call`] is the entry point. A write is decoded and defaulted, its changes are recorded in
//! `managedFields`, it passes the admission hooks and validation, and is then stored with optimistic
//! concurrency. Reads and watches return encodings that the store shares among all readers.

pub mod admission;
mod builtin;
mod call;
mod client_config;
mod conversion;
mod create;
mod definitions;
mod delete;
mod derived;
mod events;
mod import;
mod list;
mod object;
mod options;
mod patch;
mod rbac;
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
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};

use crate::kinds::Kind;
use crate::kinds::custom::CustomKind;
use crate::kinds::printers::Printer;
use crate::store::{Clock, FileError, Store, Window};
use admission::{Admission, Classes, Configured, NamespaceLifecycle};
use call::Call;
use derived::Derived;
use rbac::Rbac;
use registry::Registry;
use served::Served;
use services::Reserved;
use subresources::Tokens;

pub use rbac::{Access, Action};
pub use request::{Body, PatchType, Query, Request, Target, User, Verb};
pub use response::{Content, List, Object, Response};
pub use selector::LabelSelector;
pub use status::{Cause, Details, Failure, Status};
pub use watch::{Watch, WatchEvent};

/// An API server without HTTP; clones share one server.
#[derive(Clone)]
pub struct Api {
    shared: Arc<Shared>,
}

/// The settings of an [`Api`].
#[derive(Clone)]
pub struct ApiOptions {
    /// Source of the wall-clock time.
    pub clock: Clock,
    /// Seed of uids, generated names, addresses, tokens and the default durations of watches.
    pub seed: u64,
    /// Limits of the history, per resource.
    pub window: Window,
    /// Admission hooks, called after the hooks of the server itself.
    pub admission: Vec<Arc<dyn Admission>>,
    /// Whether users have only the rights that Roles and `ClusterRoles` give them. On by default; without it
    /// every user may do everything.
    pub rbac: bool,
}

struct Shared {
    store: Store,
    clock: Clock,
    random: Mutex<fastrand::Rng>,
    registry: RwLock<Arc<Registry>>,
    tokens: Tokens,
    reserved: Reserved,
    rbac: Rbac,
    admission: Vec<Arc<dyn Admission>>,
    configured: Derived<Configured>,
}

// === impl ApiOptions ===

impl ApiOptions {
    /// Returns settings with a random seed, the default window and no hooks.
    pub fn new(clock: Clock) -> Self {
        let (seed, window) = (fastrand::u64(..), Window::default());
        Self { clock, seed, window, admission: Vec::new(), rbac: true }
    }
}

impl fmt::Debug for ApiOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiOptions")
            .field("seed", &self.seed)
            .field("window", &self.window)
            .field("rbac", &self.rbac)
            .finish_non_exhaustive()
    }
}

// === impl Api ===

impl Api {
    /// Returns a server with the objects of every new cluster: its namespaces, the Service `kubernetes`, and
    /// the roles and bindings of Kubernetes. Waits only for the admission hooks of the options.
    pub async fn new(options: ApiOptions) -> Self {
        let store = Store::new(options.window, Arc::clone(&options.clock));
        Self::on(store, options).await
    }

    /// Returns a server with the objects of a file, as [`Store::open`] reads it; one of a new file has the
    /// objects of every new cluster.
    ///
    /// # Errors
    /// Those of [`Store::open`].
    pub async fn open(path: &Path, options: ApiOptions) -> Result<Self, FileError> {
        let store = Store::open(path, options.window, Arc::clone(&options.clock))?;
        Ok(Self::on(store, options).await)
    }

    async fn on(store: Store, options: ApiOptions) -> Self {
        let mut admission: Vec<Arc<dyn Admission>> =
            vec![Arc::new(NamespaceLifecycle::new(store.clone())), Arc::new(Classes::new(store.clone()))];
        admission.extend(options.admission);
        let shared = Shared {
            store,
            clock: options.clock,
            random: Mutex::new(fastrand::Rng::with_seed(options.seed)),
            registry: RwLock::new(Arc::new(Registry::builtin())),
            tokens: Tokens::default(),
            reserved: Reserved::default(),
            rbac: Rbac::new(options.rbac),
            admission,
            configured: Derived::default(),
        };
        let api = Self { shared: Arc::new(shared) };
        if api.shared.store.is_empty() {
            api.create_first_objects().await;
        } else {
            api.restore_definitions();
        }
        api.prepare_policy(options.seed);
        api
    }

    /// Executes a request.
    pub async fn call(&self, request: Request) -> Result<Response, Status> {
        self.call_with(request, |_| ()).await
    }

    async fn call_with(&self, request: Request, adjust: impl FnOnce(&mut Call)) -> Result<Response, Status> {
        let served = self.target(&request.target)?;
        let mut call = Call::new(served, request);
        adjust(&mut call);
        let is_write = !matches!(call.verb, Verb::Get | Verb::List | Verb::Watch);
        if is_write {
            self.store().check_file().map_err(|error| Status::internal(error.to_string()))?;
        }
        let mut outcome = self.dispatch(&mut call).await;
        if is_write && outcome.is_ok() {
            let written = self.store().written().await;
            outcome = written.map_err(|error| Status::internal(error.to_string())).and(outcome);
        }
        match outcome {
            Ok(response) => Ok(Response { warnings: call.into_warnings(), ..response }),
            Err(status) => Err(status.with_warnings(call.into_warnings())),
        }
    }

    /// Returns the kind served under a group, version and plural name; `None` if there is none.
    pub fn kind(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.served(group, version, plural).map(|served| Arc::clone(&served.kind))
    }

    /// Returns all served kinds, sorted by group, version and plural name.
    pub fn kinds(&self) -> Vec<Arc<Kind>> {
        let mut kinds: Vec<_> = self.registry().all().map(|served| Arc::clone(&served.kind)).collect();
        kinds.sort_by(|a, b| (&a.group, &a.version, &a.plural).cmp(&(&b.group, &b.version, &b.plural)));
        kinds
    }

    /// Returns the served versions of custom resources, sorted by group, version and plural name.
    pub(crate) fn custom_kinds(&self) -> Vec<Arc<CustomKind>> {
        let registry = self.registry();
        let custom = registry.all().filter_map(|served| served.custom.as_ref());
        let mut kinds: Vec<_> = custom.map(|custom| Arc::clone(&custom.version)).collect();
        kinds.sort_by(|a, b| (&a.api_version, &a.kind.plural).cmp(&(&b.api_version, &b.kind.plural)));
        kinds
    }

    /// Returns the printer of the tables of a served kind, or of a subresource of it.
    pub(crate) fn printer(&self, kind: &Kind, subresource: &str) -> Printer {
        let served = self.served(&kind.group, &kind.version, &kind.plural);
        let custom = served.as_ref().and_then(|served| served.custom.as_ref());
        match (subresource, custom) {
            ("scale", custom) => Printer::scale(custom.is_some()),
            ("token", _) => Printer::plain(),
            (_, Some(custom)) => Printer::custom(&custom.version.columns),
            (_, None) => Printer::built_in(kind),
        }
    }

    /// Returns the store, for compaction and metrics.
    pub fn store(&self) -> &Store {
        &self.shared.store
    }

    fn registry(&self) -> Arc<Registry> {
        Arc::clone(&self.shared.registry.read())
    }

    fn target(&self, target: &Target) -> Result<Arc<Served>, Status> {
        self.served(&target.group, &target.version, &target.resource)
            .ok_or_else(|| Status::new(404, "NotFound", "the server could not find the requested resource"))
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

    pub(crate) fn now(&self) -> jiff::Timestamp {
        (self.shared.clock)()
    }

    fn random<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.shared.random.lock())
    }
}

impl fmt::Debug for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Api").field("store", &self.shared.store).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
