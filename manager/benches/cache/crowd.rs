//! Very many small objects: how much readers of long lists slow down the writer beside them.
//!
//! The writer's time is wall-clock time without the time in which it was runnable but had no processor: with
//! two threads busy instead of one, that is mostly the other load of the machine. Waiting for a lock counts.
//! The control has readers of another store, which share only the processors and the memory with the writer.
//! The remaining cost is less the lock than the allocator: a reader that drops a list is the last owner of
//! objects that were replaced meanwhile, and frees memory that the writer's thread has allocated.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use k8s_openapi::api::core::v1;
use rustix::time::{ClockId, clock_gettime};
use tokio::runtime::Builder;
use tokio::task::LocalSet;

use mainstay::cache::{Select, Store};

use crate::api::{LISTED, event};
use crate::{CHUNK, Filled, Form, Which, cpu_time, median, since};

/// Objects of one namespace.
const PER_NAMESPACE: u32 = 10_000;
/// Tasks on one thread that list all objects, one after the other.
const READERS: usize = 10;

/// Prints the figures of long lists.
pub(crate) fn measure(form: Form) {
    let count = if form.quick { PER_NAMESPACE } else { 8 * PER_NAMESPACE };
    let filled = Filled::of(Which::Plain, count, object);
    let store = filled.ours();
    let select = Select::namespace("crowd-0");
    let list = median(|_| {
        let start = cpu_time();
        (0..10).for_each(|_| drop(black_box(store.list(&select))));
        since(start) / 10.0
    });
    form.print("cache.list_10k_us", list * 1e6, "us", Some(1000.0));
    let alone = median(|round| write(&filled, form, count, round));
    let slowdown = |read: &Filled, first: u32| {
        let readers = Readers::start(read.ours());
        let beside = median(|round| write(&filled, form, count, first + round));
        readers.stop();
        beside / alone
    };
    form.print("cache.writer_slowdown_10_readers", slowdown(&filled, 3), "ratio", Some(2.0));
    let elsewhere = Filled::of(Which::Plain, count, object);
    form.print("cache.writer_slowdown_10_readers.elsewhere", slowdown(&elsewhere, 6), "ratio", None);
}

/// Returns the smallest Pod that a server would return.
fn object(number: u32, version: u64) -> String {
    let namespace = number / PER_NAMESPACE;
    let name = format!(r#""name":"one-of-very-many-{number}","namespace":"crowd-{namespace}""#);
    let uid = format!(r#""uid":"00000000-0000-4000-8000-{number:012}","resourceVersion":"{version}""#);
    let metadata = format!(r#""metadata":{{{name},{uid}}}"#);
    format!(r#"{{"kind":"Pod","apiVersion":"v1",{metadata},"spec":{{"containers":[]}}}}"#)
}

/// Returns seconds per ingested event.
fn write(filled: &Filled, form: Form, count: u32, round: u32) -> f64 {
    let first = LISTED + u64::from(round + 1) * u64::from(form.events);
    let numbers: Vec<u32> = (0..form.events).collect();
    let line = |number: &u32| event("MODIFIED", &object(number * 7 % count, first + u64::from(*number)));
    let chunks: Vec<Bytes> = numbers
        .chunks(CHUNK as usize)
        .map(|chunk| Bytes::from(chunk.iter().map(line).collect::<String>()))
        .collect();
    let start = wall() - unserved();
    filled.ingest(Which::Plain, form, &chunks);
    (wall() - unserved() - start) / f64::from(form.events)
}

/// Returns the seconds in which this thread was runnable but had no processor; 0 if the kernel does not count
/// them.
fn unserved() -> f64 {
    let counted = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    counted.split(' ').nth(1).and_then(|nanos| nanos.parse::<f64>().ok()).unwrap_or(0.0) / 1e9
}

fn wall() -> f64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// A thread of tasks that list all objects until `stop`.
struct Readers {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<()>,
}

// === impl Readers ===

impl Readers {
    fn start(store: &Store<v1::Pod>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, store) = (stop.clone(), store.clone());
        let thread = thread::spawn(move || {
            let runtime = Builder::new_current_thread().build().expect("the runtime starts");
            let local = LocalSet::new();
            for _ in 0..READERS {
                let (stopped, store) = (stopped.clone(), store.clone());
                local.spawn_local(async move {
                    while !stopped.load(Ordering::Relaxed) {
                        drop(black_box(store.list(&Select::all())));
                        tokio::task::yield_now().await;
                    }
                });
            }
            runtime.block_on(local);
        });
        Self { stop, thread }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("the readers end");
    }
}
