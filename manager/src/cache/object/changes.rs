//! What an update changed, told from metadata alone.

use std::fmt;

use super::delta::Delta;
use super::view::View;

/// One thing of an object that can change by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Aspect {
    /// `metadata.generation`: the desired state, for kinds that count it.
    Generation,
    /// Anything outside `metadata` and `status`. Never seen in a metadata-only store.
    Content,
    /// `status`. Never seen in a metadata-only store.
    Status,
    /// A label.
    Labels,
    /// An annotation.
    Annotations,
    /// A finalizer.
    Finalizers,
    /// An owner reference.
    Owners,
    /// Its deletion was asked for.
    Deletion,
}

/// The aspects in which two versions differ. None of them: only what nobody watches for, such as managedFields.
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

    /// Returns whether this aspect differs.
    pub fn has(self, aspect: Aspect) -> bool {
        self.0 & bit(aspect) != 0
    }

    /// Returns whether something differs, and it is this alone.
    pub fn is_only(self, aspect: Aspect) -> bool {
        self.0 == bit(aspect)
    }

    /// Returns whether nothing differs that metadata tells of.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Goes through the aspects that differ.
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
    /// Returns what an update changed; `None` for a creation and a deletion.
    pub fn changes(&self) -> Option<Changes> {
        Some(Changes::between(self.old?, self.new?))
    }
}

fn bit(aspect: Aspect) -> u8 {
    1 << aspect as u8
}

#[cfg(test)]
mod tests;
