//! Reads of a store, and waits for its progress.

use std::sync::Arc;
use std::time::Duration;

use super::ObjectStore;
use crate::cache::object::{ReadError, ResourceVersion, View};
use crate::cache::store::{IndexValue, KindStatus, Select, Table};
use crate::key::NamespacedName;

// === impl ObjectStore ===

/// Reads of a store. `declared` is the store as the reader has declared it; errors name its scope.
impl ObjectStore {
    pub(crate) fn get(&self, request: &NamespacedName, declared: &Self) -> Result<Option<View>, ReadError> {
        let table = self.table.read();
        declared.synced(&table)?;
        Ok(table.get(request).cloned())
    }

    pub(crate) fn list(&self, select: &Select, declared: &Self) -> Result<Vec<View>, ReadError> {
        let (mut walk, estimate) = {
            let table = self.table.read();
            declared.synced(&table)?;
            declared.indexed(&table, select)?;
            (table.walk(), table.estimate(select))
        };
        let mut views = Vec::with_capacity(estimate);
        // Takes the lock anew for each stride.
        while self.table.read().stride(&mut walk, select, &mut views) {}
        Ok(views)
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.table.read().synced
    }

    /// Waits until the store has been listed once or its kind was found not to be served or readable; also
    /// ends when the last user of the store is gone.
    pub(crate) async fn settled(&self) {
        self.retired.run_until_cancelled(self.counts.settled()).await;
    }

    /// Waits until the store has settled, an attempt to list has failed, or `patience` has passed since the
    /// start; also ends when the last user of the store is gone.
    pub(crate) async fn tried(&self, patience: Duration) {
        self.retired.run_until_cancelled(self.counts.tried(patience)).await;
    }

    /// Waits until reads of an object return this version of it or a newer one.
    pub(crate) async fn caught_up(&self, request: &NamespacedName, version: &ResourceVersion) {
        loop {
            // Created before the check, so that a change in between is not missed.
            let moved = self.progressed.notified();
            if self.table.read().has_reached(request, version) {
                return;
            }
            moved.await;
        }
    }

    pub(crate) fn status(&self) -> KindStatus {
        self.counts.status(self, &self.table.read())
    }

    /// Checks that a namespace is in the scope of the store, and fails otherwise. `None` is outside too if
    /// the kind is namespaced and the store does not hold all namespaces.
    pub(crate) fn in_scope(&self, namespace: Option<&str>) -> Result<(), ReadError> {
        let inside = |part: &Option<Arc<str>>| match part {
            None => true,
            Some(part) => namespace == Some(part.as_ref()),
        };
        if !self.kind.is_namespaced() || self.parts.iter().any(inside) {
            return Ok(());
        }
        let asked = namespace.map_or_else(|| "no namespace".to_owned(), |name| format!("namespace {name}"));
        Err(ReadError::OutOfScope { kind: self.kind.clone(), asked, scope: self.describe_with_cluster() })
    }

    fn indexed(&self, table: &Table, select: &Select) -> Result<(), ReadError> {
        let complete = |wanted: &IndexValue| {
            wanted.function.as_ref().is_some_and(|function| table.indexes.is_complete(function))
        };
        match select.functions.iter().find(|wanted| !complete(wanted)) {
            None => Ok(()),
            Some(wanted) => {
                Err(ReadError::UnknownIndex { kind: self.kind.clone(), index: wanted.name.to_string() })
            }
        }
    }

    fn synced(&self, table: &Table) -> Result<(), ReadError> {
        if table.synced {
            return Ok(());
        }
        Err(ReadError::NotSynced { kind: self.kind.clone(), scope: self.describe_with_cluster() })
    }
}
