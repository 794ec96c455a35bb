//! What the other tests of this room look at.

use super::*;

impl List {
    /// Returns the members from head to tail.
    pub(in crate::queue) fn walk<Q: Key>(&self, slots: &Slots<Q>) -> Vec<u32> {
        let mut members = Vec::new();
        let mut at = self.head;
        while at != NONE {
            members.push(at);
            let Place::Ready { in_lane, by_age, .. } = &slots.get(at).place else {
                panic!("a list holds a key that is not ready")
            };
            at = if self.thread == Thread::Lane { in_lane.next } else { by_age.next };
        }
        assert_eq!(members.last().copied().unwrap_or(NONE), self.tail, "a list ends elsewhere than it says");
        members
    }
}
