use super::*;

impl Index {
    pub(in crate::queue) fn check<T: Chained>(&self, slots: &Pages<T>) {
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
