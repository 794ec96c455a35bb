//! Answers that count for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Answers by question, at most so many; each for as long as its asker says.
#[derive(Debug)]
pub(super) struct Remembered<Q, A> {
    /// With the end of its time.
    answers: Mutex<HashMap<Q, (Instant, A)>>,
    max: usize,
}

// === impl Remembered ===

impl<Q: Eq + Hash + Clone, A: Clone> Remembered<Q, A> {
    pub(super) fn new(max: usize) -> Self {
        Self { answers: Mutex::new(HashMap::new()), max }
    }

    /// Returns the answer that counts, or asks for one. Two who ask at the same time may both be answered afresh.
    pub(super) async fn get_or(
        &self,
        question: Q,
        ask: impl Future<Output = A>,
        lasting: impl FnOnce(&A) -> Duration,
    ) -> A {
        let now = Instant::now();
        if let Some((_, answer)) = self.answers.lock().get(&question).filter(|(until, _)| *until > now) {
            return answer.clone();
        }
        let answer = ask.await;
        let until = Instant::now() + lasting(&answer);
        let mut answers = self.answers.lock();
        if answers.len() >= self.max {
            answers.retain(|_, (until, _)| *until > now);
        }
        // Full of answers that count: this one is asked for again. Slower, and never more memory.
        if answers.len() < self.max || answers.contains_key(&question) {
            answers.insert(question, (until, answer.clone()));
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_its_time_and_is_forgotten_for_others_after_it() {
        let remembered = Remembered::new(2);
        let asked = Cell::new(0);
        let get = async |question: &'static str| {
            let ask = async {
                asked.set(asked.get() + 1);
                asked.get()
            };
            remembered.get_or(question, ask, |_| Duration::from_secs(10)).await
        };
        assert_eq!((get("a").await, get("a").await, get("b").await), (1, 1, 2));
        assert_eq!((get("c").await, get("c").await), (3, 4), "no room, so nothing is remembered");
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!(get("a").await, 1, "one tick before its end");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!((get("a").await, get("c").await, get("c").await), (5, 6, 6), "room again");
    }
}
