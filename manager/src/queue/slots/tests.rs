use super::*;
use crate::key::tests::Id;
use crate::key::{NamespacedName, Trigger};

impl<Q: Key> Slots<Q> {
    /// Fails unless each slot is in the chain of the bucket of its hash, once.
    pub(in crate::queue) fn check(&self) {
        let mut listed = 0;
        for bucket in 0..self.index.buckets {
            let mut at = self.index.head(bucket);
            while let Some(slot) = self.pages.get(at) {
                let of_hash = self.index.head(slot.hash);
                assert_eq!(of_hash, self.index.head(bucket), "slot {at} is in another bucket's chain");
                listed += 1;
                at = slot.next;
            }
            assert_eq!(at, NONE, "a chain leads to a slot that is not in use");
        }
        assert_eq!(listed, self.pages.len(), "a slot cannot be found");
    }
}

fn insert<Q: Key>(slots: &mut Slots<Q>, key: Q) -> u32 {
    slots.insert(slots.hash(&key), key, Cause::bare(Trigger::Generic))
}

fn insert_hashed(slots: &mut Slots<Id>, hash: u32) -> u32 {
    slots.insert(hash, Id(hash), Cause::bare(Trigger::Generic))
}

#[test]
fn a_removed_key_leaves_nothing_behind_and_its_slot_is_used_again() {
    let mut slots = Slots::new();
    let name: Arc<str> = "web".into();
    let number = insert(&mut slots, NamespacedName::cluster(Arc::clone(&name)));
    assert_eq!(slots.find(&NamespacedName::cluster("web")), Some(number));
    slots.remove(number);
    assert_eq!((Arc::strong_count(&name), slots.pages.len()), (1, 0));
    assert_eq!(insert(&mut slots, NamespacedName::cluster("api")), number);
    assert_eq!(slots.find(&NamespacedName::cluster("web")), None);
}

#[test]
fn a_slot_costs_at_most_80_bytes_beyond_its_key() {
    let size = size_of::<Option<Slot<NamespacedName>>>() - size_of::<NamespacedName>();
    assert!(size <= 80, "{size}");
}

#[test]
fn buckets_follow_the_number_of_slots_up_and_down() {
    let mut slots = Slots::new();
    let mut random = fastrand::Rng::with_seed(3);
    let numbers: Vec<u32> = (0..10_000).map(|_| insert_hashed(&mut slots, random.u32(..))).collect();
    slots.check();
    assert_eq!((slots.index.buckets, slots.index.segments.len()), (10_000, 40));
    for number in numbers {
        slots.remove(number);
    }
    slots.check();
    assert_eq!((slots.index.buckets, slots.index.segments.len()), (256, 17));
}

#[test]
fn each_slot_is_found_by_its_hash_while_others_are_inserted_and_removed() {
    let mut slots = Slots::new();
    let mut random = fastrand::Rng::with_seed(4);
    let mut stored = Vec::new();
    for step in 0..20_000 {
        if random.u32(0..100) < if step % 4000 < 2000 { 80 } else { 20 } {
            // Few distinct hashes, so that many slots share one.
            stored.push(insert_hashed(&mut slots, random.u32(0..3000).wrapping_mul(0x9E37_79B9)));
        } else if !stored.is_empty() {
            slots.remove(stored.swap_remove(random.usize(0..stored.len())));
        }
        if step % 500 == 0 {
            slots.check();
        }
    }
    for number in stored {
        let (hash, key) = (slots.get(number).hash, Id(slots.get(number).hash));
        assert!(slots.find_hashed(hash, &key).is_some());
    }
}
