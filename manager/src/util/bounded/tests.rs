use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn a_new_key_evicts_the_least_recently_used_one() {
    let (mut map, now) = (BoundedMap::new(2), Instant::now());
    for key in 1..100 {
        map.get_or_insert_with(&key, now, || "first");
        assert_eq!(map.get_or_insert_with(&0, now, || if key == 1 { "first" } else { "again" }), &"first");
        assert!(map.len() <= 2);
    }
    assert_eq!(map.get(&98, now), None);
    assert_eq!(map.get(&99, now), Some(&mut "first"));
    assert_eq!(map.pop_least_used(), Some((0, "first")));
}

#[test]
fn a_removed_or_replaced_value_does_not_come_back() {
    let (mut map, now) = (BoundedMap::new(3), Instant::now());
    assert_eq!(map.insert("a".to_owned(), 1, now), None);
    assert_eq!(map.insert("a".to_owned(), 2, now), Some(1));
    assert_eq!(map.remove("a", now), Some(2));
    assert_eq!(map.remove("a", now), None);
    assert_eq!(map.get("a", now), None);
    assert!(map.is_empty() && map.by_use.is_empty());
}

#[test]
fn reads_do_not_prolong_the_time_to_live_of_an_entry() {
    let start = Instant::now();
    let mut map = BoundedMap::new(4).expire_after(10 * SECOND);
    map.insert("default", 1, start);
    map.insert_for("short", 2, SECOND, start);
    map.insert_for("endless", 3, Duration::MAX, start);
    for second in 0..10 {
        let now = start + second * SECOND;
        assert_eq!(map.get(&"default", now), Some(&mut 1));
        assert_eq!(map.get(&"short", now).is_some(), second == 0);
    }
    let end = start + 10 * SECOND;
    assert_eq!(map.get(&"default", end), None);
    assert_eq!(map.get(&"endless", end), Some(&mut 3));
    assert_eq!(map.insert("short", 4, end), None, "the old value had expired");
    assert_eq!(map.get_or_insert_with(&"default", end, || 5), &5);
    assert_eq!(map.get(&"default", end + 9 * SECOND), Some(&mut 5), "a new value has a new time to live");
}

/// Returns whether a line is not remembered, and remembers it.
fn is_first(lines: &mut BoundedMap<&'static str, ()>, line: &'static str, now: Instant) -> bool {
    lines.insert(line, (), now).is_none()
}

#[test]
fn a_line_is_logged_once_while_it_is_remembered() {
    let now = Instant::now();
    let mut lines = BoundedMap::new(2);
    let mut first = |line| is_first(&mut lines, line, now);
    assert!(first("a") && first("b"));
    assert!(!first("a") && !first("b"));
    assert!(first("c") && first("a"), "evicted by another line");
    assert!(!first("c"));
}

#[test]
fn a_line_is_logged_again_once_it_has_not_occurred_for_a_while() {
    let (minute, start) = (60 * SECOND, Instant::now());
    let mut lines = BoundedMap::new(9).expire_after(minute);
    let mut first = |line, at| is_first(&mut lines, line, at);
    assert!(first("late", start) && first("refused", start), "each line once");
    for turn in 1..100 {
        assert!(!first("late", start + turn * minute / 2));
    }
    assert!(first("late", start + 101 * minute / 2 + minute / 2));
}

#[derive(Clone, Debug)]
enum Step {
    Get(u8),
    Insert(u8, Option<u64>),
    Make(u8),
    Remove(u8),
    Pop,
    Wait(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0_u8..12).prop_map(Step::Get),
        3 => (0_u8..12, proptest::option::of(0_u64..9)).prop_map(|(key, ttl)| Step::Insert(key, ttl)),
        3 => (0_u8..12).prop_map(Step::Make),
        1 => (0_u8..12).prop_map(Step::Remove),
        1 => Just(Step::Pop),
        2 => (0_u64..4).prop_map(Step::Wait),
    ]
}

proptest! {
    /// The model is a list of key, value and end, least recently used first.
    #[test]
    fn a_bounded_map_equals_a_list_in_order_of_use(
        capacity in 1_usize..8,
        steps in proptest::collection::vec(step(), 0..300),
    ) {
        let mut now = Instant::now();
        let mut map = BoundedMap::new(capacity).expire_after(5 * SECOND);
        let mut model: Vec<(u8, usize, Instant)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let take = |model: &mut Vec<(u8, usize, Instant)>, key| {
                model.iter().position(|entry| entry.0 == key).map(|at| model.remove(at))
            };
            match step {
                Step::Wait(seconds) => now += Duration::from_secs(seconds),
                Step::Get(key) => {
                    let alive = model.iter().any(|entry| entry.0 == key && now < entry.2);
                    let entry = alive.then(|| take(&mut model, key)).flatten();
                    model.extend(entry);
                    prop_assert_eq!(map.get(&key, now).copied(), entry.map(|entry| entry.1));
                }
                Step::Insert(key, ttl) => {
                    let replaced = take(&mut model, key).filter(|entry| now < entry.2);
                    model.drain(..(model.len() + 1).saturating_sub(capacity));
                    model.push((key, number, now + Duration::from_secs(ttl.unwrap_or(5))));
                    let before = match ttl {
                        Some(ttl) => map.insert_for(key, number, Duration::from_secs(ttl), now),
                        None => map.insert(key, number, now),
                    };
                    prop_assert_eq!(before, replaced.map(|entry| entry.1));
                }
                Step::Make(key) => {
                    let known = take(&mut model, key).filter(|entry| now < entry.2);
                    model.drain(..(model.len() + 1).saturating_sub(capacity));
                    model.push(known.unwrap_or((key, number, now + 5 * SECOND)));
                    let value = *map.get_or_insert_with(&key, now, || number);
                    prop_assert_eq!(value, known.map_or(number, |entry| entry.1));
                }
                Step::Remove(key) => {
                    let alive = take(&mut model, key).filter(|entry| now < entry.2);
                    prop_assert_eq!(map.remove(&key, now), alive.map(|entry| entry.1));
                }
                Step::Pop => {
                    let first = (!model.is_empty()).then(|| model.remove(0));
                    prop_assert_eq!(map.pop_least_used(), first.map(|entry| (entry.0, entry.1)));
                }
            }
            prop_assert_eq!((map.len(), map.by_use.len()), (model.len(), model.len()));
            let mut read = map.clone();
            for key in 0..12 {
                let alive = model.iter().find(|entry| entry.0 == key && now < entry.2);
                prop_assert_eq!(read.get(&key, now).copied(), alive.map(|entry| entry.1));
            }
        }
    }
}
