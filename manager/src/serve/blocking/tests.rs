use super::*;
use std::sync::{Barrier, Mutex, mpsc};

use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

fn ok() -> Response {
    "ok".into_response()
}

#[tokio::test]
async fn a_blocking_handler_delays_neither_the_runtime_nor_another_handler() {
    let (gate, slots) = (Arc::new(Barrier::new(2)), BlockingSlots::new(2));
    let stuck = Arc::clone(&gate);
    let stuck = slots.clone().answer(move || {
        stuck.wait();
        ok()
    });
    let mut asking = JoinSet::from_iter([stuck]);
    assert_eq!(slots.answer(ok).await.status(), StatusCode::OK, "the runtime's only thread is not blocked");
    spawn_blocking(move || gate.wait()).await.expect("met");
    assert_eq!(asking.join_next().await.expect("asked").expect("answered").status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn an_answer_without_a_slot_in_time_is_a_503() {
    let (go, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    // Ends when the test drops the sender.
    let stuck = BlockingSlots::new(1).answer(move || {
        held.lock().expect("unpoisoned").recv().expect_err("the sender is dropped");
        ok()
    });
    // Advanced by hand: the paused clock does not advance by itself while a blocking thread works.
    let mut asking = JoinSet::from_iter([stuck]);
    tokio::task::yield_now().await;
    tokio::time::advance(TIMEOUT).await;
    let answer = asking.join_next().await.expect("asked").expect("answered");
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(go);
}

#[tokio::test(start_paused = true)]
async fn an_unread_body_keeps_its_slot_only_with_until_sent() {
    let slots = BlockingSlots::until_sent(1);
    let unread = slots.clone().answer(ok).await;
    // The paused clock advances while no blocking thread works, so the wait for a slot times out.
    assert_eq!(slots.clone().answer(ok).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(unread.into_body().collect().await.expect("a body").to_bytes(), "ok");
    assert_eq!(slots.answer(ok).await.status(), StatusCode::OK);

    let slots = BlockingSlots::new(1);
    let _unread = slots.clone().answer(ok).await;
    assert_eq!(slots.answer(ok).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_panic_is_answered_500() {
    let slots = BlockingSlots::new(1);
    for _ in 0..2 {
        let answer = slots.clone().answer(|| panic!("oops")).await;
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
