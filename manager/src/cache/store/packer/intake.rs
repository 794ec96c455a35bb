//! Which new bodies wait to be packed.
//!
//! Plain data under the lock of its [`crate::cache::store::table::Table`]: the step that stores a version offers it here, so
//! none is missed. Where nothing is packed nothing is kept.

use super::Rules;
use crate::cache::object::view::View;

/// The bodies that came in plain and are not packed yet.
#[derive(Debug, Default)]
pub(in crate::cache) struct Intake {
    stage: Stage,
    /// What came since the last rotation.
    young: Vec<Waiting>,
    /// What came before that.
    old: Vec<Waiting>,
    /// Plain bytes of both, and of what was taken and is not done.
    bytes: usize,
    /// Of which taken.
    taken: usize,
    /// The packer has to look. Cleared by whoever wakes it.
    call: bool,
    /// The packer has kept the reflector waiting for too long: until it moves again, nothing waits for it.
    overdue: bool,
}

/// A body that waits, or was taken.
#[derive(Debug)]
pub(in crate::cache) struct Waiting {
    pub(super) view: View,
    /// What it counts for in the intake's sums; how the body is kept may change meanwhile.
    pub(super) bytes: usize,
}

/// What becomes of an offered body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Nothing is packed.
    #[default]
    Closed,
    /// Not yet; the packer is called when the store's bodies come to so many bytes.
    Above(usize),
    /// It waits here.
    Open(Rules),
}

// === impl Intake ===

impl Intake {
    /// Takes note of a version that was just stored; `total` is the bytes of the store with it.
    pub(in crate::cache) fn offer(&mut self, view: &View, total: usize) {
        match self.stage {
            Stage::Closed => {}
            Stage::Open(_) if self.overdue => {}
            Stage::Above(at) => self.call |= total >= at,
            Stage::Open(rules) => {
                let (first, was_eager) = (self.is_empty(), self.is_eager());
                let bytes = view.body().plain_len();
                self.bytes += bytes;
                self.young.push(Waiting { view: view.clone(), bytes });
                let eager = self.waiting() >= rules.eager;
                self.call |= first || (eager && !was_eager);
            }
        }
    }

    /// Returns whether the packer has to be woken; asked once per step.
    pub(in crate::cache) fn calls(&mut self) -> bool {
        std::mem::take(&mut self.call)
    }

    /// Returns whether so much is plain that the reflector should wait.
    pub(in crate::cache) fn is_full(&self) -> bool {
        matches!(self.stage, Stage::Open(rules) if self.bytes >= rules.full)
    }

    /// Gives up on a packer that has filled it and does not empty it: what waits stays plain until it moves again.
    /// Returns whether that is news.
    pub(in crate::cache) fn give_up(&mut self) -> bool {
        let full = self.is_full();
        if full {
            *self = Self { stage: self.stage, overdue: true, ..Self::default() };
        }
        full
    }

    /// Returns whether it had given up: what is stored has to be looked at as a whole then.
    pub(super) fn resume(&mut self) -> bool {
        std::mem::take(&mut self.overdue)
    }

    /// Lets nothing in, and forgets what waits.
    pub(in crate::cache) fn close(&mut self) {
        *self = Self::default();
    }

    /// Lets nothing in until the store has so many bytes.
    pub(super) fn close_until(&mut self, bytes: usize) {
        *self = Self { stage: Stage::Above(bytes), ..Self::default() };
    }

    pub(super) fn open(&mut self, rules: Rules) {
        *self = Self { stage: Stage::Open(rules), ..Self::default() };
    }

    pub(super) fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    /// Returns whether so much waits that none of it should wait for its time.
    pub(super) fn is_eager(&self) -> bool {
        matches!(self.stage, Stage::Open(rules) if self.waiting() >= rules.eager)
    }

    /// Takes what has waited through one rotation; all that waits if it is much. Each has to be [`Intake::done`].
    pub(super) fn rotate(&mut self) -> Vec<Waiting> {
        let eager = self.is_eager();
        let mut due = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        if eager {
            due.append(&mut self.old);
        }
        self.taken += due.iter().map(|one| one.bytes).sum::<usize>();
        due
    }

    /// Gives back plain bytes that were taken.
    pub(in crate::cache) fn done(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_sub(bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    fn waiting(&self) -> usize {
        self.bytes.saturating_sub(self.taken)
    }
}
