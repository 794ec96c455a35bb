//! Objects, handlers, stores and a scripted server for the tests of the cache.

pub(crate) mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cache::object::{Labels, ResourceVersion, Scan, StoreContext};
use crate::cache::store::{Dispatcher, ObjectStore, Received};
use crate::cache::{Cache, CacheSettings, Delta, DeltaHandler, Projection, Scope, UntypedStore, View};
use crate::client::Writer;
use crate::key::{KindId, NamespacedName};
use crate::metrics::Registry;

pub(crate) fn config_map() -> KindId {
    KindId::of::<ConfigMap>()
}

pub(crate) fn request(name: &str) -> NamespacedName {
    NamespacedName::namespaced("shop", name)
}

/// A `ConfigMap` in namespace `shop`.
pub(crate) fn object(name: &str, uid: &str, version: u64) -> Value {
    object_in("shop", name, uid, version)
}

pub(crate) fn object_in(namespace: &str, name: &str, uid: &str, version: u64) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": uid,
            "resourceVersion": version.to_string(),
            "managedFields": [{"manager": "test"}],
        },
        "data": {"at": version.to_string()},
    })
}

pub(crate) fn view_of(object: &Value) -> View {
    let raw = object.to_string();
    let context = Arc::new(StoreContext::new(config_map(), usize::MAX));
    let (meta, body) = Scan::open(raw.as_bytes()).unwrap().finish(&context, Projection::Full).unwrap();
    View::new(context, meta, body)
}

pub(crate) fn view(name: &str, uid: &str, version: u64) -> View {
    view_of(&object(name, uid, version))
}

pub(crate) fn labels(pairs: &[(&str, &str)]) -> Labels {
    let mut object = object("labelled", "u", 1);
    object["metadata"]["labels"] = json!(pairs.iter().copied().collect::<BTreeMap<_, _>>());
    view_of(&object).meta().labels.clone()
}

/// A handler that records each delta as a line such as `+ a@5 initial` or `a@5 -> a@6 own`.
pub(crate) struct DeltaRecorder(tokio::sync::mpsc::UnboundedSender<String>);

/// Receives the lines of a [`DeltaRecorder`].
pub(crate) struct RecordedDeltas(tokio::sync::mpsc::UnboundedReceiver<String>);

pub(crate) fn recorder() -> (Box<DeltaRecorder>, RecordedDeltas) {
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    (Box::new(DeltaRecorder(sender)), RecordedDeltas(receiver))
}

impl DeltaHandler for DeltaRecorder {
    fn handle(&self, delta: &Delta<'_>) {
        let side = |view: &View| format!("{}@{}", view.meta().name(), view.meta().resource_version);
        let mut line = match (delta.old, delta.new) {
            (Some(old), Some(new)) => format!("{} -> {}", side(old), side(new)),
            (None, Some(new)) => format!("+ {}", side(new)),
            (Some(old), None) => format!("- {}", side(old)),
            (None, None) => "nothing".to_owned(),
        };
        for (set, word) in
            [(delta.initial, " initial"), (delta.resync, " resync"), (delta.own_write.is_some(), " own")]
        {
            line.push_str(if set { word } else { "" });
        }
        drop(self.0.send(line));
    }

    fn name(&self) -> &'static str {
        "recorder"
    }
}

impl RecordedDeltas {
    pub(crate) async fn next(&mut self) -> String {
        self.0.recv().await.unwrap()
    }

    pub(crate) async fn take(&mut self, count: usize) -> Vec<String> {
        let mut lines = Vec::new();
        for _ in 0..count {
            lines.push(self.next().await);
        }
        lines
    }

    /// Returns whether the test has taken all lines.
    pub(crate) fn is_empty(&mut self) -> bool {
        self.0.try_recv().is_err()
    }
}

/// A store without a server that the test fills and changes by hand. Dropping it stops its dispatcher.
pub(crate) struct ByHand {
    pub(crate) store: Arc<UntypedStore>,
    _dispatcher: JoinSet<()>,
}

impl ByHand {
    /// Makes a store of these objects, listed at version 10.
    pub(crate) fn listed(objects: &[Value]) -> Self {
        let by_hand = Self::unlisted();
        by_hand.relisted(objects, 10);
        by_hand
    }

    /// Makes a store that has not synced yet.
    pub(crate) fn unlisted() -> Self {
        let limits = CacheSettings::default().limits();
        let core = ObjectStore::new(config_map(), Scope::all(), Projection::Full, vec![None], limits);
        let store = Arc::new(UntypedStore::new(core));
        store.core().start(None);
        let mut dispatcher = JoinSet::new();
        dispatcher.spawn(Dispatcher::new(Arc::clone(store.core())).run());
        Self { store, _dispatcher: dispatcher }
    }

    /// Applies a complete list of these objects.
    pub(crate) fn relisted(&self, objects: &[Value], version: u64) {
        let epoch = self.store.core().begin_list();
        for object in objects {
            self.store.core().receive(0, Received::Listed(epoch), object.to_string().as_bytes());
        }
        self.store.core().end_list(0, epoch, &ResourceVersion::new(&version.to_string()));
    }

    pub(crate) fn changed(&self, object: &Value) {
        self.store.core().receive(0, Received::Changed, object.to_string().as_bytes());
    }

    pub(crate) fn deleted(&self, object: &Value) {
        self.store.core().receive(0, Received::Deleted, object.to_string().as_bytes());
    }

    pub(crate) fn resynced(&self) {
        self.store.core().queue_resync();
    }

    /// Applies an own write.
    pub(crate) fn written(&self, object: &Value, writer: Writer) {
        assert!(self.store.core().written(object.to_string().as_bytes(), writer), "the store applies it");
    }
}

/// A running cache against a scripted server. Dropping it aborts the cache.
pub(crate) struct Rig {
    pub(crate) cache: Cache,
    pub(crate) server: server::Server,
    pub(crate) tasks: JoinSet<()>,
    pub(crate) stop: CancellationToken,
}

impl Rig {
    pub(crate) fn start(settings: CacheSettings) -> Self {
        let (server, client) = server::scripted();
        let cache = Cache::new(settings, client, &Registry::new());
        *cache.0.random.lock() = fastrand::Rng::with_seed(7);
        let stop = CancellationToken::new();
        let mut tasks = JoinSet::new();
        let (running, stopped) = (cache.clone(), stop.clone());
        tasks.spawn(async move { running.run(stopped).await });
        Self { cache, server, tasks, stop }
    }

    pub(crate) fn config_maps(&self) -> Arc<UntypedStore> {
        self.cache.kind(config_map(), Scope::all(), Projection::Full)
    }

    /// Starts with `objects` in a streamed list at version 10; the watch continues on the returned stream.
    pub(crate) async fn synced(objects: &[Value]) -> (Self, Arc<UntypedStore>, server::Stream) {
        let settings = CacheSettings { resync: Duration::ZERO, ..CacheSettings::default() };
        Self::synced_with(settings, objects).await
    }

    pub(crate) async fn synced_with(
        settings: CacheSettings,
        objects: &[Value],
    ) -> (Self, Arc<UntypedStore>, server::Stream) {
        let mut rig = Self::start(settings);
        let store = rig.config_maps();
        let stream = rig.server.next().await.stream();
        for object in objects {
            stream.event("ADDED", object);
        }
        stream.end_of_initial_events(10);
        store.settled().await;
        (rig, store, stream)
    }
}
