//! What the other tests of this room look at.

use super::*;

impl<Q: Key> Inner<Q> {
    /// Fails if the parts do not fit together.
    pub(in crate::queue) fn check(&self) {
        self.lanes.check(&self.slots);
        self.delays.check(&self.slots);
        self.slots.check();
        let (mut running, mut dirty, mut retries, mut parked, mut paused) = (0, 0, 0, 0, 0);
        for slot in (0..self.slots.end()).filter_map(|number| self.slots.peek(number)) {
            match &slot.place {
                Place::Running(run) => {
                    let listed = self.slots.get(self.running[run.index as usize]);
                    assert!(listed.key == slot.key, "a running key is listed elsewhere than it says");
                    running += 1;
                    dirty += usize::from(run.dirt.is_some());
                    retries += usize::from(run.as_retry);
                }
                Place::Parked { why, .. } => {
                    parked += 1;
                    paused += usize::from(matches!(why, ParkedFor::Paused(_)));
                }
                Place::Ready { .. } | Place::Delayed { .. } => {}
            }
        }
        assert_eq!(
            (running, dirty, retries, parked, paused),
            (self.running.len(), self.dirty, self.lanes.running_retries, self.parked, self.paused),
            "running, dirty, retries, parked or paused keys were miscounted"
        );
        let listed = self.lanes.len() + self.delays.len() + running + parked;
        assert_eq!(listed, self.slots.len(), "a key is in no place, or in two");
    }
}
