//! The work of one hold of the lock: a slice of the keys, even with many keys.

use super::*;
use crate::queue::machine::{Outcome, SLICE};
use crate::queue::snapshot::CHUNK;

const MANY: u32 = 10_000;

fn machine() -> Inner<Id> {
    Inner::new(exact(), 1, fastrand::Rng::with_seed(1))
}

fn at(millis: u64) -> Moment {
    Moment::START.after(ms(millis))
}

/// Adds `count` keys that fail once and then wait for five milliseconds.
fn failed(inner: &mut Inner<Id>, count: u32) {
    for id in 0..count {
        inner.add(Id(id), strong());
        let job = inner.try_take().expect("the key is ready");
        let _: Retried = inner.finish(job.slot, &job.cause, Outcome::Failed("no", Retry::Backoff));
    }
}

#[test]
fn a_slice_of_the_due_keys_becomes_ready_per_hold() {
    let mut inner = machine();
    for id in 0..MANY {
        inner.add(Id(id), strong().after(ms(5)));
    }
    for moved in 1..=MANY.div_ceil(SLICE) {
        inner.advance(at(5));
        inner.check();
        assert_eq!(inner.lanes.len(), (moved * SLICE).min(MANY) as usize);
    }
    assert_eq!(inner.delays.len(), 0);
}

#[test]
fn a_new_policy_reaches_a_slice_of_the_slots_per_hold_and_counts_from_the_change() {
    let mut inner = machine();
    failed(&mut inner, MANY);
    let retry = RetryPolicy { jitter_percent: 0, ..RetryPolicy::fixed(ms(2)) };
    inner.reconfigure(QueueSettings { retry, ..exact() }, 1);
    for swept in 1..=MANY.div_ceil(SLICE) {
        let shortened = (0..MANY).filter(|id| due(&inner, *id) == ms(2)).count();
        assert_eq!(shortened, (swept * SLICE).min(MANY) as usize);
        inner.advance(at(0));
    }
    inner.check();
    inner.advance(at(1));
    assert_eq!(inner.lanes.len(), 0, "a millisecond early");
}

/// Returns how long a delayed key still waits.
fn due(inner: &Inner<Id>, id: u32) -> Duration {
    let slot = inner.slots.find(&Id(id)).and_then(|slot| inner.slots.pages.get(slot));
    slot.and_then(|slot| inner.describe(slot).next_run).expect("the key is delayed")
}

#[test]
fn a_snapshot_reads_a_chunk_of_the_slots_per_hold() {
    let mut inner = machine();
    failed(&mut inner, MANY);
    let (mut keys, mut next) = (Vec::new(), Some(0));
    while let Some(start) = next {
        let before = keys.len();
        next = inner.list_chunk(start, &mut keys);
        assert!(keys.len() - before <= CHUNK as usize, "{} keys in one hold", keys.len() - before);
    }
    assert_eq!(keys.len(), MANY as usize);
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_caller_moves_the_due_keys_that_one_hold_left_over() {
    let queue = queue_with(limited(0.001, 1), 1);
    queue.add(Id(MANY), strong().after(ms(5)));
    for id in 0..MANY {
        queue.add(Id(id), strong());
        let _: Retried = take(&queue).retry("no");
    }
    // All come due at the same moment, the fresh one behind thousands of retries that have one token between
    // them.
    queue.add(Id(MANY + 1), strong().after(ms(5)));
    let start = Instant::now();
    let mut taken = Vec::new();
    for _ in 0..3 {
        let running = queue.get().await.expect("the queue is open");
        taken.push(running.key().0);
        running.done();
    }
    assert_eq!((taken.contains(&MANY), taken.contains(&(MANY + 1))), (true, true), "{taken:?}");
    assert_eq!(start.elapsed(), ms(5));
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_caller_carries_a_new_policy_to_the_last_waiting_key() {
    let queue = queue();
    let slow = RetryPolicy { jitter_percent: 0, ..RetryPolicy::fixed(Duration::from_hours(1)) };
    queue.reconfigure(QueueSettings { retry: slow, ..exact() }, 1);
    for id in 0..MANY {
        queue.add(Id(id), strong());
        let _: Retried = take(&queue).retry("no");
    }
    let start = Instant::now();
    let (running, ()) = tokio::join!(queue.get(), async {
        tokio::time::sleep(ms(10)).await;
        let quick = RetryPolicy { jitter_percent: 0, ..RetryPolicy::fixed(ms(20)) };
        queue.reconfigure(QueueSettings { retry: quick, ..exact() }, 1);
    });
    assert_eq!((running.map(Running::done), start.elapsed()), (Some(()), ms(30)));
    let waiting = snapshots(&queue).iter().filter(|key| key.next_run > Some(ms(20))).count();
    assert_eq!(waiting, 0, "keys still have the delay of the old policy");
}

#[test]
fn a_large_queue_that_has_become_empty_frees_its_slots() {
    let mut inner = machine();
    for id in 0..MANY {
        inner.add(Id(id), strong());
    }
    while let Some(job) = inner.try_take() {
        let _: Retried = inner.finish(job.slot, &job.cause, Outcome::Done);
    }
    inner.check();
    assert_eq!(inner.slots.pages.end(), 0);
}
