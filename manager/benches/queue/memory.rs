//! Allocations and bytes per key.

use std::time::Duration;

use mainstay::key::{Cause, NamespacedName};
use mainstay::queue::{Add, Added, WorkQueue};

use crate::{Form, cause, keys, one_cycle, queue, scattered};

/// Returns allocations per add, get and done of a warm queue.
pub(crate) fn allocations_per_cycle() -> f64 {
    const TURNS: u32 = 10_000;
    let (queue, keys, cause) = (queue(1), keys(1024), cause());
    for key in &keys {
        one_cycle(&queue, key, &cause);
    }
    let before = dhat::HeapStats::get().total_blocks;
    for key in keys.iter().cycle().take(TURNS as usize) {
        one_cycle(&queue, key, &cause);
    }
    (dhat::HeapStats::get().total_blocks - before) as f64 / f64::from(TURNS)
}

/// Returns the live bytes a key in the queue costs beyond the key itself, in a queue of distinct keys.
pub(crate) fn bytes_per_key(form: Form, delayed: bool) -> f64 {
    let (queue, keys, cause) = (queue(1), keys(form.many), cause());
    let before = dhat::HeapStats::get().curr_bytes;
    fill(&queue, &keys, &cause, delayed);
    let used = dhat::HeapStats::get().curr_bytes - before;
    used as f64 / keys.len() as f64 - size_of::<NamespacedName>() as f64
}

/// Returns the bytes that a large queue keeps once it is empty.
pub(crate) fn emptied_bytes(form: Form) -> f64 {
    let (queue, keys, cause) = (queue(1), keys(form.many), cause());
    let before = dhat::HeapStats::get().curr_bytes;
    fill(&queue, &keys, &cause, false);
    while let Some(running) = queue.try_get() {
        running.done();
    }
    dhat::HeapStats::get().curr_bytes.saturating_sub(before) as f64
}

fn fill(queue: &WorkQueue<NamespacedName>, keys: &[NamespacedName], cause: &Cause, delayed: bool) {
    for (number, key) in keys.iter().enumerate() {
        let mut add = Add::strong(cause.clone());
        if delayed {
            add = add.after(Duration::from_hours(1) + Duration::from_micros(scattered(number)));
        }
        let _: Added = queue.add(key.clone(), add);
    }
}
