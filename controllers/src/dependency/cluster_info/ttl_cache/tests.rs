use std::cell::Cell;

use super::*;

/// A cache that answers each fetch with the number of the fetch.
struct Counted {
    cache: TtlCache<&'static str, usize>,
    fetches: Cell<usize>,
}

impl Counted {
    fn with_capacity(max: usize) -> Self {
        Self { cache: TtlCache::new(max), fetches: Cell::new(0) }
    }

    async fn get(&self, namespace: &str, question: &'static str) -> usize {
        let fetch = async {
            self.fetches.set(self.fetches.get() + 1);
            let answer = self.fetches.get();
            tokio::task::yield_now().await;
            answer
        };
        self.cache.get_or_fetch(namespace, question, fetch, |_| Duration::from_secs(10)).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_fetched_once_in_its_time_to_live() {
    let cached = Counted::with_capacity(2);
    let both = tokio::join!(cached.get("shop", "a"), cached.get("shop", "a"));
    assert_eq!(both, (1, 1), "the second caller waits for the first");
    assert_eq!(cached.get("pay", "a").await, 2, "another namespace has its own answers");
    tokio::time::advance(Duration::from_millis(9_999)).await;
    assert_eq!(cached.get("shop", "a").await, 1, "one tick before its end");
    tokio::time::advance(Duration::from_millis(1)).await;
    assert_eq!(cached.get("shop", "a").await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_evicts_only_its_own_answers() {
    let cached = Counted::with_capacity(3);
    let tick = || tokio::time::advance(Duration::from_millis(1));
    assert_eq!(cached.get("pay", "a").await, 1);
    for (question, answer) in [("a", 2), ("b", 3), ("c", 4)] {
        tick().await;
        assert_eq!(cached.get("shop", question).await, answer);
    }
    assert_eq!(cached.get("pay", "a").await, 1, "the oldest answer, but the only one of its namespace");
    assert_eq!((cached.get("shop", "c").await, cached.get("shop", "b").await), (4, 3));
    assert_eq!(cached.get("shop", "a").await, 5, "its own oldest answer was evicted");
    let kept: usize = cached.cache.answers.lock().values().map(BoundedMap::len).sum();
    assert_eq!(kept, 3);
}

#[tokio::test(start_paused = true)]
async fn a_caller_dropped_during_a_fetch_leaves_it_to_the_next() {
    let cached = Counted::with_capacity(2);
    let never = cached.cache.get_or_fetch("shop", "a", std::future::pending(), |_| Duration::MAX);
    assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
    assert_eq!(cached.get("shop", "a").await, 1);
}
