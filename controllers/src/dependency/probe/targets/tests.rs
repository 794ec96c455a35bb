//! Checks the invariants of the bookkeeping.

use std::collections::HashSet;

use super::*;

impl Targets {
    /// Panics at the first invariant of the targets that does not hold. Returns the number of probes that
    /// have begun and not ended.
    pub(in crate::dependency::probe) fn check(&self) -> usize {
        for (id, entry) in &self.entries {
            if entry.admitted {
                assert!(
                    entry.due().is_some() != entry.is_probed,
                    "entry {id} is due or has a probe in flight"
                );
            } else {
                assert!(entry.due().is_none(), "entry {id} is due over the limit of its namespace");
            }
            assert!(!entry.waits.is_empty(), "no object waits for entry {id}");
            assert_eq!(self.ids.get(&(entry.target.clone(), entry.timeout)), Some(id));
            for ((request, at), wait) in &entry.waits {
                assert_eq!(self.requests[request][*at], *id, "target {at} of {request}");
                let waits_for = (&wait.want.target, wait.want.timeout);
                assert_eq!(waits_for, (&entry.target, entry.timeout), "target {at} of {request}");
                assert!(wait.from.is_some() || judge(wait.state, entry.streak, &wait.want) == wait.state);
            }
            let of_service =
                entry.target.service().is_none_or(|service| self.services.contains(&(service, *id)));
            assert!(of_service, "entry {id} is not found by its Service");
        }
        assert_eq!(self.ids.len(), self.entries.len());
        let waits: usize = self.entries.values().map(|entry| entry.waits.len()).sum();
        assert_eq!(self.requests.values().map(Vec::len).sum::<usize>(), waits);
        assert!(self.requests.values().all(|ids| !ids.is_empty()));
        let with_service = self.entries.values().filter(|entry| entry.target.service().is_some());
        assert_eq!(self.services.len(), with_service.count());
        self.check_admission();
        self.entries.values().filter(|entry| entry.is_probed).count()
    }

    /// Asserts that the oldest targets of each namespace are admitted, and no others.
    fn check_admission(&self) {
        let mut ids = HashSet::new();
        for (namespace, of_namespace) in &self.namespaces {
            assert!(!of_namespace.is_empty());
            for (rank, id) in of_namespace.iter().enumerate() {
                let entry = &self.entries[id];
                assert_eq!(entry.target.shared_namespace(), namespace);
                assert_eq!(entry.admitted, rank < self.max_targets(), "entry {id}");
                ids.insert(*id);
            }
        }
        assert_eq!(ids, self.entries.keys().copied().collect());
    }
}
