//! Bytes and allocations of a key in the queue; both are the same on every machine.
//!
//! One test alone in its program, because the allocator counts the allocations of every thread.

use std::sync::Arc;
use std::time::Duration;

use mainstay::key::{Cause, KindId, NamespacedName, Subject, Trigger};
use mainstay::metrics::Registry;
use mainstay::queue::{Add, QueueMetrics, QueueSettings, WorkQueue};

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

const KEYS: usize = 100_000;

struct Bench {
    queue: WorkQueue<NamespacedName>,
    /// Made before the counting starts; a clone of a key does not allocate.
    keys: Vec<NamespacedName>,
    cause: Cause,
}

impl Bench {
    fn new() -> Self {
        let namespace: Arc<str> = "shop".into();
        let key = |number| NamespacedName::namespaced(Arc::clone(&namespace), format!("web-{number}"));
        let metrics = QueueMetrics::register(&Registry::new());
        let kind = KindId::new("apps", "v1", "Deployment", "deployments", true);
        Self {
            queue: WorkQueue::new("bench", QueueSettings::default(), 1, &metrics),
            keys: (0..KEYS).map(key).collect(),
            cause: Cause::from_object(Trigger::Updated, Subject::Namesake(kind)),
        }
    }

    /// Adds every key, if `delayed` with a wait of an hour and some seconds. Returns the bytes per key beyond
    /// the key itself.
    fn fill(&self, delayed: bool) -> usize {
        let before = dhat::HeapStats::get().curr_bytes;
        for (number, key) in self.keys.iter().enumerate() {
            let add = Add::strong(self.cause.clone());
            // In no order of time, as backoffs are.
            let wait = Duration::from_hours(1) + Duration::from_micros((number * 7919 % KEYS) as u64);
            self.queue.add(key.clone(), if delayed { add.after(wait) } else { add });
        }
        (dhat::HeapStats::get().curr_bytes - before).div_ceil(KEYS) - size_of::<NamespacedName>()
    }

    fn run_each(&self) {
        while let Some(running) = self.queue.try_get() {
            running.done();
        }
    }
}

#[test]
fn a_key_costs_its_promised_bytes_and_a_warm_queue_does_not_allocate() {
    let (ready, delayed) = (Bench::new(), Bench::new());
    let _profiler = dhat::Profiler::builder().testing().build();

    let empty = dhat::HeapStats::get().curr_bytes;
    let bytes = ready.fill(false);
    assert!(bytes <= 96, "a ready key costs {bytes} bytes beyond the key");
    ready.run_each();
    let kept = dhat::HeapStats::get().curr_bytes - empty;
    assert!(kept <= 100_000, "an emptied queue keeps {kept} bytes");

    let bytes = delayed.fill(true);
    assert!(bytes <= 128, "a delayed key costs {bytes} bytes beyond the key");

    let some = &ready.keys[..1000];
    for warm in [false, true] {
        let before = dhat::HeapStats::get().total_blocks;
        for key in some.iter().chain(some) {
            ready.queue.add(key.clone(), Add::strong(ready.cause.clone()));
        }
        ready.run_each();
        let allocations = dhat::HeapStats::get().total_blocks - before;
        assert!(!warm || allocations == 0, "a warm queue made {allocations} allocations");
    }
}
