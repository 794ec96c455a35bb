//! Carries an edit of a typed object over to the JSON it was decoded from.
//!
//! A Rust type knows some of an object's fields. What an edit changed is the difference between the type's JSON before
//! and after; laid on the stored JSON, it leaves the fields that the type does not know where they are.
//!
//! # Invariants
//! 1. What the type reads from the result is what the edit made.
//! 2. Nothing is changed that is the same before and after.
//! 3. What the type does not know goes only with the object, or the element of a list, that it stands in.
//! 4. It never comes to stand in an element of another identity. Where which element it was cannot be told, it goes.

use serde_json::{Map, Value};

/// What tells the elements of one list apart in most lists of the Kubernetes API.
const IDENTITY: [&str; 6] = ["uid", "name", "key", "kind", "namespace", "type"];

/// Those of [`IDENTITY`] that say which one it is. The others may say only of what sort it is, and what is within says
/// which: a metric of `type: Resource` is that of `resource.name`.
const WHICH_ONE: [&str; 3] = ["uid", "name", "key"];

/// Returns `raw` with the change from `before` to `after` made to it.
pub(super) fn carry(raw: &Value, before: &Value, after: &Value) -> Value {
    if before == after {
        return raw.clone();
    }
    match (raw, before, after) {
        (Value::Object(raw), Value::Object(before), Value::Object(after)) => members(raw, before, after),
        // Not stored, and the type has a default for it: what was changed is stored, the default is not.
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
    let twins = pair(before, after);
    let carried = after.iter().zip(twins).map(|(element, twin)| match twin {
        Some(twin) => carry(&raw[twin], &before[twin], element),
        None => element.clone(),
    });
    carried.collect()
}

/// Finds for each element of `after` the one of `before` that it is a version of; none is found twice.
///
/// In this order: the equal ones at both ends of the lists, equal ones in between, those of an identity that no other
/// element of either list has, and, if none was put in or taken out, the rest by their place.
fn pair(before: &[Value], after: &[Value]) -> Vec<Option<usize>> {
    let head = before.iter().zip(after).take_while(|(old, new)| old == new).count();
    let (old, new) = (&before[head..], &after[head..]);
    let tail = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old == new).count();

    let mut twins: Vec<_> = (0..after.len()).map(|at| (at < head).then_some(at)).collect();
    for from_end in 1..=tail {
        twins[after.len() - from_end] = Some(before.len() - from_end);
    }
    let mut free: Vec<usize> = (head..before.len() - tail).collect();
    if free.is_empty() {
        return twins;
    }
    let mut match_by = |same: &dyn Fn(usize, usize) -> bool| {
        for (at, twin) in twins.iter_mut().enumerate().filter(|(_, twin)| twin.is_none()) {
            if let Some(found) = free.iter().position(|old| same(*old, at)) {
                *twin = Some(free.remove(found));
            }
        }
    };
    let (old, new) = (identities(before), identities(after));
    match_by(&|from, to| before[from] == after[to]);
    match_by(&|from, to| {
        old[from] == new[to] && is_one_of_its_kind(&old, from) && is_one_of_its_kind(&new, to)
    });
    if before.len() == after.len() {
        match_by(&|from, to| from == to && old[from] == new[to]);
    }
    twins
}

fn identities(elements: &[Value]) -> Vec<Option<Value>> {
    elements.iter().map(identity).collect()
}

/// Returns whether no other element of the list has the identity of this one, if it has any.
fn is_one_of_its_kind(identities: &[Option<Value>], at: usize) -> bool {
    identities[at].is_some() && identities.iter().filter(|other| **other == identities[at]).count() == 1
}

/// Returns the members that say which element of a list this is; `None` if it has none of them.
fn identity(element: &Value) -> Option<Value> {
    let members = element.as_object()?;
    let is_told = WHICH_ONE.iter().any(|member| members.contains_key(*member));
    let telling = members.iter().filter_map(|(key, value)| match value {
        value if IDENTITY.contains(&key.as_str()) => Some((key.clone(), value.clone())),
        within if !is_told => identity(within).map(|identity| (key.clone(), identity)),
        _ => None,
    });
    let telling: Map<_, _> = telling.collect();
    (!telling.is_empty()).then_some(Value::Object(telling))
}

#[cfg(test)]
pub(super) mod tests;
