//! Answers that count for a while.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Answers by namespace and question, at most so many; each for as long as its asker says.
///
/// Where there are too many, the namespace with the most gives up the one that it has not used for longest: nobody loses
/// an answer because another namespace asks for much.
#[derive(Debug)]
pub(super) struct Remembered<Q, A> {
    places: Mutex<HashMap<(String, Q), Place<A>>>,
    max: usize,
}

#[derive(Debug)]
struct Place<A> {
    used: Instant,
    /// With the end of its time; none while it is asked for. Locked by who asks, so that others wait for that answer.
    answer: Arc<tokio::sync::Mutex<Option<(Instant, A)>>>,
}

// === impl Remembered ===

impl<Q: Eq + Hash + Clone, A: Clone> Remembered<Q, A> {
    pub(super) fn new(max: usize) -> Self {
        Self { places: Mutex::new(HashMap::new()), max }
    }

    /// Returns the answer that counts, or asks for one; who is dropped while asking leaves it to the next.
    pub(super) async fn get_or(
        &self,
        namespace: &str,
        question: Q,
        ask: impl Future<Output = A>,
        lasting: impl FnOnce(&A) -> Duration,
    ) -> A {
        let place = self.place((namespace.to_owned(), question));
        let mut known = place.lock().await;
        if let Some((_, answer)) = known.as_ref().filter(|(until, _)| *until > Instant::now()) {
            return answer.clone();
        }
        let answer = ask.await;
        *known = Some((Instant::now() + lasting(&answer), answer.clone()));
        answer
    }

    fn place(&self, key: (String, Q)) -> Arc<tokio::sync::Mutex<Option<(Instant, A)>>> {
        let mut places = self.places.lock();
        if places.len() >= self.max
            && !places.contains_key(&key)
            && let Some(given_up) = least_missed(&places)
        {
            places.remove(&given_up);
        }
        let used = Instant::now();
        let place = places.entry(key).or_insert_with(|| Place { used, answer: Arc::default() });
        place.used = used;
        Arc::clone(&place.answer)
    }
}

// === private ===

fn least_missed<Q: Clone, A>(places: &HashMap<(String, Q), Place<A>>) -> Option<(String, Q)> {
    let mut of_namespace: HashMap<&str, usize> = HashMap::new();
    for (namespace, _) in places.keys() {
        *of_namespace.entry(namespace).or_default() += 1;
    }
    let count = |(namespace, _): &(String, Q)| of_namespace.get(namespace.as_str()).copied();
    let least = places.iter().max_by_key(|(key, place)| (count(key), std::cmp::Reverse(place.used)));
    least.map(|(key, _)| key.clone())
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Asked {
        remembered: Remembered<&'static str, usize>,
        times: Cell<usize>,
    }

    impl Asked {
        fn with_room_for(max: usize) -> Self {
            Self { remembered: Remembered::new(max), times: Cell::new(0) }
        }

        async fn get(&self, namespace: &str, question: &'static str) -> usize {
            let ask = async {
                self.times.set(self.times.get() + 1);
                let answer = self.times.get();
                tokio::task::yield_now().await;
                answer
            };
            self.remembered.get_or(namespace, question, ask, |_| Duration::from_secs(10)).await
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_counts_for_its_time_and_is_asked_for_once() {
        let asked = Asked::with_room_for(2);
        let both = tokio::join!(asked.get("shop", "a"), asked.get("shop", "a"));
        assert_eq!(both, (1, 1), "the second waits for the first");
        assert_eq!(asked.get("pay", "a").await, 2, "another namespace has another");
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!(asked.get("shop", "a").await, 1, "one tick before its end");
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(asked.get("shop", "a").await, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_much_takes_nothing_from_others() {
        let asked = Asked::with_room_for(3);
        let tick = || tokio::time::advance(Duration::from_millis(1));
        assert_eq!(asked.get("pay", "a").await, 1);
        for (question, answer) in [("a", 2), ("b", 3), ("c", 4)] {
            tick().await;
            assert_eq!(asked.get("shop", question).await, answer);
        }
        assert_eq!(asked.get("pay", "a").await, 1, "the oldest, and the only one of its namespace");
        assert_eq!((asked.get("shop", "c").await, asked.get("shop", "b").await), (4, 3));
        assert_eq!(asked.get("shop", "a").await, 5, "its own oldest went");
        assert_eq!(asked.remembered.places.lock().len(), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_dropped_while_asking_leaves_it_to_the_next() {
        let asked = Asked::with_room_for(2);
        let never = asked.remembered.get_or("shop", "a", std::future::pending(), |_| Duration::MAX);
        assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
        assert_eq!(asked.get("shop", "a").await, 1);
    }
}
