//! Which deltas matter to a controller.

use crate::cache::Delta;

/// Decides whether a delta reaches the handler. Any `Fn(&Delta<'_>) -> bool` is one.
pub trait Predicate: Send + Sync + 'static {
    /// Returns whether the delta matters.
    fn admits(&self, delta: &Delta<'_>) -> bool;
}

/// Admits an update only if `metadata.generation` changed, which the server raises for a change of `spec` and not
/// for one of `status` or metadata. Everything that is not an update passes, as does a kind without generations.
#[derive(Clone, Copy, Debug, Default)]
pub struct GenerationChanged;

impl Predicate for GenerationChanged {
    fn admits(&self, delta: &Delta<'_>) -> bool {
        match (delta.old, delta.new) {
            (Some(old), Some(new)) => {
                delta.resync
                    || new.meta().generation.is_none()
                    || old.meta().generation != new.meta().generation
            }
            _ => true,
        }
    }
}

impl<F: Fn(&Delta<'_>) -> bool + Send + Sync + 'static> Predicate for F {
    fn admits(&self, delta: &Delta<'_>) -> bool {
        self(delta)
    }
}
