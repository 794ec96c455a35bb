//! The fields in which two values differ.

use std::collections::BTreeMap;

use serde_json::Value;

use super::element::Element;
use super::field_set::{FieldSet, Node};
use super::shape::{Items, Shape, entries, items, same};
use crate::kinds::{Form, Schema};

/// The fields in which two values differ. Each field is in at most one of the sets.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

/// The comparison of one value: the set that contains the value itself, and the fields below it.
#[derive(Default)]
struct Difference {
    own: Option<Change>,
    below: Comparison,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Removed,
    Modified,
    Added,
}

impl Comparison {
    /// Compares two values that are both present.
    pub(super) fn of(schema: &Schema, old: &Value, new: &Value) -> Self {
        compare(schema, Some(old), Some(new)).below
    }

    /// Removes the fields of `ignored` and all fields below them.
    #[must_use]
    pub(super) fn without(self, ignored: &FieldSet) -> Self {
        if ignored.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.without(ignored),
            modified: self.modified.without(ignored),
            added: self.added.without(ignored),
        }
    }

    /// Returns the fields that the new value adds or modifies.
    pub(super) fn set(&self) -> FieldSet {
        self.modified.union(&self.added)
    }

    fn push(&mut self, element: Element, difference: Difference) {
        let Difference { own, below } = difference;
        let sets = [
            (&mut self.removed, below.removed, Change::Removed),
            (&mut self.modified, below.modified, Change::Modified),
        ];
        for (set, children, change) in sets {
            if own == Some(change) || !children.is_empty() {
                set.push(Node { element: element.clone(), member: own == Some(change), children });
            }
        }
        self.added.push(Node { element, member: own == Some(Change::Added), children: below.added });
    }
}

/// Compares two values; at least one of them is present.
fn compare(schema: &Schema, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let shape = Shape::of(schema, new.or(old));
    let mut difference = shaped(&shape, old, new);
    // If the schema allows any type and the types differ, the parts of the old value are removed, too.
    if let (Form::Any, Some(old_value), Some(new_value)) = (&schema.form, old, new)
        && std::mem::discriminant(old_value) != std::mem::discriminant(new_value)
    {
        let earlier = shaped(&Shape::of(schema, old), old, new);
        difference.own = difference.own.or(earlier.own);
        difference.below.removed = difference.below.removed.union(&earlier.below.removed);
    }
    difference
}

fn shaped(shape: &Shape<'_>, old: Option<&Value>, new: Option<&Value>) -> Difference {
    let leaf = || Difference { own: leaf_change(old, new), below: Comparison::default() };
    let mut below = Comparison::default();
    match shape {
        Shape::Map(map) if !map.atomic => {
            let (old, new) = (entries(old), entries(new));
            let empty = |fields: Option<&serde_json::Map<_, _>>| fields.is_none_or(serde_json::Map::is_empty);
            if empty(old) && empty(new) {
                return leaf();
            }
            let names = old.into_iter().flatten().map(|(name, _)| name);
            let added = new.into_iter().flatten().map(|(name, _)| name);
            let added = added.filter(|name| old.is_none_or(|old| !old.contains_key(*name)));
            for name in names.chain(added) {
                let Some(entry) = map.entry(name) else { continue };
                let old = old.and_then(|fields| fields.get(name));
                let new = new.and_then(|fields| fields.get(name));
                let difference = compare(entry.schema, old, new);
                if !difference.is_none() {
                    below.push(Element::Field(name.clone()), difference);
                }
            }
        }
        Shape::Items(list) => {
            let (old, new) = (items(old).unwrap_or_default(), items(new).unwrap_or_default());
            if old.is_empty() && new.is_empty() {
                return leaf();
            }
            // Most lists are equal, and to match their items by key takes longer.
            if old == new {
                return Difference::default();
            }
            compare_items(*list, old, new, &mut below);
        }
        _ => return leaf(),
    }
    let own = match (old, new) {
        (None, _) => Some(Change::Added),
        (_, None) => Some(Change::Removed),
        _ => None,
    };
    Difference { own, below }
}

impl Difference {
    fn is_none(&self) -> bool {
        let Comparison { removed, modified, added } = &self.below;
        self.own.is_none() && removed.is_empty() && modified.is_empty() && added.is_empty()
    }
}

fn leaf_change(old: Option<&Value>, new: Option<&Value>) -> Option<Change> {
    match (old, new) {
        (None, _) => Some(Change::Added),
        (_, None) => Some(Change::Removed),
        (Some(old), Some(new)) => (!same(old, new)).then_some(Change::Modified),
    }
}

/// Compares two lists item by item. Several items with the same element are compared as one leaf.
fn compare_items(list: Items<'_>, old: &[Value], new: &[Value], below: &mut Comparison) {
    let mut found: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
    for item in old {
        if let Ok(element) = list.element(item) {
            found.entry(element).or_default().0.push(item);
        }
    }
    for item in new {
        if let Ok(element) = list.element(item) {
            found.entry(element).or_default().1.push(item);
        }
    }
    let own = |change| Difference { own: Some(change), below: Comparison::default() };
    for (element, (old, new)) in found {
        match (old.as_slice(), new.as_slice()) {
            ([] | [_], [] | [_]) => {
                let difference = compare(list.schema, old.first().copied(), new.first().copied());
                if !difference.is_none() {
                    below.push(element, difference);
                }
            }
            ([_, _, ..], [_, _, ..]) => {
                if old.len() != new.len() || old.iter().zip(&new).any(|(old, new)| !same(old, new)) {
                    below.push(element, own(Change::Modified));
                }
            }
            ([_, _, ..], single) => {
                if let [new] = single {
                    below.push(element.clone(), compare(list.schema, None, Some(new)));
                }
                below.push(element, own(Change::Removed));
            }
            (single, _) => {
                if let [old] = single {
                    below.push(element.clone(), compare(list.schema, Some(old), None));
                }
                below.push(element, own(Change::Added));
            }
        }
    }
}
