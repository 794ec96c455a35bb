//! The same work done by kube's own `reflector::Store`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube_runtime::reflector::{self, Store};
use kube_runtime::watcher::{self, Event, watcher};

/// kube's store of Pods.
pub(crate) struct Peer {
    /// Kept alive for the objects in it.
    _store: Store<Pod>,
    /// Events ingested so far, the events of the list included.
    pub(crate) taken: Arc<AtomicUsize>,
}

// === impl Peer ===

impl Peer {
    /// Returns a store and the task that fills it.
    pub(crate) fn new(client: kube::Client) -> (Self, Pin<Box<dyn Future<Output = ()>>>) {
        let (store, writer) = reflector::store();
        let taken = Arc::new(AtomicUsize::new(0));
        let counted = taken.clone();
        let events = watcher(Api::<Pod>::all(client), watcher::Config::default().streaming_lists());
        let task = reflector::reflector(writer, events).for_each(move |event| {
            if let Ok(Event::Apply(_) | Event::Delete(_) | Event::InitApply(_)) = event {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            std::future::ready(())
        });
        (Self { _store: store, taken }, Box::pin(task))
    }
}
