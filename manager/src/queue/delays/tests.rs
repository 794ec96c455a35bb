//! The check of the deadlines, for the other tests of the queue.

use super::*;

impl Delays {
    pub(in crate::queue) fn check<Q: Key>(&self, slots: &Slots<Q>) {
        assert_eq!(self.first, self.entries.first().copied(), "another entry is first");
        for entry in &self.entries {
            let SlotState::Delayed { until, order, .. } = slots.get(entry.slot).state else {
                panic!("the deadlines list a key that is not delayed")
            };
            assert_eq!((until, order), (entry.until, entry.order), "a slot and its entry disagree");
        }
    }
}
