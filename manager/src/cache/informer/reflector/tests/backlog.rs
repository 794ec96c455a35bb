//! Handlers that are slower than the server.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use super::never_resync;
use crate::cache::tests::fixtures::{Rig, object, teller};
use crate::cache::{Delta, DeltaHandler, KindStatus, KindStore};

/// Notes how far reading was ahead of telling, at most.
struct Lag {
    store: Weak<KindStore>,
    read: fn(&KindStatus) -> u64,
    told: AtomicU64,
    most: Arc<AtomicU64>,
}

impl DeltaHandler for Lag {
    fn handle(&self, _delta: &Delta<'_>) {
        let told = self.told.fetch_add(1, Ordering::Relaxed);
        let read = self.store.upgrade().map_or(0, |store| (self.read)(&store.status()));
        self.most.fetch_max(read.saturating_sub(told), Ordering::Relaxed);
    }
}

/// A handler that notes its lag, and where it does.
fn lag(store: &Arc<KindStore>, read: fn(&KindStatus) -> u64) -> (Box<Lag>, Arc<AtomicU64>) {
    let most = Arc::new(AtomicU64::new(0));
    let store = Arc::downgrade(store);
    (Box::new(Lag { store, read, told: AtomicU64::new(0), most: Arc::clone(&most) }), most)
}

#[tokio::test(start_paused = true)]
async fn a_slow_handler_costs_the_server_a_full_socket_and_not_this_process_its_memory() {
    let (_rig, store, stream) = Rig::synced(&[]).await;
    let (lag, most) = lag(&store, |status| status.events);
    let (handler, mut told) = teller();
    let _subscriptions = (store.subscribe(lag), store.subscribe(handler));
    for version in 11..10_000 {
        stream.event("MODIFIED", &object("a", "u1", version));
    }
    told.take(9_988).await;
    assert!(told.next().await.ends_with("a@9999"), "none is lost");
    let most = most.load(Ordering::Relaxed);
    assert!((100..1_100).contains(&most), "{most} events were read ahead of the handler");
}

#[tokio::test(start_paused = true)]
async fn a_list_in_one_piece_is_read_no_further_ahead_of_a_slow_handler() {
    let mut rig = Rig::start(never_resync());
    let store = rig.config_maps();
    let (lag, most) = lag(&store, |status| status.objects as u64);
    let (handler, mut told) = teller();
    let _subscriptions = (store.subscribe(lag), store.subscribe(handler));
    rig.server.next().await.refuse(422, "Invalid");
    let items: Vec<_> = (0..10_000).map(|n| object(&format!("n{n}"), &format!("u{n}"), 5)).collect();
    rig.server.next().await.page(30, "", &items);
    told.take(10_000).await;
    let most = most.load(Ordering::Relaxed);
    assert!((100..1_100).contains(&most), "{most} objects were read ahead of the handler");
}
