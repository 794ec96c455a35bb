//! Ratcheting: finds values that an update leaves unchanged, because their errors are not enforced.

use serde_json::Value;

use crate::kinds::schema::{Form, List, Schema};

/// A new value and the old value that it replaces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Correlated<'a> {
    /// The new value.
    pub new: &'a Value,
    /// The old value.
    pub old: &'a Value,
    /// The schema of both values.
    pub schema: &'a Schema,
    /// Whether the values are whole objects. Whole objects always count as changed, because metadata is not
    /// part of the schema.
    pub root: bool,
}

impl Correlated<'_> {
    /// Returns the values of a field or entry. `None` if one is missing, or if the schema does not declare
    /// it.
    pub(super) fn key(self, name: &str) -> Option<Self> {
        if self.root && matches!(name, "apiVersion" | "kind" | "metadata") {
            return None;
        }
        let (new, old) = (self.new.as_object()?.get(name)?, self.old.as_object()?.get(name)?);
        let schema = match &self.schema.form {
            Form::Object(fields) => fields.fields.get(name)?,
            Form::Map { values, .. } if values.checks.is_some() => values,
            _ => return None,
        };
        Some(Self { new, old, schema, root: false })
    }

    /// Returns the item at this position and the old item with the same keys; `None` if there is none.
    pub(super) fn index(self, index: usize) -> Option<Self> {
        let new = self.new.as_array()?.get(index)?;
        let Form::List { items, list, .. } = &self.schema.form else { return None };
        let old = find_item(self.old.as_array()?, new, list)?;
        Some(Self { new, old, schema: items, root: false })
    }

    /// Returns whether the values are equal. The order of items with keys does not matter.
    pub(super) fn is_unchanged(self) -> bool {
        if self.root {
            return false;
        }
        match (self.new, self.old) {
            (Value::Array(new), Value::Array(old)) => {
                let keyed = matches!(&self.schema.form, Form::List { list: List::Map(_), .. });
                new.len() == old.len()
                    && if keyed {
                        (0..new.len()).all(|at| self.index(at).is_some_and(Self::is_unchanged))
                    } else {
                        new == old
                    }
            }
            (Value::Object(new), Value::Object(old)) => {
                new.len() == old.len()
                    && new.keys().all(|name| self.key(name).is_some_and(Self::is_unchanged))
            }
            (new, old) => new == old,
        }
    }
}

/// Returns the old item with the same keys; `None` if there is none or the list is not of type `map`.
pub(super) fn find_item<'a>(old: &'a [Value], item: &Value, list: &List) -> Option<&'a Value> {
    let List::Map(keys) = list else { return None };
    let item = item.as_object()?;
    old.iter().find(|old| keys.iter().all(|key| old.get(key) == item.get(key)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Correlated;
    use crate::kinds::custom::structural::schema;

    #[test]
    fn unchanged_items_are_found_by_their_keys() {
        let schema = schema(&json!({"type": "object", "properties": {"ports": {
            "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {
                "name": {"type": "string"}, "port": {"type": "integer"},
            }},
        }}}));
        let old = json!({"ports": [{"name": "a", "port": 1}, {"name": "b", "port": 2}]});
        let new = json!({"ports": [{"name": "b", "port": 2}, {"name": "a", "port": 3}]});
        let ports = Correlated { new: &new, old: &old, schema: &schema, root: true }.key("ports").unwrap();
        assert!(ports.index(0).unwrap().is_unchanged());
        assert!(!ports.index(1).unwrap().is_unchanged());
        assert!(!ports.is_unchanged());
        let same = Correlated { new: &old, old: &old, schema: &schema, root: true };
        assert!(same.key("ports").unwrap().is_unchanged());
        assert!(!same.is_unchanged());
    }
}
