//! The field set of a value, and the check that a value follows its schema.

use serde_json::Value;

use super::element::{Element, Numbers};
use super::field_set::{FieldSet, Node};
use super::shape::{Items, Shape, entries, items};
use crate::kinds::{Form, Schema, go};

/// Returns the set of all fields that `value` mentions.
pub(super) fn field_set(schema: &Schema, value: &Value) -> FieldSet {
    below(schema, value).1
}

/// Returns whether the value itself is a member of the set, and the fields below it.
fn below(schema: &Schema, value: &Value) -> (bool, FieldSet) {
    let mut set = FieldSet::default();
    match Shape::of(schema, Some(value)) {
        Shape::Scalar | Shape::AtomicList(_) => return (true, set),
        Shape::Map(map) if map.atomic => return (true, set),
        Shape::Items(list) => {
            for (element, item) in unique_items(list, items(Some(value)).unwrap_or_default()) {
                let children = item.map(|item| below(list.schema, item).1).unwrap_or_default();
                set.push(Node { element, member: true, children });
            }
        }
        Shape::Map(map) => {
            for (name, value) in entries(Some(value)).into_iter().flatten() {
                let Some(entry) = map.entry(name) else { continue };
                let (member, children) = below(entry.schema, value);
                let empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
                let member = member || empty || !entry.named;
                set.push(Node { element: Element::Field(name.clone()), member, children });
            }
        }
    }
    (false, set)
}

/// Returns the items of a list with their elements, sorted by element. Items with the same element become one
/// entry with `None`, because they are owned together.
fn unique_items<'v>(list: Items<'_>, items: &'v [Value]) -> Vec<(Element, Option<&'v Value>)> {
    let mut found: Vec<_> =
        items.iter().filter_map(|item| Some((list.element(item).ok()?, Some(item)))).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    found.dedup_by(|later, kept| {
        let repeated = later.0 == kept.0;
        kept.1 = kept.1.filter(|_| !repeated);
        repeated
    });
    found
}

/// Adds the fields above the paths of `set` that the schema names; a field set does not list them by itself.
pub(super) fn with_named_parents(set: &FieldSet, schema: Option<&Schema>) -> FieldSet {
    let shape = schema.map(|schema| Shape::of(schema, None));
    let nodes = set.nodes.iter().map(|node| {
        let entry = shape.and_then(|shape| shape.below(&node.element));
        let named = entry.is_some_and(|entry| entry.named) && !node.children.is_empty();
        let children = with_named_parents(&node.children, entry.map(|entry| entry.schema));
        Node { element: node.element.clone(), member: node.member || named, children }
    });
    FieldSet { nodes: nodes.collect() }
}

/// Adapts a set that was recorded under an earlier schema: if a container has become atomic, the container
/// itself replaces the paths below it.
pub(super) fn settle(set: &mut FieldSet, schema: &Schema) {
    let shape = Shape::of(schema, None);
    if matches!(schema.form, Form::Any) {
        return;
    }
    for node in set.nodes.iter_mut().filter(|node| !node.children.is_empty()) {
        let Some(entry) = shape.below(&node.element) else { continue };
        if Shape::of(entry.schema, None).is_atomic_container() {
            node.member = true;
            node.children = FieldSet::default();
        } else {
            settle(&mut node.children, entry.schema);
        }
    }
}

/// A value that does not follow the schema: its path, empty at the root, and the reason.
type Problem = (String, String);

/// Checks that a value follows the schema. `duplicates` accepts items with the same element in one list.
///
/// # Errors
///
/// Returns the message of the real server: path and reason, and one line for each problem if there are
/// several.
pub(super) fn validate(schema: &Schema, value: &Value, duplicates: bool) -> Result<(), String> {
    let problems = problems(schema, value, duplicates);
    let text = |(path, reason): &Problem| {
        if path.is_empty() { reason.clone() } else { format!("{path}: {reason}") }
    };
    match problems.as_slice() {
        [] => Ok(()),
        [one] => Err(text(one)),
        many => {
            let lines: Vec<_> = many.iter().map(text).collect();
            Err(format!("errors:\n  {}", lines.join("\n  ")))
        }
    }
}

fn problems(schema: &Schema, value: &Value, duplicates: bool) -> Vec<Problem> {
    let refused = |expected: String| vec![(String::new(), expected)];
    let mut found = Vec::new();
    let mut extend = |prefix: &dyn Fn() -> String, below: Vec<Problem>| {
        found.extend(below.into_iter().map(|(path, reason)| (prefix() + &path, reason)));
    };
    match (Shape::of(schema, Some(value)), value) {
        (_, Value::Null) => {}
        (Shape::Scalar, _) => return scalar_problem(&schema.form, value).map(refused).unwrap_or_default(),
        (Shape::AtomicList(schema), Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                extend(&|| format!("[{index}]"), problems(schema, item, duplicates));
            }
        }
        (Shape::Items(list), Value::Array(items)) => {
            let mut seen = std::collections::BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let element = match list.element(item) {
                    Ok(element) => element,
                    Err(reason) => {
                        found.push((String::new(), format!("element {index}: {reason}")));
                        return found;
                    }
                };
                let path = || element.display(Numbers::Plain);
                if !duplicates && seen.contains(&element) {
                    extend(&String::new, refused(format!("duplicate entries for key {}", path())));
                }
                extend(&path, problems(list.schema, item, duplicates));
                if !duplicates {
                    seen.insert(element);
                }
            }
        }
        (Shape::Map(map), Value::Object(fields)) => {
            for (name, value) in fields {
                let prefix = || format!(".{name}");
                let Some(entry) = map.entry(name) else {
                    extend(&prefix, refused("field not declared in schema".to_owned()));
                    return found;
                };
                extend(&prefix, problems(entry.schema, value, duplicates));
            }
        }
        (Shape::AtomicList(_) | Shape::Items(_), _) => {
            return refused(format!("expected list, got &{{{}}}", go::plain(value)));
        }
        (Shape::Map(_), _) => return refused(format!("expected map, got &{{{}}}", go::plain(value))),
    }
    found
}

fn scalar_problem(form: &Form, value: &Value) -> Option<String> {
    match form {
        Form::Integer | Form::Number => (!value.is_number()).then(|| {
            let kind = match value {
                Value::String(_) => "string",
                Value::Bool(_) => "bool",
                Value::Array(_) => "[]interface {}",
                _ => "map[string]interface {}",
            };
            format!("expected numeric (int or float), got {kind}")
        }),
        Form::String => (!value.is_string())
            .then(|| format!("expected string, got &value.valueUnstructured{{Value:{}}}", go::syntax(value))),
        Form::Boolean => {
            (!value.is_boolean()).then(|| format!("expected boolean, got &{{{}}}", go::plain(value)))
        }
        _ => (value.is_array() || value.is_object())
            .then(|| format!("expected any scalar, got &{{{}}}", go::plain(value))),
    }
}
