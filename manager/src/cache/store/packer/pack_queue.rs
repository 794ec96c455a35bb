//! The queue of new bodies that wait to be packed.
//!
//! Plain data under the lock of its [`crate::cache::store::Table`]: the step that stores a version
//! also offers it here, so none is missed. If packing is off, the queue stays empty.

use super::Rules;
use crate::cache::object::View;

/// The queue of the new bodies of a store that wait to be packed (compressed).
#[derive(Debug, Default)]
pub(crate) struct PackQueue {
    stage: Stage,
    /// The bodies that were queued since the last rotation of the queue.
    young: Vec<QueuedBody>,
    /// The bodies that were queued before the last rotation of the queue and are packed after the next one.
    old: Vec<QueuedBody>,
    /// Plain bytes of all queued bodies, and of the bodies that were taken from the queue and are not packed
    /// yet.
    bytes: usize,
    /// Plain bytes of the bodies that were taken from the queue and are not packed yet.
    taken: usize,
    /// Whether the packer has to be woken to compress queued bodies. Cleared by the step that wakes it.
    wake: bool,
    /// Whether the packer has blocked the reflector for too long: until it makes progress, no bodies are
    /// queued.
    stalled: bool,
}

/// A body in the queue of bodies to be packed, or taken from it.
#[derive(Debug)]
pub(crate) struct QueuedBody {
    pub(super) view: View,
    /// The plain bytes of the body, as counted in the queue; the form of the body may change meanwhile.
    pub(super) bytes: usize,
}

/// The stage of the queue of bodies to be packed: whether it takes new bodies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// New bodies are not queued.
    #[default]
    Closed,
    /// New bodies are not queued; the packer is woken when the bodies of the store reach so many bytes.
    Above(usize),
    /// New bodies are queued to be packed, under these thresholds.
    Open(Rules),
}

// === impl PackQueue ===

impl PackQueue {
    /// Offers the body of a version that was just stored to the queue; `total` is the bytes of the store,
    /// including this version.
    pub(crate) fn offer(&mut self, view: &View, total: usize) {
        match self.stage {
            Stage::Closed => {}
            Stage::Open(_) if self.stalled => {}
            Stage::Above(at) => self.wake |= total >= at,
            Stage::Open(_) => {
                let (first, was_eager) = (self.is_empty(), self.is_eager());
                let bytes = view.body().plain_len();
                self.bytes += bytes;
                self.young.push(QueuedBody { view: view.clone(), bytes });
                self.wake |= first || (self.is_eager() && !was_eager);
            }
        }
    }

    /// Returns whether the packer has to be woken, and resets that; called once per change of the store's
    /// table.
    pub(crate) fn take_wake(&mut self) -> bool {
        std::mem::take(&mut self.wake)
    }

    /// Returns whether so many bytes of bodies wait to be packed that the reflector should stop reading.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self.stage, Stage::Open(rules) if self.bytes >= rules.full)
    }

    /// If the queue is full, gives up on the packer: drops the queued bodies and queues no further ones until
    /// the packer makes progress. Returns whether the queue has given up.
    pub(crate) fn give_up(&mut self) -> bool {
        let full = self.is_full();
        if full {
            *self = Self { stage: self.stage, stalled: true, ..Self::default() };
        }
        full
    }

    /// Returns whether the queue had given up on the packer, and resets that: the packer then has to check
    /// all stored bodies.
    pub(super) fn resume(&mut self) -> bool {
        std::mem::take(&mut self.stalled)
    }

    /// Drops the queued bodies and begins another stage of the queue.
    pub(super) fn begin(&mut self, stage: Stage) {
        *self = Self { stage, ..Self::default() };
    }

    pub(super) fn is_empty(&self) -> bool {
        self.young.is_empty() && self.old.is_empty()
    }

    /// Returns whether so many bytes are in the queue that bodies are packed without delay.
    pub(super) fn is_eager(&self) -> bool {
        let waiting = self.bytes.saturating_sub(self.taken);
        matches!(self.stage, Stage::Open(rules) if waiting >= rules.eager)
    }

    /// Takes the bodies from the queue that are older than one rotation, or all of them if they are many.
    /// Their bytes have to be given back by [`PackQueue::done`].
    pub(super) fn rotate(&mut self) -> Vec<QueuedBody> {
        let eager = self.is_eager();
        let mut due = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
        if eager {
            due.append(&mut self.old);
        }
        self.taken += due.iter().map(|one| one.bytes).sum::<usize>();
        due
    }

    /// Subtracts the bytes of bodies that were taken from the queue and are packed now.
    pub(crate) fn done(&mut self, bytes: usize) {
        self.taken = self.taken.saturating_sub(bytes);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
