//! Random operations on the store and on a model that keeps the list of all writes.

use std::collections::BTreeMap;

use super::*;

/// One write of the model: the revision, the key and the object; `None` for a deletion.
type Entry = (u64, Key, Option<Value>);

/// Computes every state by replaying all writes from the start.
#[derive(Default)]
struct Model {
    writes: Vec<Entry>,
}

impl Model {
    fn state(&self, revision: u64) -> BTreeMap<String, Value> {
        let mut state = BTreeMap::new();
        for (at, key, value) in self.writes.iter().filter(|(at, ..)| *at <= revision) {
            let key = key.as_str().to_owned();
            match value {
                Some(value) => drop(state.insert(key, with_revision(value, *at))),
                None => drop(state.remove(&key)),
            }
        }
        state
    }

    fn after(&self, revision: u64) -> Vec<(u64, String, Option<Value>)> {
        self.writes
            .iter()
            .filter(|(at, ..)| *at > revision)
            .map(|(at, key, value)| {
                (*at, key.as_str().to_owned(), value.as_ref().map(|v| with_revision(v, *at)))
            })
            .collect()
    }
}

fn with_revision(value: &Value, revision: u64) -> Value {
    let mut value = value.clone();
    value["metadata"] = json!({"resourceVersion": revision.to_string()});
    value
}

fn random_key(random: &mut fastrand::Rng) -> Key {
    Key::new(["", "a", "a-b", "b"][random.usize(..4)], ["x", "y", "z"][random.usize(..3)])
}

/// Makes one random write in the store and the model; about a third of the writes must be refused.
fn step(store: &Store, model: &mut Model, random: &mut fastrand::Rng, number: u64) {
    let (resource, key) = (widgets(), random_key(random));
    let before = store.revision();
    let existing = model.state(before).get(key.as_str()).map(|value| {
        value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse::<u64>().ok()).unwrap()
    });
    let expected = if random.u8(..4) == 0 { random.u64(..=before) } else { existing.unwrap_or(1) };
    let value = json!({"n": number});
    let (outcome, wanted, written) = match random.u8(..4) {
        0 => (store.create(&resource, key.clone(), value.clone()), existing.is_none(), Some(value)),
        1 => (store.delete(&resource, &key, expected), existing == Some(expected), None),
        _ => {
            (store.update(&resource, &key, value.clone(), expected), existing == Some(expected), Some(value))
        }
    };
    assert_eq!(outcome.is_ok(), wanted, "write {number} of {key:?}");
    if let Ok(version) = outcome {
        assert_eq!(version.revision(), before + 1);
        model.writes.push((before + 1, key, written));
    }
    assert_eq!(store.revision(), before + u64::from(wanted));
}

fn listed(store: &Store, namespace: Option<&str>, after: Option<&str>, at: At) -> Vec<(String, Value)> {
    let listing = store.list(&widgets(), namespace, after, at).unwrap();
    listing.items.iter().map(|v| (v.key().as_str().to_owned(), v.value().clone())).collect()
}

fn watched(watcher: &mut Watcher) -> Vec<(u64, String, Option<Value>)> {
    let mut all = Vec::new();
    loop {
        let changes = watcher.ready().unwrap();
        if changes.is_empty() {
            return all;
        }
        for change in changes {
            let current = change.current().map(|version| version.value().clone());
            all.push((change.revision(), change.key().as_str().to_owned(), current));
        }
    }
}

#[test]
fn lists_and_watches_at_every_revision_equal_those_of_a_naive_model() {
    for _ in 0..20 {
        let seed = fastrand::u64(..);
        run(seed, Window { min_changes: 1000, ..Window::default() }, 0);
    }
}

#[test]
fn states_from_the_floor_on_are_exact_and_older_ones_are_refused() {
    for _ in 0..20 {
        let seed = fastrand::u64(..);
        let length = usize::try_from(1 + seed % 30).unwrap();
        run(seed, small(length), length);
    }
}

/// Runs 200 random writes and compares every state that is still available. `kept` is the number of changes
/// that the window holds; 0 for all.
fn run(seed: u64, window: Window, kept: usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (store, mut model) = (store_with(window), Model::default());
    let mut live = store.watch(&widgets(), 1).unwrap();
    let mut events = Vec::new();
    for number in 0..200 {
        step(&store, &mut model, &mut random, number);
        if kept == 0 && random.bool() {
            events.extend(watched(&mut live));
        }
    }
    let context = format!("seed {seed}");
    if kept == 0 {
        events.extend(watched(&mut live));
        assert_eq!(events, model.after(1), "{context}: live watch");
    }
    let bound = model.writes.len().saturating_sub(kept.max(1)).checked_sub(1);
    let floor = if kept == 0 { 0 } else { bound.and_then(|i| model.writes.get(i)).map_or(0, |w| w.0) };
    for revision in 1..=store.revision() {
        let exact = store.list(&widgets(), None, None, At::Exact(revision));
        if revision < floor && revision != store.revision() {
            assert!(
                matches!(exact, Err(ReadError::Expired { .. })),
                "{context}: list at {revision} < {floor}"
            );
            assert!(store.watch(&widgets(), revision).is_err(), "{context}: watch from {revision} < {floor}");
            continue;
        }
        compare(&store, &model, revision, &context);
    }
}

fn compare(store: &Store, model: &Model, revision: u64, context: &str) {
    let state = model.state(revision);
    let expected: Vec<_> = state.clone().into_iter().collect();
    assert_eq!(listed(store, None, None, At::Exact(revision)), expected, "{context}: list at {revision}");
    for namespace in ["a", "a-b", "b"] {
        let prefix = format!("{namespace}/");
        let expected: Vec<_> =
            state.clone().into_iter().filter(|(key, _)| key.starts_with(&prefix)).collect();
        let found = listed(store, Some(namespace), None, At::Exact(revision));
        assert_eq!(found, expected, "{context}: namespace {namespace} at {revision}");
        if let Some((first, _)) = expected.first() {
            let rest = listed(store, Some(namespace), Some(first), At::Exact(revision));
            assert_eq!(rest, expected.get(1..).unwrap(), "{context}: after {first} at {revision}");
        }
    }
    let mut watcher = store.watch(&widgets(), revision).unwrap();
    assert_eq!(watched(&mut watcher), model.after(revision), "{context}: watch from {revision}");
}
