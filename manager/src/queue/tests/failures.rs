//! Failures, their attempts and their backoff.

use super::*;

#[tokio::test(start_paused = true)]
async fn delays_of_a_failing_key_double_to_the_maximum_for_forty_attempts() {
    let queue = queue_with(QueueSettings::default(), 1);
    queue.add(Id(1), strong());
    for attempt in 1..=40_u32 {
        let before = Instant::now();
        let running = get(&queue).await.unwrap();
        assert_eq!(running.attempt(), attempt);
        let planned =
            if attempt == 1 { 0.0 } else { (0.005 * 2_f64.powi(attempt.cast_signed() - 2)).min(1000.0) };
        let waited = before.elapsed().as_secs_f64();
        // The timer counts in whole milliseconds.
        assert!(
            (planned * 0.9..=planned + 0.001).contains(&waited),
            "attempt {attempt}: {waited} of {planned}"
        );
        let _: Retried = running.retry("always");
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_resets_the_attempts_and_keys_fail_independently() {
    let queue = queue();
    for _ in 0..3 {
        queue.add(Id(1), strong());
        let _: Retried = take(&queue).retry("no");
    }
    queue.add(Id(2), strong());
    assert_eq!(take(&queue).retry("no"), Retried::After(ms(5)));
    queue.add(Id(1), strong());
    let running = take(&queue);
    assert_eq!(running.attempt(), 4);
    running.done();
    queue.add(Id(1), strong());
    assert_eq!(take(&queue).retry("no"), Retried::After(ms(5)));
}

#[tokio::test(start_paused = true)]
async fn a_strong_add_ends_a_backoff_at_once_and_a_weak_one_does_not() {
    let queue = queue();
    queue.add(Id(1), strong());
    let _: Retried = take(&queue).retry("no");
    assert_eq!(queue.add(Id(1), weak()), Added::Kept);
    assert_eq!(drain(&queue), [0; 0]);
    assert_eq!(queue.add(Id(1), strong()), Added::Queued);
    let running = take(&queue);
    assert_eq!((running.attempt(), running.cause().trigger), (2, Trigger::Updated));
}

#[tokio::test(start_paused = true)]
async fn a_delayed_strong_add_shortens_a_backoff_that_weak_adds_still_do_not_end() {
    let fail: [fn(Running<Id>) -> Retried; 2] =
        [|running| running.retry("no"), |running| running.fail("busy", Retry::After(ms(1000)))];
    for fail in fail {
        let queue = queue_with(with_retry(RetryPolicy::fixed(ms(1000)).with_jitter(0)), 1);
        queue.add(Id(1), strong());
        assert_eq!(fail(take(&queue)), Retried::After(ms(1000)));
        assert_eq!(queue.add(Id(1), strong().after(ms(2000))), Added::Merged);
        assert_eq!(queue.add(Id(1), strong().after(ms(300))), Added::Delayed);
        assert_eq!(queue.add(Id(1), weak()), Added::Kept);
        let key = queue.find(&Id(1)).unwrap();
        assert_eq!((key.state, key.attempts, key.next_run), (State::Backoff, 1, Some(ms(300))));
        tokio::time::advance(ms(299)).await;
        assert!(queue.try_get().is_none(), "a millisecond early");
        tokio::time::advance(ms(1)).await;
        let running = take(&queue);
        assert_eq!((running.attempt(), running.cause().trigger), (2, Trigger::Retried));
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_generation_resets_the_attempts_also_of_a_running_key() {
    let queue = queue();
    queue.add(Id(1), strong());
    let _: Retried = take(&queue).retry("no");
    queue.add(Id(1), new_generation());
    let running = take(&queue);
    assert_eq!(running.attempt(), 1);
    queue.add(Id(1), new_generation());
    assert_eq!(running.retry("no"), Retried::After(Duration::ZERO));
    assert_eq!(take(&queue).attempt(), 1);
}

#[tokio::test(start_paused = true)]
async fn requeues_do_not_count_as_attempts() {
    let queue = queue();
    queue.add(Id(1), strong());
    for _ in 0..3 {
        let running = get(&queue).await.unwrap();
        assert_eq!(running.attempt(), 1);
        running.requeue_after(ms(100));
    }
    let key = queue.find(&Id(1)).unwrap();
    assert_eq!((key.state, key.attempts, key.next_run), (State::Requeued, 0, Some(ms(100))));
}

#[tokio::test(start_paused = true)]
async fn a_key_out_of_attempts_is_parked_until_something_changes() {
    let mut settings = exact();
    settings.retry.max_attempts = 2;
    let queue = queue_with(settings, 1);
    queue.add(Id(1), strong());
    assert_eq!(take(&queue).retry("one"), Retried::After(ms(5)));
    tokio::time::advance(ms(5)).await;
    assert_eq!(take(&queue).retry("two"), Retried::Parked);
    tokio::time::advance(Duration::from_hours(24)).await;
    assert_eq!(queue.add(Id(1), weak()), Added::Kept);
    assert_eq!(drain(&queue), [0; 0]);
    let key = queue.find(&Id(1)).unwrap();
    assert_eq!(
        (key.state, key.attempts, key.last_error.as_deref().map(String::as_str)),
        (State::Parked, 2, Some("two"))
    );
    assert_eq!(queue.add(Id(1), Add::by_hand()), Added::Queued);
    assert_eq!(take(&queue).attempt(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_terminal_failure_parks_the_key_at_its_first_attempt() {
    let queue = queue();
    queue.add(Id(1), strong());
    assert_eq!(take(&queue).fail("cannot decode", Retry::Never), Retried::Parked);
    assert_eq!(queue.counts().parked, 1);
    queue.add(Id(1), strong());
    assert_eq!(drain(&queue), [1]);
    assert_eq!(snapshots(&queue).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn dropping_a_run_without_an_outcome_counts_as_a_failure() {
    let queue = queue();
    queue.add(Id(1), strong());
    drop(take(&queue));
    let key = queue.find(&Id(1)).unwrap();
    assert_eq!((key.state, key.attempts, key.next_run), (State::Backoff, 1, Some(ms(5))));
    assert_eq!(
        key.last_error.as_deref().map(String::as_str),
        Some("the run ended without an outcome: it panicked or was cancelled")
    );
}

#[tokio::test(start_paused = true)]
async fn a_run_dropped_after_leadership_was_lost_leaves_the_key_unchanged() {
    let queue = queue();
    queue.add(Id(1), strong());
    let running = take(&queue);
    queue.set_leading(false);
    drop(running);
    let key = queue.find(&Id(1)).unwrap();
    assert_eq!((key.state, key.attempts, key.lane), (State::Ready, 0, Some(Lane::Live)));
    assert!(queue.try_get().is_none(), "a standby hands out a key");
    queue.set_leading(true);
    assert_eq!(drain(&queue), [1]);
}

#[tokio::test(start_paused = true)]
async fn retry_after_waits_as_long_as_it_says_and_counts_as_an_attempt() {
    let queue = queue();
    queue.add(Id(1), strong());
    assert_eq!(take(&queue).fail("busy", Retry::After(ms(700))), Retried::After(ms(700)));
    tokio::time::advance(ms(700)).await;
    assert_eq!(take(&queue).attempt(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_a_server_asks_for_is_at_least_the_backoff_and_at_most_the_longest_delay() {
    let queue = queue();
    for (id, asked, wait) in
        [(1, 0, ms(5)), (2, 3, Duration::from_secs(3)), (3, u64::MAX, Duration::from_secs(1000))]
    {
        queue.add(Id(id), strong());
        let retried = take(&queue).fail("busy", Retry::NotBefore(Duration::from_secs(asked)));
        assert_eq!(retried, Retried::After(wait), "asked for {asked} s");
    }
    // The backoff of a key with many failures is longer than the wait that a server asks for.
    for attempt in 2..=5 {
        tokio::time::advance(ms(5 << (attempt - 2))).await;
        let running = take(&queue);
        assert_eq!((running.key().0, running.attempt()), (1, attempt));
        let _: Retried = running.fail("busy", Retry::NotBefore(ms(1)));
    }
    assert_eq!(queue.find(&Id(1)).unwrap().next_run, Some(ms(80)));
}

#[tokio::test(start_paused = true)]
async fn keys_with_the_same_wait_from_a_server_come_back_spread_out_and_none_too_soon() {
    let queue = queue_with(QueueSettings::default(), 1);
    let asked = Duration::from_secs(10);
    let mut waits = Vec::new();
    for id in 0..100 {
        queue.add(Id(id), strong());
        let Retried::After(wait) = take(&queue).fail("busy", Retry::NotBefore(asked)) else {
            panic!("parked")
        };
        waits.push(wait);
    }
    waits.sort();
    waits.dedup();
    assert!(waits.len() > 90, "{waits:?}");
    assert!(waits[0] >= asked && waits[waits.len() - 1] <= asked.mul_f64(1.1), "{waits:?}");
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_keys_that_fail_together_are_retried_within_a_second() {
    let queue = queue_with(QueueSettings::default(), 4);
    for id in 0..10_000 {
        queue.add(Id(id), strong());
    }
    while let Some(running) = queue.try_get() {
        let _: Retried = running.retry("no");
    }
    let start = Instant::now();
    for _ in 0..10_000 {
        get(&queue).await.unwrap().done();
    }
    assert!(start.elapsed() <= Duration::from_secs(1), "{:?}", start.elapsed());
    assert_eq!(snapshots(&queue).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_error_is_kept_to_a_kilobyte_without_cutting_a_character() {
    let queue = queue();
    queue.add(Id(1), strong());
    let _: Retried = take(&queue).retry(&"ü".repeat(5000));
    let error = queue.find(&Id(1)).unwrap().last_error.unwrap();
    assert_eq!((error.len(), error.chars().all(|char| char == 'ü')), (1024, true));
}
