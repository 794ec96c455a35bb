use super::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio::task::JoinSet;

/// Keys that are added again and again.
const HOT: u32 = 100;
/// Keys that each of four producers adds only once: no other add hides the loss of such an add.
const OWN: u32 = 2500;
/// Every step here takes less than seconds; a lost wake-up would take for ever.
const FOR_EVER: Duration = Duration::from_mins(2);

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(FOR_EVER, future).await.expect("a task sleeps for ever")
}

/// The test's own record of a key. `Relaxed` throughout: the queue's lock orders the accesses.
#[derive(Default)]
struct Watched {
    in_flight: AtomicBool,
    /// Changes so far.
    wanted: AtomicU64,
    /// Changes that a successful run has seen.
    seen: AtomicU64,
}

/// Keys under watch.
fn watched(count: u32) -> Arc<[Watched]> {
    (0..count).map(|_| Watched::default()).collect()
}

impl Watched {
    /// Begins a run. Returns the number of changes that it sees.
    fn begin(&self, running: &Running<Id>) -> u64 {
        assert!(!self.in_flight.swap(true, Ordering::Relaxed), "{} is with two workers", running.key());
        self.wanted.load(Ordering::Relaxed)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_threads_lose_no_key_and_never_run_one_twice_at_once() {
    let queue = queue_with(with_retry(RetryPolicy::exponential(ms(1), ms(2))), 8);
    let keys = watched(HOT + 4 * OWN);
    let settling = Arc::new(AtomicBool::new(false));
    let (mut producers, mut workers, mut operator) = (JoinSet::new(), JoinSet::new(), JoinSet::new());
    for seed in 0..8 {
        workers.spawn(work(queue.clone(), Arc::clone(&keys), Arc::clone(&settling), seed));
    }
    operator.spawn(operate(queue.clone(), Arc::clone(&settling)));
    for number in 0..4 {
        producers.spawn(produce(queue.clone(), Arc::clone(&keys), number));
    }
    close(producers).await;
    settling.store(true, Ordering::Relaxed);
    close(operator).await;
    settle(&queue, &mut workers).await;
    all_seen(&keys);
    soon(queue.shut_down_with_drain()).await;
    close(workers).await;
    assert_eq!(snapshots(&queue).len(), 0);
}

/// Waits for the end of all tasks. A task that failed fails the test.
async fn close(mut tasks: JoinSet<()>) {
    while let Some(ended) = soon(tasks.join_next()).await {
        ended.expect("a task failed");
    }
}

/// Waits until the queue is empty. No key is added meanwhile, so a lost add stays lost.
async fn settle(queue: &WorkQueue<Id>, workers: &mut JoinSet<()>) {
    soon(async {
        loop {
            let counts = queue.counts();
            if counts.ready() + counts.delayed + counts.running + counts.parked == 0 {
                return;
            }
            if let Some(ended) = workers.try_join_next() {
                ended.expect("a worker failed");
            }
            tokio::time::sleep(ms(1)).await;
        }
    })
    .await;
}

fn all_seen(keys: &[Watched]) {
    for (id, key) in keys.iter().enumerate() {
        let (wanted, seen) = (key.wanted.load(Ordering::Relaxed), key.seen.load(Ordering::Relaxed));
        assert_eq!(wanted, seen, "the last change of key {id} was never seen");
    }
}

/// Adds hot keys at random and its own keys in turn. When the queue is full it waits for room and adds again,
/// as a source does.
async fn produce(queue: WorkQueue<Id>, keys: Arc<[Watched]>, number: u32) {
    let mut random = fastrand::Rng::with_seed(number.into());
    for turn in 0..2 * OWN {
        let id = if turn % 2 == 0 { random.u32(0..HOT) } else { HOT + number * OWN + turn / 2 };
        keys[id as usize].wanted.fetch_add(1, Ordering::Relaxed);
        let add = if random.bool() { strong() } else { background() };
        let add = if random.u8(0..8) == 0 { add.after(ms(1)) } else { add };
        while queue.add(Id(id), add.clone()) == Added::Refused {
            queue.wait_for_room().await;
        }
        if turn % 64 == 0 {
            tokio::task::yield_now().await;
        }
    }
}

/// Changes settings, workers and leadership during the test, and leaves a queue that leads.
async fn operate(queue: WorkQueue<Id>, settling: Arc<AtomicBool>) {
    let mut random = fastrand::Rng::with_seed(99);
    while !settling.load(Ordering::Relaxed) {
        let settings = QueueSettings {
            retry_share: random.u8(1..=100),
            max_wait: ms(random.u64(1..50)),
            max_depth: random.choice([0, 5, 50]).unwrap(),
            ..with_retry(RetryPolicy::exponential(ms(1), ms(random.u64(1..4))))
        };
        queue.reconfigure(settings, random.usize(1..9));
        queue.set_leading(random.bool());
        tokio::time::sleep(ms(1)).await;
    }
    queue.reconfigure(exact(), 8);
    queue.set_leading(true);
}

async fn work(queue: WorkQueue<Id>, keys: Arc<[Watched]>, settling: Arc<AtomicBool>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    while let Some(running) = queue.get().await {
        let key = &keys[running.key().0 as usize];
        let wanted = key.begin(&running);
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

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn fifty_producers_and_ten_consumers_end_empty_and_no_add_after_a_shutdown_is_delivered() {
    for drained in [true, false] {
        let queue = queue_with(exact(), 10);
        let runs: Arc<Vec<AtomicU64>> = Arc::new((0..2501).map(|_| AtomicU64::new(0)).collect());
        let (mut producers, mut consumers) = (JoinSet::new(), JoinSet::new());
        for _ in 0..10 {
            let (queue, runs) = (queue.clone(), Arc::clone(&runs));
            consumers.spawn(async move {
                while let Some(running) = queue.get().await {
                    runs[running.key().0 as usize].fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                    running.done();
                }
            });
        }
        for producer in 0..50 {
            let queue = queue.clone();
            producers.spawn(async move {
                for add in 0..50 {
                    let _: Added = queue.add(Id(producer * 50 + add), strong());
                    tokio::task::yield_now().await;
                }
            });
        }
        close(producers).await;
        if drained {
            soon(queue.shut_down_with_drain()).await;
        } else {
            queue.shut_down();
        }
        assert_eq!(queue.add(Id(2500), strong()), Added::ShuttingDown);
        close(consumers).await;
        let left = snapshots(&queue).len();
        let runs: Vec<u64> = runs.iter().map(|runs| runs.load(Ordering::Relaxed)).collect();
        assert_eq!(runs[2500], 0, "an add after the shutdown was delivered");
        assert!(runs.iter().all(|runs| *runs <= 1), "a key ran twice for one add");
        assert_eq!(runs.iter().sum::<u64>() + left as u64, 2500, "a key is lost");
        assert!(!drained || left == 0, "{left} keys are left after a drain");
        assert_eq!(queue.counts().running, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_workers_drain_twenty_thousand_random_adds() {
    const KEYS: u32 = 10_000;
    let (queue, keys) = (queue_with(exact(), 100), watched(KEYS));
    let (mut producers, mut workers) = (JoinSet::new(), JoinSet::new());
    for _ in 0..100 {
        let (queue, keys) = (queue.clone(), Arc::clone(&keys));
        workers.spawn(async move {
            while let Some(running) = queue.get().await {
                let key = &keys[running.key().0 as usize];
                let wanted = key.begin(&running);
                tokio::task::yield_now().await;
                key.in_flight.store(false, Ordering::Relaxed);
                key.seen.fetch_max(wanted, Ordering::Relaxed);
                running.done();
            }
        });
    }
    for seed in 0..20 {
        let (queue, keys) = (queue.clone(), Arc::clone(&keys));
        producers.spawn(async move {
            let mut random = fastrand::Rng::with_seed(seed);
            for _ in 0..1000 {
                let add = [strong(), weak(), new(), background()][random.usize(0..4)].clone();
                let add = if random.bool() { add.after(ms(random.u64(0..3))) } else { add };
                let id = random.u32(0..KEYS);
                keys[id as usize].wanted.fetch_add(1, Ordering::Relaxed);
                let _: Added = queue.add(Id(id), add);
            }
        });
    }
    close(producers).await;
    settle(&queue, &mut workers).await;
    all_seen(&keys);
    soon(queue.shut_down_with_drain()).await;
    close(workers).await;
    assert_eq!(snapshots(&queue).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shutdown_while_keys_are_handed_over_ends_every_loop() {
    for round in 0..50 {
        let queue = queue_with(exact(), 20);
        let mut loops = JoinSet::new();
        for id in 0..20 {
            let queue = queue.clone();
            loops.spawn(async move {
                while queue.add(Id(id), strong()) != Added::ShuttingDown {
                    let Some(running) = queue.get().await else { break };
                    running.done();
                }
            });
        }
        for _ in 0..round {
            tokio::task::yield_now().await;
        }
        queue.shut_down();
        close(loops).await;
    }
}
