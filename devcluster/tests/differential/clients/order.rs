//! The order in which a client saw the versions of objects.

use std::collections::{BTreeMap, BTreeSet};

/// The versions of the objects of one kind that a client has seen.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The last version by name, and whether the object exists.
    last: BTreeMap<String, (u64, bool)>,
    /// All versions.
    seen: BTreeSet<u64>,
    /// The versions between which a client listed anew: it may have missed those between them.
    gaps: Vec<(u64, u64)>,
    pub(crate) events: usize,
    pub(crate) problems: Vec<String>,
}

// === impl Order ===

impl Order {
    /// Checks that versions do not go back, that new objects are added and others are not.
    pub(crate) fn saw(&mut self, event: &str, name: &str, version: &str) {
        self.events += 1;
        let version: u64 = version.parse().expect("a number");
        let (last, exists) = self.last.get(name).copied().unwrap_or_default();
        let in_order = match event {
            "add" => !exists,
            "update" | "delete" => exists,
            _ => true,
        };
        if last > version || !in_order {
            self.problems.push(format!("{event} of {name} at {version}, after {last}, exists: {exists}"));
        }
        if let Some((_, end @ u64::MAX)) = self.gaps.last_mut()
            && event != "add"
        {
            *end = version;
        }
        self.seen.insert(version);
        self.last.insert(name.to_owned(), (version, event != "delete"));
    }

    /// Forgets which objects exist: a list follows, whose objects are added.
    pub(crate) fn restart(&mut self) {
        self.gaps.push((self.seen.last().copied().unwrap_or_default(), u64::MAX));
        self.last.values_mut().for_each(|(_, exists)| *exists = false);
    }

    /// Returns the versions that only the other client saw, though this one did not list meanwhile.
    pub(crate) fn missed(&self, other: &Self) -> Vec<u64> {
        let listed = |version: &u64| self.gaps.iter().any(|(from, to)| from < version && version < to);
        other.seen.difference(&self.seen).copied().filter(|version| !listed(version)).collect()
    }
}
