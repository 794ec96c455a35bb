//! A cache of answers with a time to live each.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use mainstay::util::BoundedMap;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A cache of answers by namespace and question, at most `max` in all; each answer has its own time to live.
///
/// A full cache evicts the least recently used answer of the namespace with the most answers, so a namespace
/// with many questions does not evict the answers of others.
#[derive(Debug)]
pub(super) struct TtlCache<Q, A> {
    answers: Mutex<HashMap<String, BoundedMap<Q, Entry<A>>>>,
    max: usize,
}

/// A cached answer with the time until which it is used; `None` before the first answer. Locked during a
/// fetch, so that concurrent callers wait for the same answer.
type Entry<A> = Arc<tokio::sync::Mutex<Option<(Instant, A)>>>;

// === impl TtlCache ===

impl<Q: Eq + Hash + Clone, A: Clone> TtlCache<Q, A> {
    pub(super) fn new(max: usize) -> Self {
        Self { answers: Mutex::new(HashMap::new()), max }
    }

    /// Returns the cached answer to a question of a namespace. Without one, runs `fetch` and caches its
    /// answer for the duration that `ttl` returns for it.
    ///
    /// # Cancel safety
    /// If the caller is dropped during the fetch, the next caller fetches.
    pub(super) async fn get_or_fetch(
        &self,
        namespace: &str,
        question: Q,
        fetch: impl Future<Output = A>,
        ttl: impl FnOnce(&A) -> Duration,
    ) -> A {
        let entry = self.entry(namespace, &question);
        let mut known = entry.lock().await;
        if let Some((_, answer)) = known.as_ref().filter(|(until, _)| *until > Instant::now()) {
            return answer.clone();
        }
        let answer = fetch.await;
        *known = Some((Instant::now() + ttl(&answer), answer.clone()));
        answer
    }

    fn entry(&self, namespace: &str, question: &Q) -> Entry<A> {
        let (mut answers, now) = (self.answers.lock(), Instant::now());
        let known = answers.get_mut(namespace).and_then(|own| own.get(question, now));
        if let Some(entry) = known {
            return Arc::clone(entry);
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
