use super::*;
use tokio_util::task::TaskTracker;

#[tokio::test(start_paused = true)]
async fn a_full_queue_refuses_new_keys_in_the_background_only() {
    let queue = queue_with(QueueSettings { max_depth: 2, ..exact() }, 1);
    assert_eq!(queue.add(Id(1), background()), Added::Queued);
    assert_eq!(queue.add(Id(2), background()), Added::Queued);
    assert_eq!(queue.add(Id(3), background()), Added::Refused);
    assert_eq!(queue.add(Id(3), background().after(ms(1))), Added::Refused);
    assert_eq!(queue.add(Id(1), background()), Added::Merged);
    assert_eq!(queue.add(Id(4), strong()), Added::Queued);
    assert_eq!(queue.add(Id(5), new()), Added::Queued);
    assert_eq!(drain(&queue), [4, 5, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn refused_sources_wake_when_half_of_the_queue_is_free() {
    let queue = queue_with(QueueSettings { max_depth: 4, ..exact() }, 1);
    for id in 1..=5 {
        queue.add(Id(id), background());
    }
    let sources = TaskTracker::new();
    for _ in 0..3 {
        let queue = queue.clone();
        sources.spawn(async move { queue.wait_for_room().await });
    }
    sources.close();
    tokio::task::yield_now().await;
    take(&queue).done();
    tokio::task::yield_now().await;
    assert_eq!(sources.len(), 3, "one of four free is too early");
    take(&queue).done();
    soon(sources.wait()).await;
    assert_eq!(queue.add(Id(5), background()), Added::Queued);
}

#[tokio::test(start_paused = true)]
async fn waiting_for_room_ends_at_once_without_a_limit_and_at_a_shutdown() {
    queue().wait_for_room().await;
    let queue = queue_with(QueueSettings { max_depth: 1, ..exact() }, 1);
    queue.add(Id(1), strong());
    let source = queue.clone();
    tokio::join!(soon(source.wait_for_room()), async { queue.shut_down() });
}

#[tokio::test(start_paused = true)]
async fn lifting_the_limit_wakes_the_sources() {
    let queue = queue_with(QueueSettings { max_depth: 1, ..exact() }, 1);
    queue.add(Id(1), strong());
    let source = queue.clone();
    tokio::join!(soon(source.wait_for_room()), async { queue.reconfigure(exact(), 1) });
}

#[tokio::test(start_paused = true)]
async fn a_shorter_policy_shortens_the_backoffs_under_way_and_no_requeue() {
    let queue = queue();
    queue.add(Id(1), strong());
    take(&queue).requeue_after(Duration::from_mins(1));
    queue.reconfigure(with_retry(RetryPolicy::fixed(Duration::from_mins(15))), 1);
    queue.add(Id(2), strong());
    let _: Retried = take(&queue).retry("no");
    queue.reconfigure(with_retry(RetryPolicy::exponential(ms(3), ms(10)).with_jitter(0)), 1);
    assert_eq!(queue.find(&Id(2)).unwrap().next_run, Some(ms(3)));
    assert_eq!(queue.find(&Id(1)).unwrap().next_run, Some(Duration::from_mins(1)));
    tokio::time::advance(ms(3)).await;
    assert_eq!(drain(&queue), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_new_policy_does_not_shorten_a_wait_that_the_error_named() {
    let queue = queue();
    queue.add(Id(1), strong());
    let _: Retried = take(&queue).fail("busy", Retry::After(Duration::from_mins(15)));
    queue.reconfigure(with_retry(RetryPolicy::fixed(ms(3))), 1);
    tokio::time::advance(Duration::from_mins(14)).await;
    assert_eq!(queue.find(&Id(1)).unwrap().next_run, Some(Duration::from_mins(1)));
    queue.add(Id(1), weak());
    assert_eq!(state(&queue, 1), Some(State::Backoff), "a weak add does not end it, as with any backoff");
    tokio::time::advance(Duration::from_mins(1)).await;
    assert_eq!(queue.find(&Id(1)).and_then(|key| key.lane), Some(Lane::Retry));
    queue.add(Id(1), strong());
    assert_eq!(drain(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn a_new_policy_shortens_a_backoff_that_is_longer_than_the_server_asked_for() {
    let queue = queue_with(with_retry(RetryPolicy::fixed(Duration::from_secs(20))), 1);
    for (id, asked) in [(1, 10), (2, 30)] {
        queue.add(Id(id), strong());
        let _: Retried = take(&queue).fail("busy", Retry::NotBefore(Duration::from_secs(asked)));
    }
    queue.reconfigure(with_retry(RetryPolicy::fixed(ms(3))), 1);
    assert_eq!(queue.find(&Id(1)).unwrap().next_run, Some(ms(3)));
    assert_eq!(
        queue.find(&Id(2)).unwrap().next_run,
        Some(Duration::from_secs(30)),
        "the wait that the server asked for"
    );
}

#[tokio::test(start_paused = true)]
async fn more_attempts_free_the_keys_that_were_out_of_attempts_and_no_other() {
    let queue = queue_with(with_retry(RetryPolicy::fixed(ms(5)).with_max_attempts(1)), 1);
    for id in 1..=3 {
        queue.add(Id(id), strong());
    }
    let _: Retried = take(&queue).retry("no");
    let _: Retried = take(&queue).fail("never", Retry::Never);
    take(&queue).park("paused");
    tokio::time::advance(ms(1000)).await;
    queue.reconfigure(with_retry(RetryPolicy::fixed(ms(7)).with_max_attempts(1)), 1);
    assert_eq!([1, 2, 3].map(|id| state(&queue, id)), [Some(State::Parked); 3], "as many as before");
    for attempts in [2, 0] {
        queue.reconfigure(with_retry(RetryPolicy::fixed(ms(7)).with_max_attempts(attempts)), 1);
        let freed = queue.find(&Id(1)).unwrap();
        assert_eq!((freed.state, freed.next_run), (State::Backoff, Some(ms(7))), "{attempts} attempts");
        assert_eq!([2, 3].map(|id| state(&queue, id)), [Some(State::Parked); 2], "{attempts} attempts");
        tokio::time::advance(ms(7)).await;
        let again = take(&queue);
        assert_eq!((again.key().0, again.queued_for()), (1, Duration::ZERO));
        let retried = again.retry("no");
        assert_eq!(retried == Retried::Parked, attempts == 2);
    }
    assert_eq!((queue.counts().parked, queue.counts().paused), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_is_lifted_lets_a_sleeping_caller_go_on() {
    let queue = queue_with(limited(0.1, 1), 1);
    make_retry(&queue, 1).await;
    take(&queue).done();
    make_retry(&queue, 2).await;
    let start = Instant::now();
    let waiting = queue.clone();
    let (running, ()) = tokio::join!(get(&waiting), async {
        tokio::time::sleep(ms(10)).await;
        queue.reconfigure(exact(), 1);
    });
    assert_eq!((running.map(|running| running.key().0), start.elapsed()), (Some(2), ms(10)));
}

#[tokio::test(start_paused = true)]
async fn a_standby_keeps_its_keys_warm_and_their_age_starts_at_the_election() {
    let queue = queue();
    queue.set_leading(false);
    queue.add(Id(1), background());
    queue.add(Id(2), strong().after(ms(500)));
    tokio::time::advance(Duration::from_hours(1)).await;
    let waiting = queue.clone();
    let (running, ()) = tokio::join!(get(&waiting), async {
        tokio::time::sleep(ms(10)).await;
        queue.set_leading(true);
    });
    let running = running.unwrap();
    // If its hour on the standby counted, the background key would go first.
    assert_eq!((running.key().0, running.queued_for()), (2, Duration::ZERO));
    tokio::time::advance(ms(7)).await;
    assert_eq!(queue.counts().oldest_ready, Some(ms(7)));
}

#[tokio::test(start_paused = true)]
async fn invalid_settings_count_as_the_nearest_valid_ones() {
    let settings = QueueSettings { retry_share: 0, max_wait: Duration::ZERO, ..exact() };
    let queue = queue_with(settings, 0);
    make_retry(&queue, 1).await;
    queue.add(Id(2), strong());
    // With a `max_wait` of zero all keys go by age.
    assert_eq!(drain(&queue), [1, 2]);
}

#[tokio::test(start_paused = true)]
async fn an_endless_wait_neither_overflows_nor_wakes_a_caller() {
    let queue = queue();
    queue.add(Id(1), strong());
    take(&queue).requeue_after(Duration::MAX);
    assert!(tokio::time::timeout(Duration::from_hours(24), queue.get()).await.is_err());
    assert_eq!(state(&queue, 1), Some(State::Requeued));
}
