//! A part of a wider store, for store handles with a narrower scope.
//!
//! Handlers of the part receive a delta as it affects the part: an object that enters it is created, one that
//! leaves it is deleted, and changes outside are not delivered. client-go's `FilteringResourceEventHandler`
//! does the same.

use crate::cache::object::{Delta, Meta, View};
use crate::cache::store::{LabelSelector, Scope, Select};

/// A part of a store: the objects of its scope that belong to a narrower scope.
#[derive(Clone, Debug)]
pub(crate) struct SubScope(Select);

// === impl SubScope ===

impl SubScope {
    /// Returns the objects of the scope `narrow` as a part of the scope `wide`; `None` if `narrow` is not
    /// contained in `wide`, or if metadata cannot decide it.
    pub(crate) fn of(wide: &Scope, narrow: &Scope) -> Option<Self> {
        // Fields cannot be evaluated on metadata: only the same field selector is known to be contained.
        if wide.fields != narrow.fields
            || !inside(wide.namespace.as_ref(), narrow.namespace.as_ref())
            || !inside(wide.labels.as_ref(), narrow.labels.as_ref())
        {
            return None;
        }
        let labels = match &narrow.labels {
            Some(labels) if wide.labels.is_none() => labels.clone(),
            _ => LabelSelector::default(),
        };
        Some(Self(Select { namespace: narrow.namespace.clone(), labels, ..Select::all() }))
    }

    pub(crate) fn admits(&self, meta: &Meta) -> bool {
        self.0.admits(meta)
    }

    /// Returns the label keys by which this part of a store is selected.
    pub(crate) fn label_keys(&self) -> impl Iterator<Item = &str> {
        self.0.labels.needed()
    }

    /// Restricts a selection to this part of a store, for a list in the wider store.
    pub(crate) fn narrow(&self, mut select: Select) -> Select {
        select.namespace = select.namespace.or_else(|| self.0.namespace.clone());
        select.labels = select.labels.and(&self.0.labels);
        select
    }

    /// Returns a delta of the wider store as it affects this part of it; `None` if it does not.
    pub(crate) fn restrict<'a>(&self, delta: &Delta<'a>) -> Option<Delta<'a>> {
        let inside = |side: Option<&'a View>| side.filter(|view| self.admits(view.meta()));
        let (old, new) = (inside(delta.old), inside(delta.new));
        (old.is_some() || new.is_some()).then_some(Delta { old, new, ..*delta })
    }
}

fn inside<T: PartialEq>(wide: Option<&T>, narrow: Option<&T>) -> bool {
    wide.is_none() || wide == narrow
}

#[cfg(test)]
mod tests;
