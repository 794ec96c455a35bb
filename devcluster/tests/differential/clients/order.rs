//! The order in which a client saw the versions of objects.

use std::collections::BTreeMap;

/// What a client has seen of one kind.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The last version by name, and whether the object exists.
    last: BTreeMap<String, (u64, bool)>,
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
        self.last.insert(name.to_owned(), (version, event != "delete"));
    }

    /// Forgets which objects exist: a list follows.
    pub(crate) fn restart(&mut self) {
        self.last.values_mut().for_each(|(_, exists)| *exists = false);
    }
}
