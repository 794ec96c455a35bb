//! Merges an applied configuration into an object, and removes fields from an object.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use super::element::Element;
use super::field_set::FieldSet;
use super::shape::{Items, Shape, entries, items};
use crate::kinds::Schema;

/// Merges `applied` into `object`: leaves are replaced, granular maps and lists are merged.
pub(super) fn merge(schema: &Schema, object: &mut Value, applied: &Value) {
    match Shape::of(schema, Some(applied)) {
        Shape::Map(map) if !map.atomic => {
            let Some(applied_fields) = entries(Some(applied)).filter(|fields| !fields.is_empty()) else {
                // An empty or null map replaces only another one, so the difference between the two is kept.
                if entries(Some(object)).is_none_or(serde_json::Map::is_empty) {
                    *object = applied.clone();
                }
                return;
            };
            let Value::Object(fields) = object else {
                *object = applied.clone();
                return;
            };
            for (name, applied) in applied_fields {
                match (fields.get_mut(name), map.entry(name)) {
                    (Some(value), Some(entry)) => merge(entry.schema, value, applied),
                    (_, _) => _ = fields.insert(name.clone(), applied.clone()),
                }
            }
        }
        Shape::Items(list) => {
            let Some(applied_items) = items(Some(applied)).filter(|items| !items.is_empty()) else {
                if items(Some(object)).is_none_or(<[Value]>::is_empty) {
                    *object = applied.clone();
                }
                return;
            };
            match object {
                Value::Array(items) if !items.is_empty() => {
                    *items = merge_items(list, std::mem::take(items), applied_items);
                }
                _ => *object = applied.clone(),
            }
        }
        Shape::Scalar | Shape::AtomicList(_) | Shape::Map(_) => applied.clone_into(object),
    }
}

/// Merges the items of an applied list. Applied items keep their order; the object's other items stay behind
/// the item that they followed.
fn merge_items(list: Items<'_>, object: Vec<Value>, applied: &[Value]) -> Vec<Value> {
    let applied: Vec<_> = applied.iter().filter_map(|item| Some((list.element(item).ok()?, item))).collect();
    let applied_elements: BTreeMap<&Element, usize> =
        applied.iter().enumerate().map(|(index, (element, _))| (element, index)).collect();
    // The items of the object in order, each with its index in `applied`; `None` for other items.
    let mut remaining: VecDeque<(Option<usize>, Value)> = object
        .into_iter()
        .filter_map(|item| Some((applied_elements.get(&list.element(&item).ok()?).copied(), item)))
        .collect();
    let mut taken: Vec<Option<Value>> = applied.iter().map(|_| None).collect();
    let mut repeated = vec![0_usize; applied.len()];
    for (index, item) in &mut remaining {
        if let Some(index) = index {
            repeated[*index] += 1;
            taken[*index] = Some(std::mem::take(item));
        }
    }
    let mut shared: VecDeque<usize> = (0..applied.len()).filter(|index| repeated[*index] > 0).collect();
    let mut next_shared = shared.pop_front();
    let mut out = Vec::with_capacity(remaining.len().max(applied.len()));
    let mut next_applied = 0;
    let mut merged = vec![false; applied.len()];

    while !remaining.is_empty() || next_applied < applied.len() {
        let both = next_applied < applied.len();
        let skip = match remaining.front() {
            None => false,
            Some((Some(index), _)) if both && *index == next_applied => true,
            Some((Some(index), _)) if both && next_shared.is_some_and(|next| next != *index) => {
                // This shared item comes later in the applied order.
                remaining.pop_front();
                continue;
            }
            Some((None, _)) => {
                out.extend(remaining.pop_front().map(|(_, item)| item));
                continue;
            }
            Some((Some(index), _)) => merged[*index],
        };
        if skip {
            remaining.pop_front();
        }
        let Some((_, item)) = applied.get(next_applied) else { continue };
        merged[next_applied] = true;
        // An item that occurs several times in the object is replaced, not merged.
        out.push(match taken[next_applied].take().filter(|_| repeated[next_applied] == 1) {
            Some(mut value) => {
                merge(list.schema, &mut value, item);
                value
            }
            None => (*item).clone(),
        });
        if next_shared == Some(next_applied) {
            next_shared = shared.pop_front();
        }
        next_applied += 1;
    }
    out
}

/// Removes the fields and items of `set` from `object`. A map or list that becomes empty is replaced by null.
pub(super) fn remove(schema: &Schema, object: &mut Value, set: &FieldSet) {
    match (Shape::of(schema, Some(object)), &mut *object) {
        (Shape::Scalar, _) => return,
        (Shape::Map(map), Value::Object(fields)) if !map.atomic => {
            fields.retain(|name, value| {
                let Some(node) = set.get(&Element::Field(name.clone())) else { return true };
                if !node.member
                    && let Some(entry) = map.entry(name)
                {
                    remove(entry.schema, value, &node.children);
                }
                !node.member
            });
            if !fields.is_empty() {
                return;
            }
        }
        (Shape::Items(list), Value::Array(items)) => {
            items.retain_mut(|item| {
                let Some(node) = list.element(item).ok().and_then(|element| set.get(&element)) else {
                    return true;
                };
                if !node.member {
                    remove(list.schema, item, &node.children);
                }
                !node.member
            });
            if !items.is_empty() {
                return;
            }
        }
        _ => {}
    }
    *object = Value::Null;
}
