//! A cache of one kind beside the manager's, with a record of every change it delivers,
//! to test the guarantees of stores.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use mainstay::cache::{Cache, CacheSettings, Delta, DeltaHandler, Scope, Store, Subscription, View};
use mainstay::client::{Connections, Current as _, Role, infer};
use mainstay::key::Fence;
use mainstay::metrics::Registry;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::TestCluster;
use crate::middlebox::Middlebox;

/// A cache that follows the `ConfigMap`s of one test's namespace through a middlebox. Dropping it stops the
/// cache.
pub struct Follower {
    /// The store of the `ConfigMap`s.
    pub store: Store<ConfigMap>,
    /// The relay between the watches of the cache and the API server; writes bypass it.
    pub middlebox: Middlebox,
    /// A client with writes that count as own writes of the cache.
    pub writer: kube::Client,
    /// Every change delivered to a handler since the start.
    pub books: Arc<Books>,
    cache: Cache,
    _subscription: Subscription,
    _running: JoinSet<()>,
}

/// Records the changes that a handler receives, and the contradictions among them.
#[derive(Debug)]
pub struct Books {
    kept: Mutex<Kept>,
    /// The number of changes received so far.
    count: watch::Sender<u64>,
}

/// The content of the [`Books`]: recorded changes, and the objects by them.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// The objects after the last change: uid and resourceVersion by name.
    pub objects: BTreeMap<String, (String, String)>,
    /// The changes of each object by its name, in the order of delivery.
    pub changes: BTreeMap<String, Vec<Change>>,
    /// The uids of deleted objects.
    pub deleted: BTreeSet<String>,
    /// The contradictions found: a change that does not follow the recorded state, or a deleted uid that came
    /// back.
    pub wrong: Vec<String>,
}

/// A change of an object: its resourceVersions before and after; None if the object did not exist.
pub type Change = (Option<String>, Option<String>);

struct Handler(Arc<Books>);

// === impl Follower ===

impl Follower {
    /// Starts the cache of `ConfigMap`s and waits for the first sync.
    pub async fn start(cluster: &TestCluster) -> Self {
        let mut config = infer(Some(cluster.kubeconfig_path()), None).await;
        let direct = config.as_mut().unwrap_or_else(|error| panic!("no connection: {error}")).clone();
        let middlebox = Middlebox::before(cluster.address()).await;
        let mut through = direct.clone();
        let url = format!("https://{}/", middlebox.address());
        through.cluster_url = url.parse().unwrap_or_else(|error| panic!("{url}: {error}"));

        let registry = Registry::new();
        let connect = |config| {
            Connections::new(config, &registry).unwrap_or_else(|error| panic!("no connection: {error}"))
        };
        let (far, near) = (connect(through), connect(direct));
        let watching = far.client(Role::Watches).unwrap_or_else(|error| panic!("no client: {error}"));
        let settings =
            CacheSettings { namespaces: vec![cluster.namespace().to_owned()], ..CacheSettings::default() };
        let cache = Cache::new(settings, watching, &registry);
        near.observe(Arc::new(cache.clone()));
        let writer =
            near.client(Role::Writes(Fence::open())).unwrap_or_else(|error| panic!("no client: {error}"));

        let store = cache.store::<ConfigMap>(Scope::all());
        let books = Arc::new(Books { kept: Mutex::default(), count: watch::Sender::new(0) });
        let subscription = store.untyped().subscribe(Box::new(Handler(Arc::clone(&books))));
        let mut running = JoinSet::new();
        let to_run = cache.clone();
        running.spawn(async move { to_run.run(CancellationToken::new()).await });
        cache.settled().await;
        Self { store, middlebox, writer, books, cache, _subscription: subscription, _running: running }
    }

    /// Returns the store of all namespaces (the kind), from the same cache.
    pub async fn namespaces(&self) -> Store<Namespace> {
        let namespaces = self.cache.store::<Namespace>(Scope::all());
        namespaces.untyped().settled().await;
        namespaces
    }

    /// Returns the status of the store of `ConfigMap`s, if no other store was declared.
    pub fn status(&self) -> mainstay::cache::KindStatus {
        self.cache.kinds().pop().unwrap_or_else(|| panic!("one store was declared"))
    }
}

impl std::fmt::Debug for Follower {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Follower").field("cache", &self.cache).finish_non_exhaustive()
    }
}

// === impl Books ===

impl Books {
    /// Returns a copy of the changes and objects recorded so far.
    pub fn kept(&self) -> Kept {
        self.kept.lock().clone()
    }

    /// Waits until `accepts` returns true for the recorded changes and objects.
    pub async fn until(&self, accepts: impl Fn(&Kept) -> bool) {
        let mut count = self.count.subscribe();
        // The sender lives in `self`.
        drop(count.wait_for(|_| accepts(&self.kept.lock())).await);
    }
}

impl Kept {
    fn take(&mut self, delta: &Delta<'_>) {
        let of = |view: &View| (view.uid().to_string(), view.meta().resource_version.to_string());
        let Some(latest) = delta.latest() else {
            return self.wrong.push("a change without objects".to_owned());
        };
        let name = latest.meta().name().to_owned();
        let (old, new) = (delta.old.map(of), delta.new.map(of));
        if self.objects.get(&name) != old.as_ref() {
            let was = self.objects.get(&name);
            self.wrong.push(format!("{name} was {was:?}, not {old:?}, before it became {new:?}"));
        }
        let versions = (old.as_ref().map(|(_, at)| at.clone()), new.as_ref().map(|(_, at)| at.clone()));
        self.changes.entry(name.clone()).or_default().push(versions);
        match new {
            Some((uid, _)) if self.deleted.contains(&uid) => {
                self.wrong.push(format!("{name} {uid} came back"));
            }
            Some(new) => drop(self.objects.insert(name, new)),
            None => {
                self.deleted.extend(old.map(|(uid, _)| uid));
                self.objects.remove(&name);
            }
        }
    }
}

impl DeltaHandler for Handler {
    fn handle(&self, delta: &Delta<'_>) {
        self.0.kept.lock().take(delta);
        self.0.count.send_modify(|count| *count += 1);
    }

    fn name(&self) -> &'static str {
        "books"
    }
}
