//! When a dictionary has had its day.
//!
//! Sums of bytes in, a verdict out: nothing here packs or learns.

use super::{Rules, Trained};

/// How well a dictionary does.
#[derive(Debug)]
pub(super) struct Fit {
    rules: Rules,
    /// Whether more objects would have taught it more.
    could_learn: bool,
    /// Objects there were when it was learnt.
    objects: usize,
    /// What it is held against: samples it was not learnt from, then the first whole window.
    baseline: Sum,
    /// Per cent of the baseline at which it has decayed.
    limit: usize,
    /// What was packed since the last whole window.
    window: Sum,
    /// The last whole window, if it was a bad one.
    bad: Option<Sum>,
    /// Plain bytes packed since it was learnt or last judged.
    total: usize,
}

/// Bytes of some bodies, plain and as they are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) plain: usize,
    pub(super) kept: usize,
}

/// Per cent of the baseline at which a dictionary has decayed.
const DECAYED: usize = 125;
/// The same for the first window. A list comes sorted, so the samples of a young store are more alike than what
/// follows.
const STRANGE: usize = 200;
/// Objects, over those a small store's dictionary was learnt from, that call for a new one.
const GROWN: usize = 4;

// === impl Fit ===

impl Fit {
    pub(super) fn new(rules: Rules, trained: &Trained, objects: usize) -> Self {
        Self {
            rules,
            could_learn: !trained.enough,
            objects,
            baseline: trained.new,
            limit: STRANGE,
            window: Sum::default(),
            bad: None,
            total: 0,
        }
    }

    /// Takes note of what came in and was packed.
    pub(super) fn note(&mut self, sum: Sum) {
        self.total += sum.plain;
        self.window.add(sum.plain, sum.kept);
        if self.window.plain < self.rules.window {
            return;
        }
        let window = std::mem::take(&mut self.window);
        self.bad = window.is_above(self.limit, self.baseline).then_some(window);
        if self.bad.is_none() && self.limit == STRANGE {
            (self.baseline, self.limit) = (window, DECAYED);
        }
    }

    /// Returns whether a new dictionary may do better.
    pub(super) fn is_poor(&self, objects: usize) -> bool {
        let decayed = self.bad.is_some() && self.total >= self.rules.retrain;
        decayed || (self.could_learn && objects >= self.objects.max(1) * GROWN)
    }

    /// A new dictionary was made. If this one goes on it is held against what it does now.
    pub(super) fn judge(&mut self, objects: usize) {
        self.objects = objects;
        self.total = 0;
        if let Some(window) = self.bad.take() {
            (self.baseline, self.limit) = (window, DECAYED);
        }
    }
}

// === impl Sum ===

impl Sum {
    pub(super) fn add(&mut self, plain: usize, kept: usize) {
        self.plain += plain;
        self.kept += kept;
    }

    /// Returns whether the kept share of it is above so many per cent of another's.
    fn is_above(self, percent: usize, other: Self) -> bool {
        // kept / plain > percent % of other.kept / other.plain, without dividing.
        let [ours, theirs] = [(self.kept, other.plain), (other.kept, self.plain)]
            .map(|(kept, plain)| (kept as u128).saturating_mul(plain as u128));
        ours.saturating_mul(100) > theirs.saturating_mul(percent as u128)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUM: fn(usize) -> Sum = |kept| Sum { plain: 1_000, kept };

    /// After a first window at a tenth.
    fn fit() -> Fit {
        let rules = Rules { window: 1_000, retrain: 3_000, ..Rules::default() };
        let (baseline, window) = (SUM(60), Sum::default());
        let mut fit = Fit {
            rules,
            could_learn: false,
            objects: 100,
            baseline,
            limit: STRANGE,
            window,
            bad: None,
            total: 0,
        };
        fit.note(SUM(100));
        fit
    }

    #[test]
    fn a_dictionary_is_poor_when_the_last_window_is_and_enough_was_packed_since_it_was_judged() {
        let mut fit = fit();
        fit.note(SUM(130));
        assert!(!fit.is_poor(100), "too soon");
        fit.note(SUM(120));
        assert!(!fit.is_poor(100), "better again");
        fit.note(SUM(130));
        assert!(fit.is_poor(100));
        fit.judge(100);
        (0..3).for_each(|_| fit.note(SUM(150)));
        assert!(!fit.is_poor(100), "no other did better: this is the measure now");
        fit.note(SUM(163));
        assert!(fit.is_poor(100));
    }

    #[test]
    fn what_looks_strange_from_the_first_is_no_measure() {
        let rules = Rules { window: 1_000, retrain: 3_000, ..Rules::default() };
        let mut fit = Fit { rules, limit: STRANGE, baseline: SUM(60), ..fit() };
        (0..3).for_each(|_| fit.note(SUM(500)));
        assert!(fit.is_poor(100));
    }

    #[test]
    fn a_dictionary_learnt_from_few_objects_is_poor_when_there_are_many() {
        let mut fit = Fit { could_learn: true, ..fit() };
        assert!(!fit.is_poor(399));
        assert!(fit.is_poor(400));
        fit.judge(400);
        assert!(!fit.is_poor(1_599));
        assert!(!Fit { could_learn: false, ..fit }.is_poor(1_000_000));
    }
}
