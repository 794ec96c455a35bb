//! The check of the lanes, for the other tests of the queue.

use super::*;

impl Lanes {
    pub(in crate::queue) fn check<Q: Key>(&self, slots: &Slots<Q>) {
        let ready = |slot: &u32| matches!(slots.get(*slot).state, SlotState::Ready { .. });
        let in_lanes: Vec<u32> = self.lists.iter().flat_map(|list| list.walk(slots)).collect();
        let by_age = self.by_age.walk(slots);
        assert!(by_age.iter().all(ready), "the list by age holds a key that is not ready");
        assert_eq!(in_lanes.len(), by_age.len(), "a ready key is in one list and not in the other");
        assert_eq!(by_age.len(), self.by_age.len, "the length of the list by age is wrong");
        assert!(
            self.lists.iter().all(|list| list.walk(slots).len() == list.len),
            "the length of a lane is wrong"
        );
        for expected in [Lane::Live, Lane::New, Lane::Background, Lane::Retry] {
            for slot in self.lists[expected as usize].walk(slots) {
                let SlotState::Ready { lane, .. } = slots.get(slot).state else { panic!("not ready") };
                assert_eq!(lane, expected, "a slot names another lane than the one its key is in");
            }
        }
        let ages: Vec<Moment> = by_age.iter().map(|slot| self.ready_since(slots, *slot)).collect();
        assert!(ages.is_sorted(), "the list by age is out of order");
    }
}
