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

/// Number that stands for no slot: the end of a chain or list of slots.
pub(super) const NONE: u32 = u32::MAX;
/// Number of hash buckets that are allocated and freed together: one kilobyte.
const SEGMENT: u32 = 256;
/// Number of hash buckets beyond those in use that keep their memory, so that a queue with a depth that goes
/// up and down by some thousands needs no allocation: as many as there are places in the spare pages.
const LEEWAY: u32 = 16 * SEGMENT;

/// The buckets of the hash table that finds the slot of a key; each bucket is the first slot of a chain.
#[derive(Debug)]
pub(super) struct Index {
    /// The first slot of the chain of each hash bucket, in segments of `SEGMENT` buckets; `NONE` for an empty
    /// chain.
    pub(super) segments: Vec<Vec<u32>>,
    /// Number of hash buckets in use; at least `SEGMENT`.
    pub(super) buckets: u32,
}

// === impl Index ===

impl Index {
    pub(super) fn new() -> Self {
        Self { segments: vec![vec![NONE; SEGMENT as usize]], buckets: SEGMENT }
    }

    /// Returns the first slot of the chain that has the slots with this hash; `NONE` if the chain is empty.
    #[inline]
    pub(super) fn head(&self, hash: u32) -> u32 {
        let bucket = self.bucket(hash);
        self.segments[(bucket / SEGMENT) as usize][(bucket % SEGMENT) as usize]
    }

    /// Makes `slot` the first slot of the chain for this hash, and returns the slot that was first before.
    #[inline]
    pub(super) fn replace_head(&mut self, hash: u32, slot: u32) -> u32 {
        replace(self.bucket_mut(self.bucket(hash)), slot)
    }

    /// Splits a hash bucket if there are now more slots than buckets. Returns the first slot of the chain
    /// that this took out of the index and that the caller puts in again; `None` without a split.
    #[inline]
    pub(super) fn grow(&mut self, slots: usize) -> Option<u32> {
        (slots > self.buckets as usize).then(|| self.split())
    }

    /// Removes the last hash bucket if there are now too many, so that its slots belong to the bucket it was
    /// split from. Returns the first slot of its chain, which the caller puts into the index again; `None`
    /// without a merge.
    #[inline]
    pub(super) fn shrink(&mut self, slots: usize) -> Option<u32> {
        (self.buckets > SEGMENT && slots < (self.buckets / 2) as usize).then(|| self.merge())
    }

    /// Adds a hash bucket, and empties the only other bucket that may hold slots of the new one. Returns the
    /// first slot of the emptied chain, which the caller puts into the index again.
    fn split(&mut self) -> u32 {
        let new = self.buckets;
        if new == self.room() {
            self.segments.push(vec![NONE; SEGMENT as usize]);
        }
        self.buckets += 1;
        // The number of the new bucket without its highest bit.
        replace(self.bucket_mut(new & !(1 << new.ilog2())), NONE)
    }

    /// Removes the last hash bucket. Returns the first slot of its chain, which the caller puts into the
    /// index again.
    fn merge(&mut self) -> u32 {
        self.buckets -= 1;
        let chain = replace(self.bucket_mut(self.buckets), NONE);
        if self.buckets + SEGMENT + LEEWAY <= self.room() {
            self.segments.pop();
        }
        chain
    }

    /// Returns the number of the bucket of a hash: as many of its low bits as the number of buckets needs, or
    /// one bit less if the bucket with all of these bits has not been added yet.
    fn bucket(&self, hash: u32) -> u32 {
        let mask = self.buckets.next_power_of_two() - 1;
        let bucket = hash & mask;
        if bucket < self.buckets { bucket } else { bucket & (mask >> 1) }
    }

    fn bucket_mut(&mut self, bucket: u32) -> &mut u32 {
        &mut self.segments[(bucket / SEGMENT) as usize][(bucket % SEGMENT) as usize]
    }

    /// Returns the number of hash buckets for which memory is allocated.
    fn room(&self) -> u32 {
        u32::try_from(self.segments.len()).unwrap_or(u32::MAX).saturating_mul(SEGMENT)
    }
}
