//! A walk through a list, for the other tests of the queue.

use super::*;

impl List {
    /// Returns the members from head to tail.
    pub(in crate::queue) fn walk<Q: Key>(&self, slots: &Slots<Q>) -> Vec<u32> {
        let mut members = Vec::new();
        let mut at = self.head;
        while at != NONE {
            members.push(at);
            let SlotState::Ready { links, .. } = &slots.get(at).state else {
                panic!("a list holds a key that is not ready")
            };
            at = links[self.kind as usize].next;
        }
        assert_eq!(members.last().copied().unwrap_or(NONE), self.tail, "the tail is not the last member");
        members
    }
}
