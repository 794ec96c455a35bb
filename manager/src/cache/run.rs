//! Runs the stores of a cache: starts those that were declared, and stops them.

use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::{Cache, Inner};
use crate::cache::informer::Reflector;
use crate::cache::store::{DeliveryGuard, Dispatcher, ObjectStore, Packer, Rules, SubScope, UntypedStore};
use crate::key::panic_text;
use crate::util::resume_panic;

// === impl Cache ===

impl Cache {
    /// Runs every declared store until `stop` is cancelled, including those declared meanwhile. Returns when
    /// all tasks have ended. A store runs once: after the stop its contents stay readable and are not updated
    /// any more.
    ///
    /// # Panics
    /// Resumes the panic of a store's task: otherwise reads would return the store's contents as current
    /// although they are not updated any more. Panics of handlers, index functions and transforms are caught
    /// earlier.
    ///
    /// # Cancel safety
    /// Dropping it stops the tasks at their next await.
    pub async fn run(&self, stop: CancellationToken) {
        let mut tasks = JoinSet::new();
        loop {
            for store in self.0.begin() {
                let span =
                    tracing::info_span!("cache", kind = %store.kind, cluster = self.0.cluster.as_deref());
                tasks.spawn(self.0.clone().run_logged(store, stop.clone()).instrument(span));
            }
            // The stop first: afterwards a declaration or the end of a store needs no attention.
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = self.0.declared.notified() => {}
                Some(ended) = tasks.join_next() => resume_panic(ended),
            }
        }
        while let Some(ended) = tasks.join_next().await {
            resume_panic(ended);
        }
    }
}

// === impl Inner ===

impl Inner {
    /// Decides for each store declared since the last call whether it reads through a wider store, and
    /// returns the stores to start.
    fn begin(&self) -> Vec<Arc<ObjectStore>> {
        let transforms = self.transforms.read();
        let stores = self.stores();
        for store in stores.iter().filter(|store| !store.reads_through() && !store.core().is_started()) {
            if let Some((wide, sub_scope)) = widest(&stores, store) {
                store.read_through(wide, sub_scope);
            }
        }
        let own = stores.iter().filter(|store| !store.reads_through());
        own.map(|store| store.core()).filter(|core| core.start(transforms.get(&core.kind))).cloned().collect()
    }

    /// Runs the tasks of one store; logs and resumes a panic.
    async fn run_logged(self: Arc<Self>, store: Arc<ObjectStore>, stop: CancellationToken) {
        let kind = store.kind.clone();
        if let Err(panic) = AssertUnwindSafe(self.run_store(store, stop)).catch_unwind().await {
            tracing::error!(%kind, panic = panic_text(&*panic), "cache task panicked");
            resume_unwind(panic);
        }
    }

    /// Runs the reflectors, dispatcher, resync and packer of a store in one task, so that an event goes from
    /// the socket to the handlers without waking another one.
    async fn run_store(self: Arc<Self>, store: Arc<ObjectStore>, stop: CancellationToken) {
        let _guard = DeliveryGuard(store.clone());
        let reflectors = (0..store.parts.len()).map(|part| {
            let random = self.random.lock().fork();
            Reflector::new(self.client.clone(), store.clone(), part, random).run()
        });
        let reflectors = join_all(reflectors.collect::<Vec<_>>());
        let dispatcher = Dispatcher::new(store.clone()).run();
        let random = self.random.lock().fork();
        let resync = resync(store.clone(), self.settings.resync, random);
        let pack = self.settings.pack;
        let packer = Packer::new(store.clone(), pack, Rules::default(), self.compressor.clone()).run();
        let work = async { tokio::join!(reflectors, dispatcher, resync, packer) };
        // The stop first: no event is delivered after it.
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            () = store.retired.cancelled() => store.clear(),
            _ = work => {}
        }
    }
}

/// Finds a wider store for a narrow one to read through: one that has started, or that is not itself a part
/// of another one.
fn widest<'s>(
    stores: &'s [Arc<UntypedStore>],
    narrow: &UntypedStore,
) -> Option<(&'s Arc<UntypedStore>, SubScope)> {
    let part_of_another = |store: &UntypedStore| stores.iter().any(|wide| store.sub_scope_of(wide).is_some());
    stores.iter().find_map(|wide| {
        let sub_scope = narrow.sub_scope_of(wide).filter(|_| !wide.reads_through())?;
        (wide.core().is_started() || !part_of_another(wide)).then_some((wide, sub_scope))
    })
}

/// Enqueues a resync of all objects of a store once per period; never if the period is zero.
async fn resync(store: Arc<ObjectStore>, period: Duration, mut random: fastrand::Rng) {
    if period.is_zero() {
        return;
    }
    loop {
        tokio::time::sleep(period.mul_f64(1.0 - random.f64() / 10.0)).await;
        store.queue_resync();
    }
}
