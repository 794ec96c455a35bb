//! Behaviours of client-go's queues and of controller-runtime's priority queue that the other files do not
//! test.

use tokio_util::task::TaskTracker;

use super::*;
use crate::key::NamespacedName;

/// Returns the value of one line of the metrics of the queue `test`.
fn metric(registry: &Registry, family: &str) -> f64 {
    let text = registry.encode(Format::Text).unwrap();
    let line = text.lines().find(|line| line.starts_with(&format!("{family}{{")));
    line.and_then(|line| line.rsplit_once(' ')).unwrap().1.parse().unwrap()
}

fn measured() -> (Registry, WorkQueue<Id>) {
    let registry = Registry::new();
    let metrics = QueueMetrics::register(&registry);
    (registry, WorkQueue::new("test", exact(), 1, &metrics))
}

fn close_to(actual: f64, expected: f64) -> bool {
    (actual - expected).abs() < 1e-9
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_done_is_freed_while_the_queue_lives() {
    let queue = WorkQueue::new("test", exact(), 1, &QueueMetrics::register(&Registry::new()));
    let name: Arc<str> = "web".into();
    queue.add(NamespacedName::cluster(Arc::clone(&name)), strong());
    queue.try_get().unwrap().done();
    assert_eq!(Arc::strong_count(&name), 1);
}

#[tokio::test(start_paused = true)]
async fn metrics_move_step_by_step_through_add_get_adds_during_the_run_done_and_get() {
    let (registry, queue) = measured();
    let now = |family| metric(&registry, family);
    queue.add(Id(1), strong());
    queue.add(Id(1), strong());
    assert!(close_to(now("workqueue_adds_total"), 1.0) && close_to(now("workqueue_depth"), 1.0));
    tokio::time::advance(ms(50)).await;
    let running = take(&queue);
    assert!(close_to(now("workqueue_depth"), 0.0));
    assert!(close_to(now("workqueue_queue_duration_seconds_sum"), 0.05));
    for _ in 0..5 {
        queue.add(Id(1), strong());
    }
    assert!(close_to(now("workqueue_adds_total"), 2.0), "five adds during a run count once");
    tokio::time::advance(ms(25)).await;
    assert!(close_to(now("workqueue_unfinished_work_seconds"), 0.025));
    assert!(close_to(now("workqueue_longest_running_processor_seconds"), 0.025));
    running.done();
    assert!(close_to(now("workqueue_unfinished_work_seconds"), 0.0));
    assert!(close_to(now("workqueue_work_duration_seconds_sum"), 0.025));
    assert!(close_to(now("workqueue_depth"), 1.0));
    take(&queue).done();
    assert!(close_to(now("workqueue_queue_duration_seconds_count"), 2.0));
}

#[tokio::test(start_paused = true)]
async fn metrics_count_runs_that_outlast_a_shutdown_until_they_end() {
    let (registry, queue) = measured();
    queue.add(Id(1), strong());
    let running = take(&queue);
    queue.shut_down();
    tokio::time::advance(Duration::from_hours(1)).await;
    assert!(close_to(metric(&registry, "workqueue_unfinished_work_seconds"), 3600.0));
    running.done();
    tokio::time::advance(Duration::from_hours(1)).await;
    assert!(close_to(metric(&registry, "workqueue_unfinished_work_seconds"), 0.0));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_counts_in_depth_and_adds_once_each_time_it_becomes_ready() {
    let (registry, queue) = measured();
    for time in [1.0, 2.0] {
        queue.add(Id(1), strong().after(ms(1000)));
        assert!(close_to(metric(&registry, "workqueue_depth"), 0.0));
        assert!(close_to(metric(&registry, "workqueue_adds_total"), time - 1.0));
        tokio::time::advance(ms(1000)).await;
        assert!(close_to(metric(&registry, "workqueue_depth"), 1.0));
        assert!(close_to(metric(&registry, "workqueue_adds_total"), time));
        take(&queue).done();
    }
}

#[tokio::test(start_paused = true)]
async fn only_failures_count_as_retries() {
    let (registry, queue) = measured();
    queue.add(Id(1), strong());
    take(&queue).requeue_after(ms(1));
    queue.add(Id(2), strong().after(ms(5)));
    assert!(close_to(metric(&registry, "workqueue_retries_total"), 0.0));
    queue.add(Id(1), strong());
    let _: Retried = take(&queue).retry("no");
    assert!(close_to(metric(&registry, "workqueue_retries_total"), 1.0));
}

#[tokio::test(start_paused = true)]
async fn bands_of_a_thousand_keys_come_out_in_strict_order_at_once_or_delayed() {
    for after in [Duration::ZERO, ms(1000)] {
        let queue = queue();
        for id in 0..1000 {
            queue.add(Id(1000 + id), background().after(after));
            queue.add(Id(id), strong().after(after));
        }
        tokio::time::advance(after).await;
        assert!(drain(&queue).into_iter().eq(0..2000));
    }
}

#[tokio::test(start_paused = true)]
async fn two_delayed_keys_come_shortest_first_each_at_its_moment() {
    let queue = queue();
    let start = Instant::now();
    queue.add(Id(1), strong().after(ms(1000)));
    queue.add(Id(2), strong().after(ms(200)));
    for (id, waited) in [(2, 200), (1, 1000)] {
        let running = get(&queue).await.unwrap();
        assert_eq!((running.key().0, start.elapsed()), (id, ms(waited)));
        running.done();
    }
}

#[tokio::test(start_paused = true)]
async fn a_live_key_whose_wait_is_over_overtakes_a_background_one_that_waits() {
    let queue = queue();
    queue.add(Id(1), strong().after(ms(10)));
    queue.add(Id(2), background());
    tokio::time::advance(ms(10)).await;
    assert_eq!(drain(&queue), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_sleeping_caller_gets_a_delayed_key_the_moment_it_is_added_without_a_delay() {
    let queue = queue();
    let start = Instant::now();
    queue.add(Id(1), strong().after(Duration::from_mins(10)));
    let (running, ()) = tokio::join!(get(&queue), async {
        tokio::time::sleep(ms(10)).await;
        queue.add(Id(1), strong());
    });
    assert_eq!((running.unwrap().key().0, start.elapsed()), (1, ms(10)));
}

#[tokio::test(start_paused = true)]
async fn each_failing_key_waits_for_its_own_backoff() {
    let queue = queue();
    for _ in 0..7 {
        queue.add(Id(1), strong());
        let _: Retried = take(&queue).retry("no");
    }
    for id in [1, 2] {
        queue.add(Id(id), strong());
        let _: Retried = take(&queue).retry("no");
    }
    let start = Instant::now();
    for (id, waited) in [(2, 5), (1, 640)] {
        let running = get(&queue).await.unwrap();
        assert_eq!((running.key().0, start.elapsed()), (id, ms(waited)));
        running.done();
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_runs_no_task_of_its_own_before_or_after_a_shutdown() {
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    let queue = queue();
    queue.add(Id(1), strong().after(ms(1000)));
    assert_eq!(tasks(), before);
    queue.shut_down_with_drain().await;
    assert_eq!(tasks(), before);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_failures_leave_the_bucket_no_debt() {
    let queue = queue_with(limited(10.0, 100), 1);
    for id in 0..10_000 {
        queue.add(Id(id), strong());
        let _: Retried = take(&queue).retry("no");
    }
    tokio::time::advance(ms(5)).await;
    assert_eq!(drain(&queue).len(), 100, "the burst");
    queue.add(Id(10_000), strong());
    assert_eq!(drain(&queue), [10_000], "fresh work needs no token");
    // client-go's bucket would take sixteen minutes.
    tokio::time::advance(DEFAULT_MAX_WAIT).await;
    assert_eq!(drain(&queue).len(), 9_900);
}

#[tokio::test(start_paused = true)]
async fn delayed_adds_never_wait_however_many_there_are() {
    // client-go sends them to a task through a channel of a thousand.
    let queue = queue();
    for id in 0..10_000 {
        assert_eq!(queue.add(Id(id), strong().after(ms(1000))), Added::Delayed);
    }
    assert_eq!(queue.counts().delayed, 10_000);
    tokio::time::advance(ms(1000)).await;
    assert!(drain(&queue).into_iter().eq(0..10_000));
}

#[tokio::test(start_paused = true)]
async fn delayed_keys_can_be_listed_after_a_shutdown() {
    let queue = queue();
    queue.add(Id(1), strong().after(ms(1000)));
    queue.shut_down();
    assert_eq!(state(&queue, 1), Some(State::Requeued));
    assert!(get(&queue).await.is_none(), "a key is handed out after the shutdown");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_panics_leaves_its_key_to_the_backoff() {
    let queue = queue();
    queue.add(Id(1), strong());
    let running = take(&queue);
    let worker = TaskTracker::new().spawn(async move {
        let _running = running;
        panic!("a reconciler's mistake");
    });
    assert!(soon(worker).await.unwrap_err().is_panic());
    assert_eq!(state(&queue, 1), Some(State::Backoff));
}

/// With fifty failing keys the bound is their delay, `max_wait`, and a run of each key that reached
/// `max_wait` before.
#[tokio::test(start_paused = true)]
async fn every_failing_key_runs_again_in_time_under_a_flood_of_fresh_work_with_the_least_share() {
    const FAILING: u32 = 50;
    let retry = RetryPolicy::fixed(ms(20));
    let queue = queue_with(QueueSettings { retry_share: 1, max_wait: ms(500), ..with_retry(retry) }, 1);
    let bound = ms(20 + 500 + u64::from(FAILING));
    let mut failed = Vec::new();
    for id in 0..FAILING {
        queue.add(Id(id), strong());
        let _: Retried = take(&queue).retry("no");
        failed.push(Instant::now());
    }
    let (mut retries, mut fresh) = (0, FAILING);
    for _ in 0..10_000 {
        while queue.counts().ready_live < 3 {
            queue.add(Id(fresh), strong());
            fresh += 1;
        }
        let running = take(&queue);
        let id = running.key().0;
        if let Some(failed) = failed.get_mut(id as usize) {
            assert!(failed.elapsed() <= bound, "key {id} has waited for {:?}", failed.elapsed());
            tokio::time::advance(ms(1)).await;
            let _: Retried = running.retry("no");
            (*failed, retries) = (Instant::now(), retries + 1);
        } else {
            tokio::time::advance(ms(1)).await;
            running.done();
        }
    }
    assert!(failed.iter().all(|failed| failed.elapsed() <= bound), "a key has starved");
    assert!(retries >= 15 * FAILING, "{retries} retries");
}
