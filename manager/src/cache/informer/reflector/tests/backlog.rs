//! Handlers that are slower than the server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::never_resync;
use crate::cache::tests::fixtures::{Rig, object, recorder};
use crate::cache::{Delta, DeltaHandler, KindStatus, UntypedStore};

/// A handler that measures the largest number of events or objects read and not yet delivered.
struct Lag {
    store: Weak<UntypedStore>,
    read: fn(&KindStatus) -> u64,
    delivered: AtomicU64,
    most: Arc<AtomicU64>,
}

impl DeltaHandler for Lag {
    fn handle(&self, _delta: &Delta<'_>) {
        let delivered = self.delivered.fetch_add(1, Ordering::Relaxed);
        let read = self.store.upgrade().map_or(0, |store| (self.read)(&store.status()));
        self.most.fetch_max(read.saturating_sub(delivered), Ordering::Relaxed);
    }
}

/// Returns a handler that measures its lag, and the largest lag so far.
fn lag(store: &Arc<UntypedStore>, read: fn(&KindStatus) -> u64) -> (Box<Lag>, Arc<AtomicU64>) {
    let most = Arc::new(AtomicU64::new(0));
    let store = Arc::downgrade(store);
    (Box::new(Lag { store, read, delivered: AtomicU64::new(0), most: Arc::clone(&most) }), most)
}

#[tokio::test(start_paused = true)]
async fn events_are_read_only_a_bounded_number_ahead_of_a_slow_handler() {
    let (_rig, store, stream) = Rig::synced(&[]).await;
    let (lag, most) = lag(&store, |status| status.events);
    let (handler, mut deltas) = recorder();
    let _subscriptions = (store.subscribe(lag), store.subscribe(handler));
    for version in 11..10_000 {
        stream.event("MODIFIED", &object("a", "u1", version));
    }
    deltas.take(9_988).await;
    assert!(deltas.next().await.ends_with("a@9999"), "no event is lost");
    let most = most.load(Ordering::Relaxed);
    assert!((100..1_100).contains(&most), "{most} events were read ahead of the handler");
}

#[tokio::test(start_paused = true)]
async fn a_list_in_one_chunk_is_read_only_a_bounded_number_ahead_of_a_slow_handler() {
    let mut rig = Rig::start(never_resync());
    let store = rig.config_maps();
    let (lag, most) = lag(&store, |status| status.objects as u64);
    let (handler, mut deltas) = recorder();
    let _subscriptions = (store.subscribe(lag), store.subscribe(handler));
    rig.server.next().await.refuse(422, "Invalid");
    let items: Vec<_> = (0..10_000).map(|n| object(&format!("n{n}"), &format!("u{n}"), 5)).collect();
    rig.server.next().await.page(30, "", &items);
    deltas.take(10_000).await;
    let most = most.load(Ordering::Relaxed);
    assert!((100..1_100).contains(&most), "{most} objects were read ahead of the handler");
}
