//! Accessors for other tests.

use super::*;

impl Indexes {
    pub(crate) fn buckets(&self) -> Vec<String> {
        let mut all: Vec<String> = self.namespaces.keys().map(|name| format!("namespace {name}")).collect();
        all.extend(self.owners.keys().map(|uid| format!("owner {uid}")));
        for index in &self.labels {
            all.extend(index.values.keys().map(|value| format!("label {}={value}", index.key)));
        }
        for index in &self.functions {
            all.extend(index.buckets.keys().map(|value| format!("{} {value}", index.function.name)));
        }
        all.sort();
        all
    }
}
