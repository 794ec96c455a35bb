use super::*;
use std::sync::{Barrier, Mutex, mpsc};

use http_body_util::BodyExt as _;
use tokio::task::JoinSet;

fn ok() -> Response {
    "ok".into_response()
}

#[tokio::test]
async fn an_answer_that_blocks_costs_neither_the_runtime_nor_another_answer() {
    let (gate, turns) = (Arc::new(Barrier::new(2)), Turns::new(2));
    let stuck = Arc::clone(&gate);
    let stuck = turns.clone().answer(move || {
        stuck.wait();
        ok()
    });
    let mut asking = JoinSet::from_iter([stuck]);
    assert_eq!(turns.answer(ok).await.status(), StatusCode::OK, "on this very thread");
    spawn_blocking(move || gate.wait()).await.expect("met");
    assert_eq!(asking.join_next().await.expect("asked").expect("answered").status(), StatusCode::OK);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_gets_no_turn_in_time_is_a_503() {
    let (go, held) = mpsc::channel::<()>();
    let held = Mutex::new(held);
    // Ends when the test drops its end.
    let stuck = Turns::new(1).answer(move || {
        held.lock().expect("unpoisoned").recv().expect_err("nothing is sent");
        ok()
    });
    // Advanced by hand: the clock does not move by itself while a blocking thread works.
    let mut asking = JoinSet::from_iter([stuck]);
    tokio::task::yield_now().await;
    tokio::time::advance(PATIENCE).await;
    let answer = asking.join_next().await.expect("asked").expect("answered");
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    drop(go);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_not_read_keeps_its_turn_if_it_has_to() {
    let turns = Turns::until_read(1);
    let unread = turns.clone().answer(ok).await;
    // The clock moves on by itself only while no blocking thread works, that is while this waits for its turn.
    assert_eq!(turns.clone().answer(ok).await.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(unread.into_body().collect().await.expect("a body").to_bytes(), "ok");
    assert_eq!(turns.answer(ok).await.status(), StatusCode::OK);

    let turns = Turns::new(1);
    let _unread = turns.clone().answer(ok).await;
    assert_eq!(turns.answer(ok).await.status(), StatusCode::OK);
}

#[tokio::test]
async fn a_panic_is_an_answer_of_its_own() {
    let turns = Turns::new(1);
    for _ in 0..2 {
        let answer = turns.clone().answer(|| panic!("oops")).await;
        assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
}
