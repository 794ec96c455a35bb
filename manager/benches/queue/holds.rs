//! The longest holds of the queue's lock.

use std::hint::black_box;
use std::time::Duration;

use rustix::time::ClockId;
use tokio::time::Instant;

use mainstay::queue::{Add, QueueSettings, RetryPolicy, Running};

use crate::{Form, cause, cpu_time, keys, median_of, queue, since};

/// Returns the longest single call of each sort in microseconds: no call holds the lock for longer than it
/// lasts. In time on the processor, because a busy machine adds time that is not the queue's; the median of
/// three rounds, because the best of three maxima would flatter the queue.
pub(crate) fn longest(form: Form) -> [(&'static str, f64); 5] {
    let names = [
        "queue.longest_add_us",
        "queue.longest_snapshot_hold_us",
        "queue.longest_get_us",
        "queue.longest_done_us",
        "queue.longest_reconfigure_us",
    ];
    let rounds: [[f64; 5]; 3] = std::array::from_fn(|_| {
        let round = [grow_list_and_drain(form), reconfigured(form)];
        let [[add, list, get, done], [again, reconfigure, ..]] = round;
        [add.max(again), list, get, done, reconfigure]
    });
    std::array::from_fn(|at| (names[at], median_of(rounds.map(|round| round[at]))))
}

/// Returns the longest add, hold of a snapshot, get and done of a large queue with keys that all become ready
/// at one moment.
///
/// The keys outlive the queue. Else their names are freed one by one, and the allocator merges all of them at
/// once when a page of the queue is freed after them: milliseconds in a call that no longer holds the lock.
fn grow_list_and_drain(form: Form) -> [f64; 4] {
    let (queue, keys, cause) = (queue(1), keys(form.many), cause());
    let _kept = keys.clone();
    let mut longest = [0.0_f64; 4];
    let due = Instant::now() + Duration::from_secs(2);
    for key in keys {
        let add = Add::strong(cause.clone()).after(due.saturating_duration_since(Instant::now()));
        longest[0] = longest[0].max(micros(|| _ = queue.add(key, add)));
    }
    // Between two calls of the visitor lies at most one hold of the lock.
    let mut last = cpu_time(ClockId::ThreadCPUTime);
    queue.visit(|_| {
        longest[1] = longest[1].max(since(last, ClockId::ThreadCPUTime).as_secs_f64() * 1e6);
        last = cpu_time(ClockId::ThreadCPUTime);
    });
    while Instant::now() < due {
        std::thread::yield_now();
    }
    let mut left = true;
    while left {
        let mut running = None;
        longest[2] = longest[2].max(micros(|| running = queue.try_get()));
        left = running.is_some();
        longest[3] = longest[3].max(micros(|| _ = running.map(Running::done)));
    }
    longest
}

/// Returns the longest add and the time of a whole change of policy, with all keys in backoff.
fn reconfigured(form: Form) -> [f64; 4] {
    let (queue, keys, cause) = (queue(1), keys(form.many), cause());
    let hour = |hours| QueueSettings {
        retry: RetryPolicy::exponential(Duration::from_hours(hours), Duration::from_hours(hours)),
        ..QueueSettings::default()
    };
    queue.reconfigure(hour(2), 1);
    let mut longest = [0.0_f64; 4];
    for key in keys {
        let add = Add::strong(cause.clone());
        longest[0] = longest[0].max(micros(|| _ = queue.add(key, add)));
        if let Some(running) = queue.try_get() {
            let _retried = black_box(running.retry("no"));
        }
    }
    longest[1] = micros(|| queue.reconfigure(hour(1), 1));
    for key in crate::keys(1000) {
        let add = Add::strong(cause.clone());
        longest[0] = longest[0].max(micros(|| _ = queue.add(key, add)));
    }
    longest
}

fn micros(act: impl FnOnce()) -> f64 {
    let start = cpu_time(ClockId::ThreadCPUTime);
    act();
    since(start, ClockId::ThreadCPUTime).as_secs_f64() * 1e6
}
