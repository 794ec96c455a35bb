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

    #[cfg(test)]
    pub(super) fn check<T: Chained>(&self, slots: &Pages<T>) {
        let mut listed = 0;
        for bucket in 0..self.buckets {
            let mut at = self.head(bucket);
            while let Some(slot) = slots.get(at) {
                assert_eq!(self.bucket(slot.link().hash), bucket, "slot {at} is in another bucket's chain");
                listed += 1;
                at = slot.link().next;
            }
            assert_eq!(at, NONE, "a chain leads to a slot that is not in use");
        }
        assert_eq!((listed, self.len as usize), (slots.len(), slots.len()), "a slot cannot be found");
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
mod tests {
    use super::*;

    struct Thing(Link);

    impl Chained for Thing {
        fn link(&self) -> Link {
            self.0
        }

        fn link_mut(&mut self) -> &mut Link {
            &mut self.0
        }
    }

    fn insert(index: &mut Index, slots: &mut Pages<Thing>, hash: u32) -> u32 {
        let number = slots.insert(Thing(Link::new(hash)));
        index.insert(slots, number);
        number
    }

    fn remove(index: &mut Index, slots: &mut Pages<Thing>, number: u32) {
        index.remove(slots, number);
        slots.remove(number);
    }

    #[test]
    fn buckets_follow_the_number_of_slots_up_and_down() {
        let (mut index, mut slots) = (Index::default(), Pages::new());
        let mut random = fastrand::Rng::with_seed(3);
        let numbers: Vec<u32> = (0..10_000).map(|_| insert(&mut index, &mut slots, random.u32(..))).collect();
        index.check(&slots);
        assert_eq!((index.buckets, index.segments.len()), (10_000, 40));
        for number in numbers {
            remove(&mut index, &mut slots, number);
        }
        index.check(&slots);
        assert_eq!((index.buckets, index.segments.len()), (SEGMENT, 17));
    }

    #[test]
    fn whatever_comes_and_goes_each_slot_is_found_by_its_hash() {
        let (mut index, mut slots) = (Index::default(), Pages::new());
        let mut random = fastrand::Rng::with_seed(4);
        let mut there = Vec::new();
        for step in 0..20_000 {
            if random.u32(0..100) < if step % 4000 < 2000 { 80 } else { 20 } {
                // Few distinct hashes, so that many slots share one.
                there.push(insert(&mut index, &mut slots, random.u32(0..3000).wrapping_mul(0x9E37_79B9)));
            } else if !there.is_empty() {
                remove(&mut index, &mut slots, there.swap_remove(random.usize(0..there.len())));
            }
            if step % 500 == 0 {
                index.check(&slots);
            }
        }
        for number in there {
            let hash = slots.get(number).map_or(0, |thing| thing.link().hash);
            assert!(index.find(&slots, hash, |_| true).is_some());
        }
    }
}
