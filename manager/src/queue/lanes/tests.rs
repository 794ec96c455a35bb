//! What the other tests of this room look at.

use super::*;

impl Lanes {
    pub(in crate::queue) fn check<Q: Key>(&self, slots: &Slots<Q>) {
        let ready = |slot: &u32| matches!(slots.get(*slot).place, Place::Ready { .. });
        let in_lanes: Vec<u32> = self.lists.iter().flat_map(|list| list.walk(slots)).collect();
        let by_age = self.by_age.walk(slots);
        assert!(by_age.iter().all(ready), "the list by age holds a key that is not ready");
        assert_eq!(in_lanes.len(), by_age.len(), "a ready key is in one list and not in the other");
        assert_eq!(by_age.len(), self.by_age.len(), "the list by age has lost count");
        assert!(self.lists.iter().all(|list| list.walk(slots).len() == list.len()), "a lane has lost count");
        for lane in [Lane::Live, Lane::New, Lane::Background, Lane::Retry] {
            for slot in self.lists[lane as usize].walk(slots) {
                let Place::Ready { lane: said, .. } = slots.get(slot).place else { panic!("not ready") };
                assert_eq!(said, lane, "a key is in another lane than it says");
            }
        }
        let ages: Vec<Moment> = by_age.iter().map(|slot| self.ready_since(slots, *slot)).collect();
        assert!(ages.is_sorted(), "the list by age is out of order");
    }
}
