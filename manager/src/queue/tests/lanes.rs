use tokio::time::timeout;

use super::*;

#[tokio::test(start_paused = true)]
async fn live_events_come_before_new_objects_and_initial_lists_and_first_come_first_served_within_each() {
    let queue = queue();
    for id in [1, 2] {
        queue.add(Id(id), background());
        queue.add(Id(2 + id), new());
        queue.add(Id(4 + id), strong());
    }
    assert_eq!(drain(&queue), [5, 6, 3, 4, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_live_event_raises_a_background_key_behind_the_live_ones_and_no_add_lowers_it() {
    let queue = queue();
    for id in [1, 2, 4, 5] {
        queue.add(Id(id), background());
    }
    queue.add(Id(3), strong());
    assert_eq!(queue.add(Id(2), weak()), Added::Merged);
    queue.add(Id(3), background());
    for id in [4, 5, 3] {
        queue.add(Id(id), new());
    }
    queue.add(Id(4), background());
    queue.add(Id(5), weak());
    assert_eq!(drain(&queue), [3, 2, 5, 4, 1]);
}

#[tokio::test(start_paused = true)]
async fn a_strong_add_makes_a_waiting_retry_fresh_and_a_weak_one_does_not() {
    let queue = queue();
    make_retry(&queue, 1).await;
    queue.add(Id(1), weak());
    assert_eq!(queue.find(&Id(1)).unwrap().lane, Some(Lane::Retry));
    queue.add(Id(1), strong());
    let key = queue.find(&Id(1)).unwrap();
    assert_eq!((key.lane, key.attempts, key.cause.trigger), (Some(Lane::Live), 1, Trigger::Updated));
}

#[tokio::test(start_paused = true)]
async fn a_requeue_comes_back_as_live_work() {
    let queue = queue();
    queue.add(Id(1), background());
    take(&queue).requeue_after(ms(10));
    queue.add(Id(2), background());
    tokio::time::advance(ms(10)).await;
    assert_eq!(drain(&queue), [1, 2]);
}

/// Only keys 1..=4, in the retry lane.
async fn four_retries(retry_share: u8, workers: usize) -> WorkQueue<Id> {
    let queue = queue_with(QueueSettings { retry_share, ..exact() }, workers);
    for id in 1..=4 {
        queue.add(Id(id), strong());
    }
    while let Some(running) = queue.try_get() {
        let _: Retried = running.retry("no");
    }
    tokio::time::advance(ms(5)).await;
    queue
}

/// Keys 1..=4 in the retry lane, 11.. fresh; four workers.
async fn contested(retry_share: u8) -> WorkQueue<Id> {
    let queue = four_retries(retry_share, 4).await;
    for id in 11..=18 {
        queue.add(Id(id), strong());
    }
    queue
}

#[tokio::test(start_paused = true)]
async fn retries_hold_at_most_their_share_of_the_workers_while_fresh_work_waits() {
    for (share, most) in [(1, 1), (25, 1), (26, 2), (50, 2), (75, 3), (100, 4)] {
        let queue = contested(share).await;
        let mut held = Vec::new();
        while queue.counts().ready_live > 0 {
            held.push(take(&queue));
            let retries = held.iter().filter(|running| running.key().0 < 10).count();
            assert!(retries <= most, "{retries} retries with a share of {share}");
        }
        held.into_iter().for_each(Running::done);
    }
}

#[tokio::test(start_paused = true)]
async fn retries_leave_one_worker_free_even_while_no_fresh_work_waits() {
    // A single worker cannot be left free, and a share of 100 means all of them.
    for (share, workers, most) in
        [(1, 4, 3), (50, 4, 3), (99, 4, 3), (100, 4, 4), (50, 2, 1), (99, 2, 1), (100, 2, 4), (1, 1, 4)]
    {
        let queue = four_retries(share, workers).await;
        let held: Vec<_> = std::iter::from_fn(|| queue.try_get()).collect();
        assert_eq!(held.len(), most, "{workers} workers, a share of {share}");
        queue.add(Id(11), strong());
        assert_eq!(take(&queue).key(), &Id(11), "fresh work need not wait for a run to end");
        held.into_iter().for_each(Running::done);
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_held_back_sleeps_until_a_run_ends_or_it_has_waited_long_enough() {
    let queue = four_retries(50, 2).await;
    let start = Instant::now();
    let first = take(&queue);
    // The paused clock advances only while no task spins.
    assert!(timeout(ms(1000), queue.get()).await.is_err(), "the second worker is kept free");
    let (second, ()) = tokio::join!(get(&queue), async {
        tokio::time::advance(ms(1000)).await;
        first.done();
    });
    assert_eq!((second.as_ref().unwrap().key(), start.elapsed()), (&Id(2), ms(2000)));
    let third = get(&queue).await.unwrap();
    assert_eq!((third.key(), start.elapsed()), (&Id(3), DEFAULT_MAX_WAIT));
}

#[tokio::test(start_paused = true)]
async fn more_workers_or_a_share_of_all_let_a_retry_go_that_is_held_back() {
    for (share, workers) in [(50, 3), (50, 1), (100, 2)] {
        let queue = four_retries(50, 2).await;
        let _first = take(&queue);
        let (second, ()) = tokio::join!(timeout(ms(1000), queue.get()), async {
            tokio::task::yield_now().await;
            queue.reconfigure(QueueSettings { retry_share: share, ..exact() }, workers);
        });
        assert_eq!(second.expect("woken").unwrap().key(), &Id(2), "{workers} workers, a share of {share}");
    }
}

#[tokio::test(start_paused = true)]
async fn fresh_work_and_retries_take_turns_and_fresh_work_goes_first() {
    let queue = contested(50).await;
    assert_eq!(drain(&queue), [11, 1, 12, 2, 13, 3, 14, 4, 15, 16, 17, 18]);
}

#[tokio::test(start_paused = true)]
async fn a_single_worker_is_not_taken_by_retries_alone() {
    let queue = contested(100).await;
    queue.reconfigure(QueueSettings { retry_share: 100, ..exact() }, 1);
    assert_eq!(drain(&queue)[..4], [11, 1, 12, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_small_share_gets_a_small_part_of_the_turns() {
    let queue = queue_with(QueueSettings { retry_share: 10, ..exact() }, 1);
    make_retry(&queue, 1).await;
    for id in 11..=30 {
        queue.add(Id(id), strong());
    }
    assert_eq!(drain(&queue).iter().position(|id| *id == 1), Some(9));
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_ends_lets_a_waiting_one_go() {
    let queue = contested(25).await;
    let mut held = Vec::new();
    while !held.iter().any(|running: &Running<Id>| running.key().0 < 10) {
        held.push(take(&queue));
    }
    let retry = held.pop().unwrap();
    for _ in 0..4 {
        let running = take(&queue);
        assert!(running.key().0 > 10, "a second retry runs");
        running.done();
    }
    retry.done();
    assert!((0..4).any(|_| take(&queue).key().0 < 10), "no retry has had a turn");
}

#[tokio::test(start_paused = true)]
async fn retries_without_a_token_wait_in_their_lane_and_fresh_work_passes() {
    let queue = queue_with(limited(10.0, 2), 1);
    for id in 1..=4 {
        queue.add(Id(id), strong());
    }
    while let Some(running) = queue.try_get() {
        let _: Retried = running.retry("no");
    }
    tokio::time::advance(ms(5)).await;
    assert_eq!(drain(&queue), [1, 2]);
    queue.add(Id(11), strong());
    assert_eq!(drain(&queue), [11]);
    let start = Instant::now();
    for (id, waited) in [(3, 100), (4, 200)] {
        let running = get(&queue).await.unwrap();
        assert_eq!((running.key().0, start.elapsed()), (id, ms(waited)));
        running.done();
    }
}

#[tokio::test(start_paused = true)]
async fn the_oldest_key_of_any_lane_goes_first_once_it_has_waited_for_max_wait() {
    for late in [background(), new(), strong()] {
        let queue = queue_with(QueueSettings { retry_share: 1, ..exact() }, 1);
        if late.band == Band::Live {
            make_retry(&queue, 1).await;
        } else {
            queue.add(Id(1), late);
        }
        let start = Instant::now();
        // Fresh live work for longer than any key may wait.
        let mut waited = None;
        for turn in 0..=40 {
            queue.add(Id(10 + turn), strong());
            let running = take(&queue);
            if running.key() == &Id(1) {
                waited.get_or_insert(start.elapsed());
            }
            running.done();
            tokio::time::advance(ms(1000)).await;
        }
        assert_eq!(waited, Some(DEFAULT_MAX_WAIT));
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_retry_needs_no_token() {
    let queue = queue_with(limited(0.001, 1), 1);
    make_retry(&queue, 1).await;
    take(&queue).done();
    make_retry(&queue, 2).await;
    let start = Instant::now();
    assert_eq!(get(&queue).await.unwrap().key(), &Id(2));
    assert_eq!(start.elapsed(), DEFAULT_MAX_WAIT);
}
