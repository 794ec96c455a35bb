use super::*;
use tokio::task::JoinSet;
use tokio_util::task::TaskTracker;

#[tokio::test(start_paused = true)]
async fn shutting_down_wakes_every_caller_and_later_adds_are_ignored() {
    let queue = queue();
    let mut callers = JoinSet::new();
    for _ in 0..5 {
        let queue = queue.clone();
        callers.spawn(async move { assert!(get(&queue).await.is_none()) });
    }
    tokio::task::yield_now().await;
    assert!(!queue.counts().shutting_down);
    queue.shut_down();
    soon(callers.join_all()).await;
    assert!(queue.counts().shutting_down);
    assert_eq!(queue.add(Id(1), strong()), Added::ShuttingDown);
    assert!(get(&queue).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn shutting_down_at_once_hands_out_no_more_keys() {
    let queue = queue();
    queue.add(Id(1), strong());
    queue.add(Id(2), strong());
    let running = take(&queue);
    queue.shut_down();
    assert!(get(&queue).await.is_none());
    running.done();
    assert_eq!(state(&queue, 2), Some(State::Ready));
}

#[tokio::test(start_paused = true)]
async fn a_run_dropped_during_shutdown_leaves_the_key_unchanged() {
    let queue = queue();
    queue.add(Id(1), strong());
    let running = take(&queue);
    queue.shut_down();
    drop(running);
    let key = queue.find(&Id(1)).unwrap();
    assert_eq!((key.state, key.attempts), (State::Ready, 0));
}

/// Starts `count` drains. Returns a tracker that waits for all of them.
async fn start_drains(queue: &WorkQueue<Id>, count: usize) -> TaskTracker {
    let drains = TaskTracker::new();
    for _ in 0..count {
        let queue = queue.clone();
        drains.spawn(async move { queue.shut_down_with_drain().await });
    }
    drains.close();
    tokio::task::yield_now().await;
    drains
}

#[tokio::test(start_paused = true)]
async fn a_drain_waits_for_running_keys_and_wakes_all_its_waiters() {
    let queue = queue_with(exact(), 2);
    queue.add(Id(1), strong());
    queue.add(Id(2), strong());
    let (one, two) = (take(&queue), take(&queue));
    let drains = start_drains(&queue, 3).await;
    assert!(get(&queue).await.is_none(), "no key is left to hand out");
    one.done();
    tokio::task::yield_now().await;
    assert_eq!(drains.len(), 3);
    two.done();
    soon(drains.wait()).await;
}

#[tokio::test(start_paused = true)]
async fn a_drain_hands_out_ready_and_dirty_keys_and_does_not_wait_for_delayed_ones() {
    let queue = queue();
    queue.add(Id(3), strong().after(ms(10)));
    queue.add(Id(1), strong());
    queue.add(Id(2), strong());
    let running = take(&queue);
    queue.add(Id(1), strong());
    let drains = start_drains(&queue, 1).await;
    assert_eq!(queue.add(Id(4), strong()), Added::ShuttingDown);
    running.done();
    tokio::time::advance(ms(20)).await;
    assert_eq!(drain(&queue), [2, 1]);
    soon(drains.wait()).await;
    assert_eq!(state(&queue, 3), Some(State::Requeued));
    assert!(get(&queue).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_caller_sleeps_through_a_drain_until_the_last_dirty_key_has_come_back() {
    let queue = queue_with(exact(), 2);
    queue.add(Id(1), strong());
    let running = take(&queue);
    queue.add(Id(1), strong());
    let drains = start_drains(&queue, 1).await;
    let waiting = queue.clone();
    let (again, ()) = tokio::join!(get(&waiting), async {
        tokio::time::sleep(ms(5)).await;
        running.done();
    });
    again.unwrap().done();
    soon(drains.wait()).await;
}

#[tokio::test(start_paused = true)]
async fn a_run_dropped_during_a_drain_is_not_run_again_and_not_waited_for() {
    let queue = queue();
    queue.add(Id(1), strong());
    let running = take(&queue);
    let drains = start_drains(&queue, 1).await;
    drop(running);
    soon(drains.wait()).await;
    assert_eq!(queue.find(&Id(1)).map(|key| key.attempts), Some(0));
}

#[tokio::test(start_paused = true)]
async fn shutting_down_at_once_ends_a_drain() {
    let queue = queue();
    queue.add(Id(1), strong());
    let running = take(&queue);
    let drains = start_drains(&queue, 2).await;
    queue.shut_down();
    soon(drains.wait()).await;
    running.done();
    queue.shut_down_with_drain().await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_queue_drains_at_once() {
    queue().shut_down_with_drain().await;
}
