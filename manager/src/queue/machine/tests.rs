//! The check of the whole state machine, for the other tests of the queue.

use super::*;

impl<Q: Key> Inner<Q> {
    /// Fails if the lists and counts do not agree with the slots.
    pub(in crate::queue) fn check(&self) {
        self.lanes.check(&self.slots);
        self.delays.check(&self.slots);
        self.slots.check();
        let (mut running, mut dirty, mut retries, mut parked, mut paused) = (0, 0, 0, 0, 0);
        for slot in (0..self.slots.pages.end()).filter_map(|number| self.slots.pages.get(number)) {
            match &slot.state {
                SlotState::Running(run) => {
                    let listed = self.slots.get(self.running[run.index as usize]);
                    assert!(listed.key == slot.key, "the slot of a running key has the index of another key");
                    running += 1;
                    dirty += usize::from(run.dirty.is_some());
                    retries += usize::from(run.as_retry);
                }
                SlotState::Parked { reason, .. } => {
                    parked += 1;
                    paused += usize::from(matches!(reason, ParkReason::Paused(_)));
                }
                SlotState::Ready { .. } | SlotState::Delayed { .. } => {}
            }
        }
        assert_eq!(
            (running, dirty, retries, parked, paused),
            (self.running.len(), self.dirty, self.lanes.running_retries, self.parked, self.paused),
            "a count of running, dirty, retried, parked or paused keys is wrong"
        );
        let listed = self.lanes.len() + self.delays.len() + running + parked;
        assert_eq!(listed, self.slots.pages.len(), "a key is in no list, or in two");
    }
}
