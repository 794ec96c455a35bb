//! Carries an edit of a typed object over to the JSON it was decoded from.
//!
//! A Rust type has only some of an object's fields. An edit is the difference between the type's JSON before
//! and after; applied to the stored JSON, it leaves the fields that the type lacks, the unknown fields, in
//! place.
//!
//! # Invariants
//! 1. The result decodes to the edited value of the type.
//! 2. Values that are equal before and after the edit are unchanged in the result.
//! 3. An unknown field is removed only together with the object, or the element of a list, that contains it.
//! 4. An unknown field never moves to an element of another identity. If its element cannot be identified
//!    after the edit, the unknown field is removed.

use serde_json::{Map, Value};

/// Members that identify an element in most lists of the Kubernetes API.
const IDENTITY: [&str; 6] = ["uid", "name", "key", "kind", "namespace", "type"];

/// Members of [`IDENTITY`] that identify an element of a list alone. Where there is none of them, nested
/// members count as well: a metric of `type: Resource` is identified by its `resource.name`.
const UNIQUE: [&str; 3] = ["uid", "name", "key"];

/// Returns the stored JSON `raw` with the change from `before` to `after` applied to it. Members of `raw`
/// that the change does not concern stay.
pub(super) fn carry(raw: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return raw.clone();
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => members(raw, before, after),
        // Not stored, but the type has a default: only the changed members are stored, not the whole default.
        (Value::Null, Value::Object(before), Value::Object(after)) => members(&Map::new(), before, after),
        (Value::Array(raw), Value::Array(before), Value::Array(after)) if raw.len() == before.len() => {
            elements(raw, before, after)
        }
        _ => after.clone(),
    }
}

fn members(raw: &Map<String, Value>, before: &Map<String, Value>, after: &Map<String, Value>) -> Value {
    let mut carried = raw.clone();
    carried.retain(|key, _| after.contains_key(key) || !before.contains_key(key));
    for (key, value) in after {
        match before.get(key) {
            Some(old) if old == value => {}
            Some(old) => {
                let value = carry(raw.get(key).unwrap_or(&Value::Null), old, value);
                carried.insert(key.clone(), value);
            }
            None => drop(carried.insert(key.clone(), value.clone())),
        }
    }
    Value::Object(carried)
}

fn elements(raw: &[Value], before: &[Value], after: &[Value]) -> Value {
    let origins = pair(before, after);
    let carried = after.iter().zip(origins).map(|(element, origin)| match origin {
        Some(origin) => carry(&raw[origin], &before[origin], element),
        None => element.clone(),
    });
    carried.collect()
}

/// Returns for each element of the list `after` the index of its origin in `before`, or `None` for a new
/// element; no index is returned twice.
///
/// The matches are, in this order: equal elements at both ends of the lists, equal elements in between,
/// elements whose identity is unique in both lists, and, if the lists have the same length, the rest by index
/// and identity.
fn pair(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    let head = before.iter().zip(after).take_while(|(old, new)| old == new).count();
    let (old, new) = (&before[head..], &after[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();

    let mut origins: Vec<_> = (0..after.len()).map(|at| (at < head).then_some(at)).collect();
    for from_end in 1..=tail {
        origins[after.len() - from_end] = Some(before.len() - from_end);
    }
    let mut free: Vec<usize> = (head..before.len() - tail).collect();
    if free.is_empty() {
        return origins;
    }
    let mut match_by = |same: &dyn Fn(usize, usize) -> bool| {
        for (at, origin) in origins.iter_mut().enumerate().filter(|(_, origin)| origin.is_none()) {
            if let Some(found) = free.iter().position(|old| same(*old, at)) {
                *origin = Some(free.remove(found));
            }
        }
    };
    let identities = |elements: &[Value]| elements.iter().map(identity).collect::<Vec<_>>();
    let (old, new) = (identities(before), identities(after));
    match_by(&|from, to| before[from] == after[to]);
    match_by(&|from, to| old[from] == new[to] && is_unique(&old, from) && is_unique(&new, to));
    if before.len() == after.len() {
        match_by(&|from, to| from == to && old[from] == new[to]);
    }
    origins
}

/// Returns whether the element at this index has an identity, and no other element of the list has the same
/// one.
fn is_unique(identities: &[Option<Value>], at: usize) -> bool {
    identities[at].is_some() && identities.iter().filter(|other| **other == identities[at]).count() == 1
}

/// Returns the members that identify an element of a list; `None` if it has none of them.
fn identity(element: &Value) -> Option<Value> {
    let members = element.as_object()?;
    let is_identified = UNIQUE.iter().any(|member| members.contains_key(*member));
    let identifying = members.iter().filter_map(|(key, value)| match value {
        value if IDENTITY.contains(&key.as_str()) => Some((key.clone(), value.clone())),
        nested if !is_identified => identity(nested).map(|identity| (key.clone(), identity)),
        _ => None,
    });
    let identifying: Map<_, _> = identifying.collect();
    (!identifying.is_empty()).then_some(Value::Object(identifying))
}

#[cfg(test)]
pub(super) mod tests;
