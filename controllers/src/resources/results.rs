//! What versions of objects were found to be, at most so many.
//!
//! # Invariants
//! 1. A namespace loses nothing of what it has asked for lately as long as it has no more than its share of half the room.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use mainstay::cache::ResourceVersion;
use mainstay::key::{Key as _, KindId, Request};
use tokio::time::Instant;

use super::expression::Failure;
use super::state::Found;

/// Most results that are kept: those of two WaitDeployments that look at all they may. A few megabytes, and 20 more if each
/// is of an expression of its own that is as long as it may be.
const MAX_RESULTS: usize = 20_000;
/// What nobody has asked for in this long goes first: objects go, and so does who waited for them.
const IDLE: Duration = Duration::from_mins(10);

/// Results by the state that is waited for, as text, which is kept once for all objects.
#[derive(Debug, Default)]
pub(super) struct Results {
    states: HashMap<String, HashMap<Of, Place>>,
    /// Of all states together.
    count: usize,
}

pub(super) type Of = (KindId, Request);

#[derive(Clone, Debug)]
pub(super) struct Known {
    /// Of the object.
    pub version: ResourceVersion,
    pub cost: u128,
    pub result: Result<Found, Failure>,
}

#[derive(Debug)]
struct Place {
    used: Instant,
    known: Known,
}

// === impl Results ===

impl Results {
    pub(super) fn get(&mut self, state: &str, of: &Of, version: &ResourceVersion) -> Option<Known> {
        let place = self.states.get_mut(state)?.get_mut(of)?;
        place.used = Instant::now();
        (place.known.version == *version).then(|| place.known.clone())
    }

    pub(super) fn insert(&mut self, state: &str, of: Of, known: Known) {
        if self.count >= MAX_RESULTS {
            self.make_room();
        }
        let place = Place { used: Instant::now(), known };
        let before = self.states.entry(state.to_owned()).or_default().insert(of, place);
        self.count += usize::from(before.is_none());
    }

    fn make_room(&mut self) {
        self.retain(|_, place| place.used.elapsed() < IDLE);
        if self.count <= MAX_RESULTS / 2 {
            return;
        }
        let mut counts: HashMap<_, usize> = HashMap::new();
        for (_, request) in self.states.values().flat_map(HashMap::keys) {
            *counts.entry(request.namespace()).or_default() += 1;
        }
        // Those above it hold half of all at least, so that a quarter becomes free each time that all are gone through.
        let share = MAX_RESULTS / 2 / counts.len().max(1);
        let large = counts.into_iter().filter(|(_, count)| *count > share);
        let large: HashSet<_> = large.map(|(namespace, _)| namespace.map(ToOwned::to_owned)).collect();
        // Every other one rather than the oldest: who goes round through more than there is room for would find nothing.
        let mut keeps = true;
        self.retain(|request, _| {
            let is_concerned = large.contains(&request.namespace().map(ToOwned::to_owned));
            keeps ^= is_concerned;
            keeps || !is_concerned
        });
    }

    fn retain(&mut self, mut keeps: impl FnMut(&Request, &Place) -> bool) {
        for places in self.states.values_mut() {
            places.retain(|(_, request), place| keeps(request, place));
        }
        self.states.retain(|_, places| !places.is_empty());
        self.count = self.states.values().map(HashMap::len).sum();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bench {
        results: Results,
        jobs: KindId,
        version: ResourceVersion,
    }

    impl Bench {
        fn new() -> Self {
            let jobs = KindId::new("batch", "v1", "Job", "jobs", true);
            Self { results: Results::default(), jobs, version: ResourceVersion::new("7") }
        }

        fn insert(&mut self, namespace: &str, number: usize) {
            let known = Known { version: self.version.clone(), cost: 1, result: Ok(Found::There) };
            self.results.insert("a", self.of(namespace, number), known);
        }

        fn knows(&mut self, namespace: &str, number: usize) -> bool {
            let of = self.of(namespace, number);
            self.results.get("a", &of, &self.version).is_some()
        }

        fn of(&self, namespace: &str, number: usize) -> Of {
            (self.jobs.clone(), Request::namespaced(namespace, number.to_string()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_much_takes_nothing_from_others() {
        let mut bench = Bench::new();
        (0..500).for_each(|number| bench.insert("pay", number));
        for number in 0..2 * MAX_RESULTS {
            bench.insert("shop", number);
            assert!(bench.results.count <= MAX_RESULTS, "after {number}");
        }
        let kept = (0..500).filter(|number| bench.knows("pay", *number)).count();
        assert_eq!(kept, 500);
        let kept = (0..2 * MAX_RESULTS).filter(|number| bench.knows("shop", *number)).count();
        assert_eq!(kept + 500, bench.results.count);
        assert!(kept > MAX_RESULTS / 4, "{kept} of its own");
    }

    #[tokio::test(start_paused = true)]
    async fn many_equal_namespaces_give_up_much_at_once() {
        let mut bench = Bench::new();
        let spaces = MAX_RESULTS / 5;
        (0..MAX_RESULTS).for_each(|number| bench.insert(&format!("n{}", number % spaces), number));
        assert_eq!(bench.results.count, MAX_RESULTS);
        bench.insert("one-more", 0);
        assert!(bench.results.count <= 3 * MAX_RESULTS / 4 + 1, "{} are left", bench.results.count);
        assert!(bench.results.count >= MAX_RESULTS / 4, "{} are left", bench.results.count);
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_asks_for_goes_first() {
        let mut bench = Bench::new();
        (0..2).for_each(|number| bench.insert("gone", number));
        (0..MAX_RESULTS - 2).for_each(|number| bench.insert("old", number));
        tokio::time::advance(IDLE.saturating_sub(Duration::from_millis(1))).await;
        assert!(bench.knows("old", 7));
        tokio::time::advance(Duration::from_millis(1)).await;
        bench.insert("shop", 0);
        assert!(!bench.knows("gone", 0));
        assert!(bench.knows("old", 7), "it was asked for");
        assert_eq!(bench.results.count, 2);
    }
}
