//! Which slot holds a key: a hash table that grows and shrinks by a bucket at a time.
//!
//! An ordinary table doubles, and moving a million entries under the queue's lock stops every worker for tens of
//! milliseconds. This one is Litwin's linear hashing (<https://en.wikipedia.org/wiki/Linear_hashing>): an insert splits
//! one bucket at most, a removal merges a few, and the buckets follow the number of keys in both directions. The
//! chains thread through the slots, so an entry costs a bucket and two numbers, twelve bytes.
//!
//! # Invariants
//! 1. Each slot in the index is in the chain of the bucket its hash names, once.
//! 2. There are at least as many buckets as slots, and at most about twice as many, but never fewer than a segment.

use super::pages::Pages;

/// No slot: the end of a chain.
const NONE: u32 = u32::MAX;
/// Buckets that come and go together: one kilobyte.
const SEGMENT: u32 = 256;
/// Buckets that keep their memory beyond those in use, so that a queue whose depth goes up and down by some thousands
/// allocates nothing: as many as there are places in the pages that are kept.
const LEEWAY: u32 = 16 * SEGMENT;
/// Buckets merged per removal, once there are too many: enough to follow a queue that only shrinks, twice over.
const MERGES: usize = 4;

/// The table. It holds the numbers of slots, and they hold their [`Link`].
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The first slot of each bucket's chain, `SEGMENT` buckets each.
    segments: Vec<Vec<u32>>,
    /// Buckets in use. 0 before the first insert.
    buckets: u32,
    len: u32,
}

/// What the index keeps in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Link {
    pub(super) hash: u32,
    /// The next slot in the chain.
    next: u32,
}

/// Something with a [`Link`].
pub(super) trait Chained {
    fn link(&self) -> Link;
    fn link_mut(&mut self) -> &mut Link;
}

// === impl Index ===

impl Index {
    /// Returns the slot with this hash for which `is` holds.
    pub(super) fn find<T: Chained>(
        &self,
        slots: &Pages<T>,
        hash: u32,
        is: impl Fn(&T) -> bool,
    ) -> Option<u32> {
        if self.buckets == 0 {
            return None;
        }
        let mut at = self.head(self.bucket(hash));
        while let Some(slot) = slots.get(at) {
            if slot.link().hash == hash && is(slot) {
                return Some(at);
            }
            at = slot.link().next;
        }
        None
    }

    /// Takes in a slot, whose link has its hash.
    #[inline]
    pub(super) fn insert<T: Chained>(&mut self, slots: &mut Pages<T>, number: u32) {
        if self.buckets == 0 {
            self.segments.push(empty_segment());
            self.buckets = SEGMENT;
        }
        self.prepend(slots, number);
        self.len += 1;
        if self.len > self.buckets {
            self.split(slots);
        }
    }

    /// Lets go of a slot, which is still there.
    pub(super) fn remove<T: Chained>(&mut self, slots: &mut Pages<T>, number: u32) {
        let Some(link) = slots.get(number).map(Chained::link) else { return };
        let bucket = self.bucket(link.hash);
        if self.head(bucket) == number {
            self.set_head(bucket, link.next);
        } else {
            let mut at = self.head(bucket);
            while let Some(slot) = slots.get_mut(at) {
                if slot.link().next == number {
                    slot.link_mut().next = link.next;
                    break;
                }
                at = slot.link().next;
            }
        }
        self.len -= 1;
        for _ in 0..MERGES {
            if self.buckets <= SEGMENT || self.len >= self.buckets / 2 {
                break;
            }
            self.merge(slots);
        }
    }

    /// Makes one bucket more, and moves into it what now belongs there, all of which is in one other bucket.
    fn split<T: Chained>(&mut self, slots: &mut Pages<T>) {
        let (new, old) = (self.buckets, below(self.buckets));
        if new == self.room() {
            self.segments.push(empty_segment());
        }
        self.buckets += 1;
        let chain = self.head(old);
        self.set_head(old, NONE);
        self.prepend_all(slots, chain);
    }

    /// Makes one bucket less, the last, and moves what was in it to where it came from.
    fn merge<T: Chained>(&mut self, slots: &mut Pages<T>) {
        let last = self.buckets - 1;
        let chain = self.head(last);
        self.set_head(last, NONE);
        self.buckets = last;
        if self.buckets + SEGMENT + LEEWAY <= self.room() {
            self.segments.pop();
        }
        self.prepend_all(slots, chain);
    }

    fn prepend_all<T: Chained>(&mut self, slots: &mut Pages<T>, mut chain: u32) {
        while let Some(slot) = slots.get(chain) {
            let next = slot.link().next;
            self.prepend(slots, chain);
            chain = next;
        }
    }

    #[inline]
    fn prepend<T: Chained>(&mut self, slots: &mut Pages<T>, number: u32) {
        let Some(slot) = slots.get_mut(number) else { return };
        let bucket = self.bucket(slot.link().hash);
        slot.link_mut().next = self.head(bucket);
        self.set_head(bucket, number);
    }

    /// Returns the bucket of a hash: as many of its low bits as the buckets need, or one less where the bucket with
    /// all of them has not been made yet.
    fn bucket(&self, hash: u32) -> u32 {
        let mask = self.buckets.next_power_of_two() - 1;
        let bucket = hash & mask;
        if bucket < self.buckets { bucket } else { bucket & (mask >> 1) }
    }

    fn head(&self, bucket: u32) -> u32 {
        self.segments[(bucket / SEGMENT) as usize][(bucket % SEGMENT) as usize]
    }

    fn set_head(&mut self, bucket: u32, number: u32) {
        self.segments[(bucket / SEGMENT) as usize][(bucket % SEGMENT) as usize] = number;
    }

    /// Returns how many buckets there is memory for.
    fn room(&self) -> u32 {
        u32::try_from(self.segments.len()).unwrap_or(u32::MAX).saturating_mul(SEGMENT)
    }
}

// === impl Link ===

impl Link {
    /// The link of a slot that is in no chain yet.
    pub(super) fn new(hash: u32) -> Self {
        Self { hash, next: NONE }
    }
}

fn empty_segment() -> Vec<u32> {
    vec![NONE; SEGMENT as usize]
}

/// Returns the bucket that a bucket was split from: its number without the highest bit.
fn below(bucket: u32) -> u32 {
    bucket & !(1 << bucket.ilog2())
}

#[cfg(test)]
mod tests;
