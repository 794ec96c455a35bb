//! Answers that count for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use mainstay::util::BoundedMap;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Answers by namespace and question, at most `max`; each counts for a time of its own.
///
/// When there are too many, the namespace with the most loses its least recently used one: no namespace loses an answer
/// because another one asks for much.
#[derive(Debug)]
pub(super) struct Remembered<Q, A> {
    answers: Mutex<HashMap<String, BoundedMap<Q, Slot<A>>>>,
    max: usize,
}

/// An answer with the end of its time; `None` before the first. Locked while it is fetched, so that others wait for it.
type Slot<A> = Arc<tokio::sync::Mutex<Option<(Instant, A)>>>;

// === impl Remembered ===

impl<Q: Eq + Hash + Clone, A: Clone> Remembered<Q, A> {
    pub(super) fn new(max: usize) -> Self {
        Self { answers: Mutex::new(HashMap::new()), max }
    }

    /// Returns the answer that counts, or fetches one with `ask`. A caller dropped meanwhile leaves that to the next.
    pub(super) async fn get_or(
        &self,
        namespace: &str,
        question: Q,
        ask: impl Future<Output = A>,
        lasting: impl FnOnce(&A) -> Duration,
    ) -> A {
        let slot = self.slot(namespace, &question);
        let mut known = slot.lock().await;
        if let Some((_, answer)) = known.as_ref().filter(|(until, _)| *until > Instant::now()) {
            return answer.clone();
        }
        let answer = ask.await;
        *known = Some((Instant::now() + lasting(&answer), answer.clone()));
        answer
    }

    fn slot(&self, namespace: &str, question: &Q) -> Slot<A> {
        let (mut answers, now) = (self.answers.lock(), Instant::now());
        let known = answers.get_mut(namespace).and_then(|own| own.get(question, now));
        if let Some(slot) = known {
            return Arc::clone(slot);
        }
        if answers.values().map(BoundedMap::len).sum::<usize>() >= self.max {
            answers.values_mut().max_by_key(|own| own.len()).and_then(BoundedMap::pop_least_used);
            answers.retain(|_, own| !own.is_empty());
        }
        let own = answers.entry(namespace.to_owned()).or_insert_with(|| BoundedMap::new(self.max));
        Arc::clone(own.get_or_insert_with(question, now, Arc::default))
    }
}

#[cfg(test)]
mod tests;
