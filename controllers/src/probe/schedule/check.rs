//! The invariants of a schedule, looked at whole.

use super::*;

impl Schedule {
    /// Panics at the first that does not hold.
    pub(in crate::probe) fn check(&self) {
        for (id, entry) in &self.entries {
            if entry.admitted {
                let waits = self.turns.check_place(entry.target.namespace(), *id, entry.lane, entry.due);
                assert!(waits != entry.is_probed, "entry {id} waits for its turn: {waits}");
            } else {
                assert!(entry.due.is_none(), "entry {id} waits for its turn without a place");
            }
            assert!(!entry.waiting.is_empty(), "entry {id} is waited for by nobody");
            assert_eq!(self.by_target.get(&(entry.target.clone(), entry.timeout)), Some(id));
            assert!(
                entry.postponed.is_none_or(|first| entry.due > Some(first)),
                "entry {id} was given a turn"
            );
            let waits =
                self.waits.iter().flat_map(|(request, waits)| waits.iter().map(move |w| (request, w)));
            let mine: Vec<_> = waits.filter(|(_, wait)| wait.entry == *id).collect();
            assert_eq!(entry.periods.count(), mine.len());
            let requests: HashSet<_> = mine.iter().map(|(request, _)| (*request).clone()).collect();
            assert_eq!(entry.waiting, requests, "who waits for entry {id}");
            for (request, wait) in mine {
                let waits_for = (&wait.want.target, wait.want.timeout);
                assert_eq!(waits_for, (&entry.target, entry.timeout), "what {request} waits for");
                assert!(wait.from.is_some() || judge(wait.state, entry.row, &wait.want) == wait.state);
            }
        }
        assert_eq!(self.by_target.len(), self.entries.len());
        assert!(self.waits.values().all(|waits| !waits.is_empty()));
        self.turns.check(self.entries.values().filter(|entry| entry.due.is_some()).count());
    }
}
