//! A part of a store, as those see it who asked for no more.
//!
//! What crosses the edge of the part is told as what it looks like from inside: entering is a creation, leaving a
//! deletion, and what happens outside is not told. client-go's `FilteringResourceEventHandler` does the same.

use std::sync::Arc;

use crate::cache::object::delta::Delta;
use crate::cache::object::meta::Meta;
use crate::cache::object::view::View;
use crate::cache::store::select::{LabelSelector, Scope, Select};

/// What of a wider scope belongs to a narrower one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cache) struct Lens {
    namespace: Option<Arc<str>>,
    labels: LabelSelector,
}

// === impl Lens ===

impl Lens {
    /// Returns how `narrow` is seen in `wide`; `None` if it is not a part of it, or cannot be judged here.
    pub(in crate::cache) fn on(wide: &Scope, narrow: &Scope) -> Option<Self> {
        // A field cannot be read from metadata: only the very same selection is a part.
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
        Some(Self { namespace: narrow.namespace.clone(), labels })
    }

    pub(in crate::cache) fn admits(&self, meta: &Meta) -> bool {
        self.namespace.as_deref().is_none_or(|namespace| meta.namespace() == Some(namespace))
            && self.labels.matches(&meta.labels)
    }

    /// Returns the labels by which the part is found.
    pub(in crate::cache) fn label_keys(&self) -> impl Iterator<Item = &str> {
        self.labels.needed()
    }

    /// Returns what a selection in the part picks in the whole.
    pub(in crate::cache) fn narrow(&self, mut select: Select) -> Select {
        select.namespace = select.namespace.or_else(|| self.namespace.clone());
        select.labels = select.labels.and(&self.labels);
        select
    }

    /// Returns a delta as it is seen in the part; `None` if it is not.
    pub(in crate::cache) fn sees<'a>(&self, delta: &Delta<'a>) -> Option<Delta<'a>> {
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
