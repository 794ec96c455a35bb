//! The JSON merge patch that makes one document another (RFC 7386).
//!
//! In such a patch `null` removes a member, so a member that is `null` counts as absent. Lists are always
//! replaced as a whole.

use serde_json::{Map, Value};

/// Returns the smallest JSON merge patch that turns `from` into `to`; empty if they are equal.
pub(super) fn diff(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let removed = from.iter().filter(|(key, old)| !old.is_null() && to.get(*key).is_none_or(Value::is_null));
    let mut patch: Map<_, _> = removed.map(|(key, _)| (key.clone(), Value::Null)).collect();
    for (key, new) in to.iter().filter(|(_, new)| !new.is_null()) {
        let change = match (from.get(key), new) {
            (Some(old), new) if old == new => None,
            (Some(Value::Object(old)), Value::Object(new)) => {
                Some(diff(old, new)).filter(|change| !change.is_empty()).map(Value::Object)
            }
            (_, new) => Some(new.clone()),
        };
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    patch
}

#[cfg(test)]
mod tests;
