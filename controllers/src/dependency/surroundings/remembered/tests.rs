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
    let kept: usize = asked.remembered.answers.lock().values().map(BoundedMap::len).sum();
    assert_eq!(kept, 3);
}

#[tokio::test(start_paused = true)]
async fn who_is_dropped_while_asking_leaves_it_to_the_next() {
    let asked = Asked::with_room_for(2);
    let never = asked.remembered.get_or("shop", "a", std::future::pending(), |_| Duration::MAX);
    assert!(tokio::time::timeout(Duration::from_secs(1), never).await.is_err());
    assert_eq!(asked.get("shop", "a").await, 1);
}
