//! The buckets of a hash table that grows and shrinks by one bucket at a time.
//!
//! An ordinary table doubles, and moving a million entries under the queue's lock stops every worker for tens
//! of milliseconds. This one is Litwin's linear hashing (<https://en.wikipedia.org/wiki/Linear_hashing>): an
//! insert splits one bucket at most, a removal merges a few, and the number of buckets follows the number of
//! keys in both directions. A bucket is the first slot of a chain, and the slots hold the rest of it, so an
//! entry costs a bucket and two numbers, twelve bytes. `Slots` owns the chains; after a split or a merge it
//! puts the returned chain in again.
//!
//! # Invariant
//! There are at least as many buckets as slots, and at most about twice as many, but never fewer than a
//! segment.

use std::mem::replace;

/// No slot: the end of a chain or list.
pub(super) const NONE: u32 = u32::MAX;
/// Buckets that are allocated and freed together: one kilobyte.
const SEGMENT: u32 = 256;
/// Buckets that keep their memory beyond those in use, so that a queue with a depth that goes up and down by
/// some thousands needs no allocation: as many as there are places in the spare pages.
const LEEWAY: u32 = 16 * SEGMENT;

/// The buckets.
#[derive(Debug)]
pub(super) struct Index {
    /// The first slot of each bucket's chain, `SEGMENT` buckets each.
    pub(super) segments: Vec<Vec<u32>>,
    /// Buckets in use; at least `SEGMENT`.
    pub(super) buckets: u32,
}

// === impl Index ===

impl Index {
    pub(super) fn new() -> Self {
        Self { segments: vec![vec![NONE; SEGMENT as usize]], buckets: SEGMENT }
    }

    /// Returns the first slot of the chain in which a slot with this hash is.
    #[inline]
    pub(super) fn head(&self, hash: u32) -> u32 {
        let bucket = self.bucket(hash);
        self.segments[(bucket / SEGMENT) as usize][(bucket % SEGMENT) as usize]
    }

    /// Makes a slot the first of the chain of its hash. Returns the former first one.
    #[inline]
    pub(super) fn replace_head(&mut self, hash: u32, slot: u32) -> u32 {
        replace(self.bucket_mut(self.bucket(hash)), slot)
    }

    /// Splits a bucket if there are now more slots than buckets. Returns the chain of the split bucket,
    /// emptied.
    #[inline]
    pub(super) fn grow(&mut self, slots: usize) -> Option<u32> {
        (slots > self.buckets as usize).then(|| self.split())
    }

    /// Merges the last bucket into the one it was split from if there are now too many buckets. Returns its
    /// chain.
    #[inline]
    pub(super) fn shrink(&mut self, slots: usize) -> Option<u32> {
        (self.buckets > SEGMENT && slots < (self.buckets / 2) as usize).then(|| self.merge())
    }

    /// Adds a bucket. Returns the chain of the only other bucket that may hold slots of the new one, emptied.
    fn split(&mut self) -> u32 {
        let new = self.buckets;
        if new == self.room() {
            self.segments.push(vec![NONE; SEGMENT as usize]);
        }
        self.buckets += 1;
        // The number of the new bucket without its highest bit.
        replace(self.bucket_mut(new & !(1 << new.ilog2())), NONE)
    }

    /// Removes the last bucket. Returns its chain.
    fn merge(&mut self) -> u32 {
        self.buckets -= 1;
        let chain = replace(self.bucket_mut(self.buckets), NONE);
        if self.buckets + SEGMENT + LEEWAY <= self.room() {
            self.segments.pop();
        }
        chain
    }

    /// Returns the bucket of a hash: as many of its low bits as the number of buckets needs, or one bit less
    /// if the bucket with all of these bits has not been added yet.
    fn bucket(&self, hash: u32) -> u32 {
        let mask = self.buckets.next_power_of_two() - 1;
        let bucket = hash & mask;
        if bucket < self.buckets { bucket } else { bucket & (mask >> 1) }
    }

    fn bucket_mut(&mut self, bucket: u32) -> &mut u32 {
        &mut self.segments[(bucket / SEGMENT) as usize][(bucket % SEGMENT) as usize]
    }

    /// Returns how many buckets there is memory for.
    fn room(&self) -> u32 {
        u32::try_from(self.segments.len()).unwrap_or(u32::MAX).saturating_mul(SEGMENT)
    }
}
