//! Which deltas reach the handler of a controller.
//!
//! Most predicates decide about updates alone: a created object, for example, has no earlier generation. For
//! any other delta they return [`Verdict::Indifferent`], and it passes, also under [`not`](Predicate::not):
//! however predicates of updates are combined, they never hide that an object was created or deleted. They
//! are also indifferent to an update by which an object becomes too large to be decoded, or small enough
//! again.
//!
//! Predicates save reconciles and no memory: to leave objects out of the cache, narrow its
//! [`Scope`](crate::cache::Scope). The annotations that pause an object or ask for a reconcile bypass
//! predicates.

use crate::cache::{Delta, LabelSelector, Meta, View};
use crate::client::Extent;

/// Decides whether a delta of an object reaches the event handler of a controller. Any `Fn(&Delta<'_>)` that
/// returns a `bool` or a [`Verdict`] is a predicate.
///
/// ```
/// use mainstay::watch::{DeletionRequested, GenerationChanged, LabelsChanged, Predicate};
///
/// // A new spec, a label or a deletion, but no change of the status.
/// let relevant = GenerationChanged.or(LabelsChanged).or(DeletionRequested);
/// # fn takes(_: impl Predicate) {}
/// # takes(relevant);
/// ```
pub trait Predicate: Send + Sync + 'static {
    /// Returns the decision of this predicate about a delta: admit it, drop it, or be indifferent.
    /// [`Verdict::from`] makes a verdict of a `bool`.
    fn verdict(&self, delta: &Delta<'_>) -> Verdict;

    /// Combines two predicates into one that admits a delta that both admit, and drops a delta that either
    /// drops.
    fn and(self, other: impl Predicate) -> impl Predicate
    where
        Self: Sized,
    {
        move |delta: &Delta<'_>| match (self.verdict(delta), other.verdict(delta)) {
            (Verdict::Drop, _) | (_, Verdict::Drop) => Verdict::Drop,
            (Verdict::Admit, Verdict::Admit) => Verdict::Admit,
            _ => Verdict::Indifferent,
        }
    }

    /// Combines two predicates into one that admits a delta that either admits, and drops a delta that both
    /// drop.
    fn or(self, other: impl Predicate) -> impl Predicate
    where
        Self: Sized,
    {
        move |delta: &Delta<'_>| match (self.verdict(delta), other.verdict(delta)) {
            (Verdict::Admit, _) | (_, Verdict::Admit) => Verdict::Admit,
            (Verdict::Drop, Verdict::Drop) => Verdict::Drop,
            _ => Verdict::Indifferent,
        }
    }

    /// Inverts this predicate: the result admits a delta that this predicate drops, and drops one that it
    /// admits.
    fn not(self) -> impl Predicate
    where
        Self: Sized,
    {
        move |delta: &Delta<'_>| match self.verdict(delta) {
            Verdict::Admit => Verdict::Drop,
            Verdict::Drop => Verdict::Admit,
            Verdict::Indifferent => Verdict::Indifferent,
        }
    }
}

/// The decision of a predicate about a delta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The delta passes, unless another predicate drops it.
    Admit,
    /// The delta is dropped.
    Drop,
    /// The predicate does not judge such deltas: the delta passes, also under [`Predicate::not`], unless
    /// another predicate drops it.
    Indifferent,
}

/// Predicate that admits updates with a new `metadata.generation`, which the server raises for a change of
/// `spec` and not for one of `status` or metadata, and drops other updates. Indifferent to resyncs and to
/// kinds without generations.
#[derive(Clone, Copy, Debug, Default)]
pub struct GenerationChanged;

/// Predicate that admits updates that change the labels of an object, and drops other updates. Creations,
/// deletions and resyncs pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct LabelsChanged;

/// Predicate that admits updates that change the annotations of an object, and drops other updates.
/// Creations, deletions and resyncs pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct AnnotationsChanged;

/// Predicate that admits updates that change the finalizers of an object, and drops other updates. Creations,
/// deletions and resyncs pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct FinalizersChanged;

/// Predicate that admits the update that begins the deletion of an object, and drops other updates.
/// Creations, deletions and resyncs pass.
#[derive(Clone, Copy, Debug, Default)]
pub struct DeletionRequested;

/// Predicate that drops resyncs and other updates that bring the same version of an object again.
#[derive(Clone, Copy, Debug, Default)]
pub struct ResourceVersionChanged;

// === impl Verdict ===

impl Verdict {
    /// Returns whether a delta with this verdict reaches the handler.
    pub fn passes(self) -> bool {
        self != Self::Drop
    }
}

impl From<bool> for Verdict {
    fn from(admits: bool) -> Self {
        if admits { Self::Admit } else { Self::Drop }
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

/// As a predicate, a label selector admits deltas of an object that it selects, or selected before this
/// change: the last delta of an object that leaves the selection is the one by which it leaves.
impl Predicate for LabelSelector {
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        let mut states = delta.old.into_iter().chain(delta.new);
        states.any(|view| self.matches(&view.meta().labels)).into()
    }
}

// === impl Fn ===

impl<F, V> Predicate for F
where
    F: Fn(&Delta<'_>) -> V + Send + Sync + 'static,
    V: Into<Verdict>,
{
    fn verdict(&self, delta: &Delta<'_>) -> Verdict {
        self(delta).into()
    }
}

/// Returns whether the object of the delta has become too large to be decoded, or small enough again: the
/// next run may have another outcome, whichever part of the object has changed.
pub(super) fn changes_readability(delta: &Delta<'_>) -> bool {
    let is_too_large = |view: &View| matches!(view.meta().extent, Extent::TooLarge { .. });
    matches!((delta.old, delta.new), (Some(old), Some(new)) if is_too_large(old) != is_too_large(new))
}

/// Returns the verdict about an update: whether `admits` returns true for the metadata before and after it.
/// Indifferent to every other delta.
fn of_update(delta: &Delta<'_>, admits: impl FnOnce(&Meta, &Meta) -> bool) -> Verdict {
    match (delta.old, delta.new) {
        (Some(old), Some(new)) if !delta.resync && !changes_readability(delta) => {
            admits(old.meta(), new.meta()).into()
        }
        _ => Verdict::Indifferent,
    }
}
