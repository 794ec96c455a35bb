//! Answers that may take their time, away from the runtime that serves.
//!
//! The runtime here is the control thread's: an answer that blocked it would stop the elector. So whatever calls code
//! of users (checks, collectors, the `Display` of keys) runs on a blocking thread, a bounded number at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::Handler;

/// How long an answer may take, its wait for a turn included: longer than any prober waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// An error only where the turns are closed, which nobody does.
type Turn = Result<OwnedSemaphorePermit, AcquireError>;

/// Makes a handler of a function that may block. At most `at_once` calls run at the same time; who has no answer within
/// ten seconds gets a 503, while a call that has begun keeps its turn until it ends. A panic answers 500.
pub(crate) fn blocking(
    at_once: usize,
    answer: impl Fn(&Request<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
) -> Handler {
    in_turns(at_once, move |request, _turn| answer(request))
}

/// As [`blocking`], but an answer keeps its turn until it has left this process or was given up: however many ask for
/// long answers and read them slowly, `at_once` of these are in memory.
pub(crate) fn blocking_until_taken(
    at_once: usize,
    answer: impl Fn(&Request<Bytes>) -> Response<Bytes> + Send + Sync + 'static,
) -> Handler {
    in_turns(at_once, move |request, turn| {
        answer(request).map(|body| Bytes::from_owner(Held { body, _turn: turn }))
    })
}

/// An answer that keeps its turn.
struct Held {
    body: Bytes,
    _turn: Turn,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

fn in_turns(
    at_once: usize,
    answer: impl Fn(&Request<Bytes>, Turn) -> Response<Bytes> + Send + Sync + 'static,
) -> Handler {
    let (turns, answer) = (Arc::new(Semaphore::new(at_once)), Arc::new(answer));
    Arc::new(move |request| {
        let (turns, answer) = (Arc::clone(&turns), Arc::clone(&answer));
        Box::pin(async move {
            let answered = timeout(PATIENCE, async {
                let turn = turns.acquire_owned().await;
                spawn_blocking(move || answer(&request, turn)).await
            });
            match answered.await {
                Ok(Ok(response)) => response,
                Ok(Err(_panic)) => plain(StatusCode::INTERNAL_SERVER_ERROR, "the answer panicked\n"),
                Err(_elapsed) => plain(StatusCode::SERVICE_UNAVAILABLE, "no answer in time\n"),
            }
        })
    })
}

fn plain(status: StatusCode, text: &'static str) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from_static(text.as_bytes()));
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Barrier, Mutex, mpsc};

    fn asked(path: &str) -> Request<Bytes> {
        Request::builder().uri(path).body(Bytes::new()).expect("a request")
    }

    #[tokio::test]
    async fn an_answer_that_blocks_costs_neither_the_runtime_nor_another_answer() {
        let gate = Arc::new(Barrier::new(2));
        let stuck = Arc::clone(&gate);
        let handler = blocking(2, move |request| {
            if request.uri().path() == "/stuck" {
                stuck.wait();
            }
            plain(StatusCode::OK, "ok")
        });
        let mut asking = tokio::task::JoinSet::new();
        asking.spawn(handler(asked("/stuck")));
        assert_eq!(handler(asked("/quick")).await.status(), StatusCode::OK, "on this very thread");
        spawn_blocking(move || gate.wait()).await.expect("met");
        assert_eq!(asking.join_next().await.expect("asked").expect("answered").status(), StatusCode::OK);
    }

    #[tokio::test(start_paused = true)]
    async fn who_gets_no_turn_in_time_is_told_so() {
        let (go, held) = mpsc::channel::<()>();
        let held = Mutex::new(held);
        let handler = blocking(1, move |_| {
            // Ends when the test drops its end.
            held.lock().expect("unpoisoned").recv().expect_err("nothing is sent");
            plain(StatusCode::OK, "ok")
        });
        // Advanced by hand: the clock does not pause while a blocking thread works.
        let mut asking = tokio::task::JoinSet::new();
        asking.spawn(handler(asked("/")));
        tokio::task::yield_now().await;
        tokio::time::advance(PATIENCE).await;
        let answer = asking.join_next().await.expect("asked").expect("answered");
        assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
        drop(go);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_keeps_its_turn() {
        let handler = blocking_until_taken(1, |_| plain(StatusCode::OK, "ok"));
        let untaken = handler(asked("/")).await;
        // The clock moves on by itself only while no blocking thread works, that is while this waits for its turn.
        assert_eq!(handler(asked("/")).await.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(untaken.into_body(), "ok");
        assert_eq!(handler(asked("/")).await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn a_panic_is_an_answer_of_its_own() {
        let handler = blocking(1, |_| panic!("oops"));
        for _ in 0..2 {
            assert_eq!(handler(asked("/")).await.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
    }
}
