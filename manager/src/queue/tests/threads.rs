use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio_util::task::TaskTracker;

const KEYS: u32 = 100;

/// What the test knows about a key beside the queue. `Relaxed` throughout: the queue's lock orders the accesses.
#[derive(Default)]
struct Watched {
    in_flight: AtomicBool,
    /// Changes so far.
    wanted: AtomicU64,
    /// Changes that a successful run has seen.
    seen: AtomicU64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_lose_no_key_and_never_run_one_twice_at_once() {
    let queue = queue_with(with_retry(RetryPolicy::exponential(ms(1), ms(2))), 8);
    let keys: Arc<[Watched]> = (0..KEYS).map(|_| Watched::default()).collect();
    let settling = Arc::new(AtomicBool::new(false));
    let (producers, workers) = (TaskTracker::new(), TaskTracker::new());
    for seed in 0..8 {
        workers.spawn(work(queue.clone(), Arc::clone(&keys), Arc::clone(&settling), seed));
    }
    for seed in 0..4 {
        let (queue, keys) = (queue.clone(), Arc::clone(&keys));
        producers.spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            for turn in 0..5000 {
                let id = random.u32(0..KEYS);
                keys[id as usize].wanted.fetch_add(1, Ordering::Relaxed);
                let add = if random.bool() { strong() } else { background() };
                let add = if random.u8(0..8) == 0 { add.after(ms(1)) } else { add };
                let _: Added = queue.add(Id(id), add);
                if turn % 64 == 0 {
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    producers.close();
    producers.wait().await;
    settling.store(true, Ordering::Relaxed);
    // Ends every wait, so that the drain has nothing to leave behind.
    for id in 0..KEYS {
        let _: Added = queue.add(Id(id), strong());
    }
    queue.shut_down_with_drain().await;
    workers.close();
    workers.wait().await;
    for (id, key) in keys.iter().enumerate() {
        let (wanted, seen) = (key.wanted.load(Ordering::Relaxed), key.seen.load(Ordering::Relaxed));
        assert_eq!(wanted, seen, "the last change of key {id} was never seen");
    }
    assert_eq!(queue.snapshot().keys.len(), 0);
}

async fn work(queue: WorkQueue<Id>, keys: Arc<[Watched]>, settling: Arc<AtomicBool>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while let Some(running) = queue.get().await {
        let key = &keys[running.key().0 as usize];
        assert!(!key.in_flight.swap(true, Ordering::Relaxed), "{} is with two workers", running.key());
        let wanted = key.wanted.load(Ordering::Relaxed);
        if random.u8(0..4) == 0 {
            tokio::task::yield_now().await;
        }
        key.in_flight.store(false, Ordering::Relaxed);
        match random.u8(0..10) {
            0..=1 if !settling.load(Ordering::Relaxed) => drop(running.retry("no")),
            2 if !settling.load(Ordering::Relaxed) => running.put_back(),
            3 if !settling.load(Ordering::Relaxed) => running.requeue_after(ms(1)),
            4 if !settling.load(Ordering::Relaxed) => drop(running),
            _ => {
                key.seen.fetch_max(wanted, Ordering::Relaxed);
                running.done();
            }
        }
    }
}
