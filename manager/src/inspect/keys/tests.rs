use super::*;
use crate::key::{Cause, Trigger};

/// Makes a key in a state, with the seconds until its next run and the seconds in its state.
fn key(name: &str, state: State, next_run: Option<u64>, since: u64) -> KeySnapshot<KeyText> {
    KeySnapshot {
        key: KeyText { text: format!("shop/{name}"), namespace: Some("shop".into()), name: name.into() },
        state,
        lane: None,
        attempts: 0,
        since: Duration::from_secs(since),
        next_run: next_run.map(Duration::from_secs),
        reason: None,
        last_error: None,
        last_duration: None,
        cause: Cause::bare(Trigger::Generic),
    }
}

/// Returns keys in all states and for every rule, in the expected order.
fn sorted() -> Vec<KeySnapshot<KeyText>> {
    vec![
        key("soon", State::Backoff, Some(1), 1),
        key("late", State::Backoff, Some(9), 8),
        key("parked-for-long", State::Parked, None, 5),
        key("parked", State::Parked, None, 4),
        key("slow", State::Dirty, None, 3),
        key("quick", State::Running, None, 2),
        key("a", State::Ready, None, 7),
        key("b", State::Ready, None, 7),
        key("next", State::Requeued, Some(0), 0),
        key("far", State::Requeued, Some(60), 0),
    ]
}

#[test]
fn keys_are_sorted_by_trouble_and_limited_in_any_order_of_arrival() {
    let expected: Vec<_> = sorted().into_iter().map(|key| key.key.name).collect();
    let mut random = fastrand::Rng::with_seed(7);
    for limit in (1..=expected.len() + 1).cycle().take(500) {
        let mut keys = sorted();
        random.shuffle(&mut keys);
        let mut first = FirstKeys { limit, sort: Sort::Trouble, matched: 0, kept: Vec::new() };
        for key in keys {
            first.offer(key);
            assert!(first.kept.len() <= 2 * limit, "memory is bounded");
        }
        let (matched, listed) = first.into_sorted();
        let listed: Vec<_> = listed.into_iter().map(|key| key.key.name).collect();
        assert_eq!(listed, expected[..limit.min(expected.len())]);
        assert_eq!(matched, expected.len());
    }
}

#[test]
fn each_sort_order_compares_its_field() {
    let mut keys = [
        KeySnapshot { attempts: 2, ..key("a", State::Backoff, Some(9), 1) },
        KeySnapshot { attempts: 7, ..key("b", State::Parked, None, 3) },
        key("c", State::Requeued, Some(1), 2),
        key("d", State::Ready, None, 3),
    ];
    for (sort, expected) in [
        (Sort::Trouble, "a b d c"),
        (Sort::Attempts, "b a c d"),
        (Sort::Next, "c a b d"),
        (Sort::Since, "b d c a"),
        (Sort::Name, "a b c d"),
    ] {
        keys.sort_by(|one, other| sort.order(one, other));
        let names: Vec<_> = keys.iter().map(|key| key.key.name.as_str()).collect();
        assert_eq!(names.join(" "), expected, "{sort:?}");
    }
}
