use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use tokio::task::JoinSet;

#[tokio::test(start_paused = true)]
async fn adds_before_a_run_give_one_run() {
    let queue = queue();
    assert_eq!(queue.add(Id(1), strong()), Added::Queued);
    assert_eq!(queue.add(Id(1), strong()), Added::Merged);
    assert_eq!(queue.counts().ready(), 1);
    assert_eq!(drain(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn adds_during_a_run_give_exactly_one_more_after_it() {
    let queue = queue();
    queue.add(Id(1), strong());
    let running = take(&queue);
    assert_eq!(queue.add(Id(1), strong()), Added::Dirtied);
    assert_eq!(queue.add(Id(1), strong()), Added::Merged);
    assert!(queue.try_get().is_none(), "two workers have the key");
    running.done();
    assert_eq!(drain(&queue), [1]);
    assert_eq!(snapshots(&queue).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_again_during_its_run_goes_behind_the_others() {
    let queue = queue();
    queue.add(Id(1), strong());
    let running = take(&queue);
    queue.add(Id(1), strong());
    queue.add(Id(2), strong());
    running.done();
    assert_eq!(drain(&queue), [2, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_runs_at_its_moment_and_not_before() {
    let queue = queue();
    assert_eq!(queue.add(Id(1), strong().after(ms(50))), Added::Delayed);
    assert_eq!(queue.counts().ready(), 0);
    tokio::time::advance(ms(49)).await;
    assert!(queue.try_get().is_none(), "a millisecond early");
    tokio::time::advance(ms(1)).await;
    assert_eq!(drain(&queue), [1]);
    tokio::time::advance(Duration::from_hours(1)).await;
    assert_eq!(drain(&queue), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn the_earliest_of_several_delays_holds() {
    for (first, second) in [(50, 70), (70, 50)] {
        let queue = queue();
        queue.add(Id(1), strong().after(ms(first)));
        queue.add(Id(1), strong().after(ms(second)));
        tokio::time::advance(ms(49)).await;
        assert_eq!(drain(&queue), [0; 0]);
        tokio::time::advance(ms(1)).await;
        assert_eq!(drain(&queue), [1]);
        tokio::time::advance(ms(100)).await;
        assert_eq!(drain(&queue), [0; 0], "a delayed key ran twice");
    }
}

#[tokio::test(start_paused = true)]
async fn an_add_at_once_replaces_a_delayed_one() {
    let queue = queue();
    queue.add(Id(1), strong().after(ms(200)));
    queue.add(Id(1), strong());
    assert_eq!(drain(&queue), [1]);
    tokio::time::advance(ms(300)).await;
    assert_eq!(drain(&queue), [0; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_add_does_not_hold_back_a_ready_key() {
    let queue = queue();
    queue.add(Id(1), strong());
    assert_eq!(queue.add(Id(1), strong().after(ms(200))), Added::Merged);
    assert_eq!(drain(&queue), [1]);
    assert_eq!(snapshots(&queue).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_delayed_add_during_a_run_delays_the_next_one() {
    let queue = queue();
    queue.add(Id(1), strong());
    let running = take(&queue);
    assert_eq!(queue.add(Id(1), strong().after(ms(20))), Added::Delayed);
    running.done();
    tokio::time::advance(ms(19)).await;
    assert_eq!(drain(&queue), [0; 0]);
    tokio::time::advance(ms(1)).await;
    assert_eq!(drain(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_come_out_by_deadline_and_equal_ones_in_the_order_of_their_adds() {
    let queue = queue();
    for (id, wait) in [(1, 1000), (2, 500), (3, 250), (4, 500), (5, 500)] {
        queue.add(Id(id), strong().after(ms(wait)));
    }
    tokio::time::advance(ms(2000)).await;
    assert_eq!(drain(&queue), [3, 2, 4, 5, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_caller_gets_a_key_the_moment_it_is_added() {
    let queue = queue();
    let waiting = queue.clone();
    let (running, added) = tokio::join!(get(&waiting), async { queue.add(Id(1), strong()) });
    assert_eq!(added, Added::Queued);
    assert_eq!(running.map(|running| running.key().0), Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_caller_wakes_for_an_earlier_moment_than_the_one_it_slept_for() {
    let queue = queue();
    let start = Instant::now();
    queue.add(Id(1), strong().after(ms(1000)));
    let waiting = queue.clone();
    let (running, ()) = tokio::join!(get(&waiting), async {
        tokio::time::sleep(ms(10)).await;
        queue.add(Id(2), strong().after(ms(50)));
    });
    assert_eq!((running.map(|running| running.key().0), start.elapsed()), (Some(2), ms(60)));
}

#[tokio::test(start_paused = true)]
async fn only_one_sleeper_holds_the_timer_and_hands_it_on_when_it_is_cancelled() {
    let queue = queue_with(exact(), 2);
    let start = Instant::now();
    queue.add(Id(1), strong().after(ms(1000)));
    let first = tokio::time::timeout(ms(10), queue.get());
    let (first, second) = tokio::join!(first, get(&queue));
    assert!(first.is_err(), "the first caller times out");
    assert_eq!((second.map(|running| running.key().0), start.elapsed()), (Some(1), ms(1000)));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_takes_a_key_leaves_the_timer_to_the_next_sleeper() {
    let queue = queue_with(exact(), 2);
    let start = Instant::now();
    queue.add(Id(1), strong().after(ms(10)));
    queue.add(Id(2), strong().after(ms(1000)));
    let (first, second) = tokio::join!(get(&queue), get(&queue));
    let mut ids = [first, second].map(|running| running.map_or(0, |running| running.key().0));
    ids.sort_unstable();
    assert_eq!((ids, start.elapsed()), ([1, 2], ms(1000)));
}

#[tokio::test(start_paused = true)]
async fn every_sleeper_gets_one_of_many_keys_that_become_ready_at_once() {
    let queue = queue_with(exact(), 100);
    let mut callers = JoinSet::new();
    for id in 0..100 {
        queue.add(Id(id), strong().after(ms(10)));
        let queue = queue.clone();
        callers.spawn(async move { get(&queue).await.unwrap().done() });
    }
    soon(callers.join_all()).await;
    assert_eq!(snapshots(&queue).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_next_run_has_the_cause_of_the_immediate_add_not_of_a_delayed_one() {
    let later = || Add::strong(Cause::bare(Trigger::Manual)).after(ms(50));
    for at_once_first in [true, false] {
        let queue = queue();
        queue.add(Id(1), background());
        let running = take(&queue);
        let adds = if at_once_first { [strong(), later()] } else { [later(), strong()] };
        for add in adds {
            queue.add(Id(1), add);
        }
        running.done();
        assert_eq!(take(&queue).cause().trigger, Trigger::Updated, "at once first: {at_once_first}");
    }
}

/// A key with a `Clone` that panics while the flag is set.
#[derive(Debug)]
struct Brittle(Arc<AtomicBool>);

impl Clone for Brittle {
    fn clone(&self) -> Self {
        assert!(!self.0.load(Ordering::Relaxed), "broken");
        Self(Arc::clone(&self.0))
    }
}

impl PartialEq for Brittle {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Brittle {}

impl std::hash::Hash for Brittle {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

impl fmt::Display for Brittle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("brittle")
    }
}

impl Key for Brittle {
    fn namespace(&self) -> Option<&str> {
        None
    }

    fn name(&self) -> &'static str {
        "brittle"
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_clone_panics_stays_ready() {
    let queue = WorkQueue::new("test", exact(), 1, &QueueMetrics::register(&Registry::new()));
    let breaks = Arc::new(AtomicBool::new(false));
    queue.add(Brittle(Arc::clone(&breaks)), strong());
    breaks.store(true, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.try_get())).is_err());
    assert_eq!((queue.counts().ready(), queue.counts().running), (1, 0));
    breaks.store(false, Ordering::Relaxed);
    queue.try_get().expect("the key is still ready").done();
}

#[test]
fn the_holder_of_the_timer_is_woken_once_for_an_earlier_moment() {
    let mut inner = Inner::new(exact(), 1, fastrand::Rng::with_seed(1));
    inner.add(Id(1), strong().after(ms(100)));
    assert!(matches!(inner.take(), Take::Wait(Some(_))));
    assert!(!inner.signals().timer, "its timer is set for the first key");
    for (id, wait) in [(2, 50), (3, 20)] {
        inner.add(Id(id), strong().after(ms(wait)));
        assert_eq!(inner.signals().timer, id == 2, "add {id}");
        assert!(!inner.signals().timer, "a second wake-up without an event");
    }
    inner.leave(true);
    let Take::Wait(Some(timer)) = inner.take() else { panic!("no key is due yet") };
    assert_eq!(timer, Moment::START.after(ms(20)), "the timer is set for the earliest of all keys");
    inner.add(Id(4), strong().after(ms(10)));
    assert!(inner.signals().timer, "a later earlier moment wakes it again");
}

#[tokio::test(start_paused = true)]
async fn a_weak_add_ends_the_wait_of_a_requeue() {
    let queue = queue();
    queue.add(Id(1), strong());
    take(&queue).requeue_after(Duration::from_mins(1));
    assert_eq!(queue.add(Id(1), weak()), Added::Queued);
    assert_eq!(drain(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn every_key_is_listed_with_its_state_and_history() {
    let queue = queue();
    for id in 0..1000 {
        queue.add(Id(id), strong());
    }
    let running = take(&queue);
    tokio::time::advance(ms(30)).await;
    let _: Retried = running.retry("connection refused");
    tokio::time::advance(ms(2)).await;
    let (keys, counts) = (snapshots(&queue), queue.counts());
    assert_eq!((queue.name(), keys.len(), counts.ready_live), ("test", 1000, 999));
    assert_eq!(counts.oldest_ready, Some(ms(32)));
    let key = keys.iter().find(|key| key.key == Id(0)).unwrap();
    assert_eq!((key.state, key.lane, key.attempts, key.since), (State::Backoff, None, 1, ms(2)));
    assert_eq!((key.next_run, key.last_duration), (Some(ms(3)), Some(ms(30))));
    assert_eq!(key.last_error.as_deref().map(String::as_str), Some("connection refused"));
    assert_eq!(key.cause, Cause::bare(Trigger::Updated));
}

#[tokio::test(start_paused = true)]
async fn metrics_of_all_queues_are_printed_family_by_family_and_end_with_their_queue() {
    let registry = Registry::new();
    let metrics = QueueMetrics::register(&registry);
    let one = WorkQueue::new("one", exact(), 1, &metrics);
    let two = WorkQueue::<Id>::new("two", exact(), 1, &metrics);
    two.set_leading(false);
    two.add(Id(1), strong());
    for id in 1..=3 {
        one.add(Id(id), strong());
    }
    take(&one).done();
    let _: Retried = take(&one).retry("no");
    let running = take(&one);
    tokio::time::advance(ms(2)).await;
    one.add(Id(3), strong());
    one.add(Id(4), strong());
    let text = registry.encode(Format::Text).unwrap();
    let lines: Vec<&str> =
        text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket")).collect();
    let expected = r#"workqueue_depth{name="one",controller="one",priority=""} 1
workqueue_depth{name="two",controller="two",priority=""} 0
workqueue_adds_total{name="one",controller="one"} 5
workqueue_adds_total{name="two",controller="two"} 1
workqueue_queue_duration_seconds_sum{name="one",controller="one"} 0.0
workqueue_queue_duration_seconds_count{name="one",controller="one"} 3
workqueue_queue_duration_seconds_sum{name="two",controller="two"} 0.0
workqueue_queue_duration_seconds_count{name="two",controller="two"} 0
workqueue_work_duration_seconds_sum{name="one",controller="one"} 0.0
workqueue_work_duration_seconds_count{name="one",controller="one"} 2
workqueue_work_duration_seconds_sum{name="two",controller="two"} 0.0
workqueue_work_duration_seconds_count{name="two",controller="two"} 0
workqueue_unfinished_work_seconds{name="one",controller="one"} 0.002
workqueue_unfinished_work_seconds{name="two",controller="two"} 0.0
workqueue_longest_running_processor_seconds{name="one",controller="one"} 0.002
workqueue_longest_running_processor_seconds{name="two",controller="two"} 0.0
workqueue_retries_total{name="one",controller="one"} 1
workqueue_retries_total{name="two",controller="two"} 0
mainstay_queue_retry_attempts_sum{name="one",controller="one"} 1.0
mainstay_queue_retry_attempts_count{name="one",controller="one"} 1
mainstay_queue_retry_attempts_sum{name="two",controller="two"} 0.0
mainstay_queue_retry_attempts_count{name="two",controller="two"} 0
mainstay_queue_delayed_keys{name="one",controller="one"} 1
mainstay_queue_delayed_keys{name="two",controller="two"} 0
mainstay_queue_parked_keys{name="one",controller="one"} 0
mainstay_queue_parked_keys{name="two",controller="two"} 0
mainstay_queue_paused_keys{name="one",controller="one"} 0
mainstay_queue_paused_keys{name="two",controller="two"} 0
mainstay_queue_oldest_ready_seconds{name="one",controller="one"} 0.0
mainstay_queue_oldest_ready_seconds{name="two",controller="two"} 0.0
mainstay_queue_warm_keys{name="one",controller="one"} 0
mainstay_queue_warm_keys{name="two",controller="two"} 1"#;
    assert_eq!(lines.join("\n"), expected);
    let bucket = r#"workqueue_queue_duration_seconds_bucket{le="1e-08",name="one",controller="one"} 3"#;
    assert!(text.contains(bucket), "{text}");
    running.done();
    drop(two);
    assert!(!registry.encode(Format::Text).unwrap().contains("two"), "a dropped queue is still printed");
}
