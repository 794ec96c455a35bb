//! Computes the changes between two versions from their metadata, without decoding.

use std::fmt;

use super::delta::Delta;
use super::view::View;

/// A part of an object that can change independently of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Aspect {
    /// `metadata.generation`, which counts changes of the desired state; not all kinds have it.
    Generation,
    /// Any field outside `metadata` and `status`. Never reported by a metadata-only store.
    Content,
    /// `status`. Never reported by a metadata-only store.
    Status,
    /// The labels.
    Labels,
    /// The annotations.
    Annotations,
    /// The finalizers.
    Finalizers,
    /// The owner references.
    Owners,
    /// A deletion was requested.
    Deletion,
}

/// The set of aspects in which two versions differ. It is empty if only ignored fields such as
/// `managedFields` differ.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Changes(u8);

const ALL: [Aspect; 8] = [
    Aspect::Generation,
    Aspect::Content,
    Aspect::Status,
    Aspect::Labels,
    Aspect::Annotations,
    Aspect::Finalizers,
    Aspect::Owners,
    Aspect::Deletion,
];

// === impl Changes ===

impl Changes {
    /// Compares two versions of one object.
    pub fn between(old: &View, new: &View) -> Self {
        let (old, new) = (old.meta(), new.meta());
        let differs = |aspect| match aspect {
            Aspect::Generation => old.generation != new.generation,
            Aspect::Content => old.content_hash != new.content_hash,
            Aspect::Status => old.status_hash != new.status_hash,
            Aspect::Labels => old.labels != new.labels,
            Aspect::Annotations => old.annotations_hash != new.annotations_hash,
            Aspect::Finalizers => old.finalizers != new.finalizers,
            Aspect::Owners => old.owners != new.owners,
            Aspect::Deletion => old.deleting != new.deleting,
        };
        Self(ALL.into_iter().filter(|aspect| differs(*aspect)).fold(0, |set, aspect| set | bit(aspect)))
    }

    /// Returns whether this aspect has changed.
    pub fn has(self, aspect: Aspect) -> bool {
        self.0 & bit(aspect) != 0
    }

    /// Returns whether no aspect has changed.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Iterates over the changed aspects.
    pub fn iter(self) -> impl Iterator<Item = Aspect> {
        ALL.into_iter().filter(move |aspect| self.has(*aspect))
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

// === impl Delta ===

impl Delta<'_> {
    /// Returns the changes of an update; `None` for a creation or a deletion.
    pub fn changes(&self) -> Option<Changes> {
        Some(Changes::between(self.old?, self.new?))
    }
}

fn bit(aspect: Aspect) -> u8 {
    1 << aspect as u8
}

#[cfg(test)]
mod tests;
