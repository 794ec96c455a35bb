//! Which deltas matter to a controller.
//!
//! Most predicates judge updates alone: whether a generation changed cannot be asked of an object that has just come.
//! About such a delta they are [indifferent](Verdict::Indifferent), and it passes, also under [`not`](Predicate::not):
//! a filter for idle updates never hides that an object came or went, however it is combined. So they are of an update
//! by which an object becomes too large to be decoded, or is so no longer.
//!
//! Predicates save reconciles, not memory: to leave objects out of the cache, narrow its
//! [`Scope`](crate::cache::Scope). A change of the annotations that pause or ask for a reconcile passes all of them.

use crate::cache::{Delta, LabelSelector, Meta, View};
use crate::client::Extent;

/// Decides whether a delta reaches the handler. Any `Fn(&Delta<'_>) -> bool` is one.
///
/// ```
/// use mainstay::watch::{DeletionRequested, GenerationChanged, LabelsChanged, Predicate};
///
/// // New intent, or a label; not what controllers report.
/// let relevant = GenerationChanged.or(LabelsChanged).or(DeletionRequested);
/// # fn takes(_: impl Predicate) {}
/// # takes(relevant);
/// ```
pub trait Predicate: Send + Sync + 'static {
    /// Judges a delta. A `bool` becomes a verdict by [`Verdict::from`].
    fn verdict(&self, delta: &Delta<'_>) -> Verdict;

    /// Admits what both admit.
    fn and<P: Predicate>(self, other: P) -> And<Self, P>
    where
        Self: Sized,
    {
        And(self, other)
    }

    /// Admits what one of the two admits.
    fn or<P: Predicate>(self, other: P) -> Or<Self, P>
    where
        Self: Sized,
    {
        Or(self, other)
    }

    /// Admits what this one drops, and the other way round.
    fn not(self) -> Not<Self>
    where
        Self: Sized,
    {
        Not(self)
    }
}

/// What a predicate says of a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It matters.
    Admit,
    /// It does not matter.
    Drop,
    /// The question makes no sense here; the delta passes unless another predicate drops it.
    Indifferent,
}

/// Judges updates: admits a new `metadata.generation`, which the server raises for a change of `spec` and not for one
/// of `status` or metadata. Indifferent to resyncs and to kinds without generations.
#[derive(Clone, Copy, Debug, Default)]
pub struct GenerationChanged;

/// Judges updates: admits a change of labels.
#[derive(Clone, Copy, Debug, Default)]
pub struct LabelsChanged;

/// Judges updates: admits a change of annotations.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnnotationsChanged;

/// Judges updates: admits a change of finalizers.
#[derive(Clone, Copy, Debug, Default)]
pub struct FinalizersChanged;

/// Judges updates: admits the one by which the deletion of an object is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeletionRequested;

/// Drops updates that bring the same version again: the periodic look at everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceVersionChanged;

/// See [`Predicate::and`].
#[derive(Clone, Copy, Debug)]
pub struct And<A, B>(A, B);

/// See [`Predicate::or`].
#[derive(Clone, Copy, Debug)]
pub struct Or<A, B>(A, B);

/// See [`Predicate::not`].
#[derive(Clone, Copy, Debug)]
pub struct Not<A>(A);

// === impl Verdict ===

impl Verdict {
    /// Returns whether a delta with this verdict reaches the handler.
    pub fn passes(self) -> bool {
        self != Self::Drop
    }
}

impl From<bool> for Verdict {
    fn from(matters: bool) -> Self {
        if matters { Self::Admit } else { Self::Drop }
    }
}

// === impl GenerationChanged ===

impl Predicate for GenerationChanged {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        if delta.new.is_some_and(|new| new.meta().generation.is_none()) {
            return Verdict::Indifferent;
        }
        of_update(delta, |old, new| old.generation != new.generation)
    }
}

// === impl LabelsChanged ===

impl Predicate for LabelsChanged {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        of_update(delta, |old, new| old.labels != new.labels)
    }
}

// === impl AnnotationsChanged ===

impl Predicate for AnnotationsChanged {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        of_update(delta, |old, new| old.annotations_hash != new.annotations_hash)
    }
}

// === impl FinalizersChanged ===

impl Predicate for FinalizersChanged {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        of_update(delta, |old, new| old.finalizers != new.finalizers)
    }
}

// === impl DeletionRequested ===

impl Predicate for DeletionRequested {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        of_update(delta, |old, new| !old.deleting && new.deleting)
    }
}

// === impl ResourceVersionChanged ===

impl Predicate for ResourceVersionChanged {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        if delta.resync {
            return Verdict::Drop;
        }
        of_update(delta, |old, new| old.resource_version != new.resource_version)
    }
}

// === impl LabelSelector ===

/// Admits what concerns an object that the selector picks, or picked before this change: of an object that leaves the
/// selection the last thing seen is that it left.
impl Predicate for LabelSelector {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        let mut states = delta.old.into_iter().chain(delta.new);
        states.any(|view| self.matches(&view.meta().labels)).into()
    }
}

// === impl And, Or, Not ===

impl<A: Predicate, B: Predicate> Predicate for And<A, B> {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        match (self.0.verdict(delta), self.1.verdict(delta)) {
            (Verdict::Drop, _) | (_, Verdict::Drop) => Verdict::Drop,
            (Verdict::Admit, Verdict::Admit) => Verdict::Admit,
            _ => Verdict::Indifferent,
        }
    }
}

impl<A: Predicate, B: Predicate> Predicate for Or<A, B> {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        match (self.0.verdict(delta), self.1.verdict(delta)) {
            (Verdict::Admit, _) | (_, Verdict::Admit) => Verdict::Admit,
            (Verdict::Drop, Verdict::Drop) => Verdict::Drop,
            _ => Verdict::Indifferent,
        }
    }
}

impl<A: Predicate> Predicate for Not<A> {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        match self.0.verdict(delta) {
            Verdict::Admit => Verdict::Drop,
            Verdict::Drop => Verdict::Admit,
            Verdict::Indifferent => Verdict::Indifferent,
        }
    }
}

impl<F: Fn(&Delta<'_>) -> bool + Send + Sync + 'static> Predicate for F {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        self(delta).into()
    }
}

/// Returns whether the object has become too large to be decoded, or is so no longer: a run may fare otherwise now,
/// whichever part of it has changed.
pub(super) fn changes_readability(delta: &Delta<'_>) -> bool {
    let is_too_large = |view: &View| matches!(view.meta().extent, Extent::TooLarge { .. });
    matches!((delta.old, delta.new), (Some(old), Some(new)) if is_too_large(old) != is_too_large(new))
}

/// Judges an update by its two states; everything else is none of this predicate's business.
fn of_update(delta: &Delta<'_>, matters: impl FnOnce(&Meta, &Meta) -> bool) -> Verdict {
    match (delta.old, delta.new) {
        (Some(old), Some(new)) if !delta.resync && !changes_readability(delta) => {
            matters(old.meta(), new.meta()).into()
        }
        _ => Verdict::Indifferent,
    }
}
