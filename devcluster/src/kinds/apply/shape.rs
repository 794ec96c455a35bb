//! The structure of a value for ownership: the parts that are owned separately, and their path elements.

use serde_json::{Map, Value};

use super::element::Element;
use crate::kinds::{Fields, Form, List, Schema};

/// The schema of values without a declared structure: maps are granular, lists are atomic.
static ANY: Schema = Schema { form: Form::Any, nullable: false, default: None, checks: None };

/// The structure of one value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape<'a> {
    /// A value that is owned as a whole.
    Scalar,
    /// A list that is owned as a whole.
    AtomicList(&'a Schema),
    /// A list with items that are owned separately.
    Items(Items<'a>),
    /// An object or a map.
    Map(Entries<'a>),
}

/// A list with items that are owned separately.
#[derive(Clone, Copy, Debug)]
pub(super) struct Items<'a> {
    pub(super) schema: &'a Schema,
    /// The key fields of an item; empty for a set of scalars.
    keys: &'a [String],
}

/// An object or a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries<'a> {
    form: &'a Form,
    pub(super) atomic: bool,
}

/// The schema of a map's entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    pub(super) schema: &'a Schema,
    /// Whether the schema names the field. An entry that is not named is a member of a set besides its
    /// content.
    pub(super) named: bool,
}

impl<'a> Shape<'a> {
    /// Returns the shape of `value` under the schema. If the schema allows any type, the type of the value
    /// decides, and null counts as a map.
    pub(super) fn of(schema: &'a Schema, value: Option<&Value>) -> Self {
        match &schema.form {
            Form::String | Form::Integer | Form::Number | Form::Boolean => Self::Scalar,
            Form::List { items, list, .. } => match list {
                List::Atomic => Self::AtomicList(items),
                List::Set => Self::Items(Items { schema: items, keys: &[] }),
                List::Map(keys) => Self::Items(Items { schema: items, keys }),
            },
            Form::Map { atomic, .. } => Self::Map(Entries { form: &schema.form, atomic: *atomic }),
            Form::Object(fields) => Self::Map(Entries { form: &schema.form, atomic: fields.atomic }),
            // The real server checks no type here; validation after the apply does.
            Form::Any | Form::IntOrString => match value {
                Some(Value::Array(_)) => Self::AtomicList(&ANY),
                None | Some(Value::Null | Value::Object(_)) => {
                    Self::Map(Entries { form: &schema.form, atomic: false })
                }
                Some(_) => Self::Scalar,
            },
        }
    }

    /// Returns whether the value is owned as a whole although it has parts.
    pub(super) fn is_atomic_container(&self) -> bool {
        match self {
            Self::AtomicList(_) => true,
            Self::Map(entries) => entries.atomic,
            Self::Scalar | Self::Items(_) => false,
        }
    }

    /// Returns the schema below `element`; `None` if the schema does not declare it.
    pub(super) fn below(&self, element: &Element) -> Option<Entry<'a>> {
        match (self, element) {
            (Self::Map(entries), Element::Field(name)) => entries.entry(name),
            (Self::Items(items), _) => Some(Entry { schema: items.schema, named: false }),
            (Self::AtomicList(schema), _) => Some(Entry { schema, named: false }),
            _ => None,
        }
    }
}

impl<'a> Entries<'a> {
    /// Returns the schema of the entry `name`; `None` if the schema does not allow it.
    pub(super) fn entry(&self, name: &str) -> Option<Entry<'a>> {
        match self.form {
            Form::Object(fields) => match fields.fields.get(name) {
                Some(schema) => Some(Entry { schema, named: true }),
                None => allows_unknown(fields).then_some(Entry { schema: &ANY, named: false }),
            },
            Form::Map { values, .. } => Some(Entry { schema: values, named: false }),
            _ => Some(Entry { schema: &ANY, named: false }),
        }
    }
}

/// Returns whether unknown fields are allowed. An object without declared fields is free-form.
fn allows_unknown(fields: &Fields) -> bool {
    fields.preserve_unknown || fields.fields.is_empty()
}

impl Items<'_> {
    /// Returns the path element of an item. A missing key field counts with its default.
    pub(super) fn element(&self, item: &Value) -> Result<Element, String> {
        if self.keys.is_empty() {
            let refused = match item {
                Value::Object(_) => "associative list without keys has an element that's a map type",
                Value::Array(_) => "not supported: associative list with lists as elements",
                Value::Null => "associative list without keys has an element that's an explicit null",
                scalar => return Ok(Element::Value(scalar.clone())),
            };
            return Err(refused.to_owned());
        }
        let fields = match item {
            Value::Object(fields) => fields,
            Value::Null => return Err("associative list with keys may not have a null element".to_owned()),
            _ => return Err("associative list with keys may not have non-map elements".to_owned()),
        };
        let mut key: Vec<_> = self
            .keys
            .iter()
            .filter_map(|name| fields.get(name).or_else(|| self.default(name)).map(|value| (name, value)))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        if key.is_empty() {
            let keys: Vec<_> = self.keys.iter().map(|key| format!("{key:?}")).collect();
            return Err(format!(
                "associative list with keys has an element that omits all key fields [{}] \
                 (and doesn't have default values for any key fields)",
                keys.join(" ")
            ));
        }
        key.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(Element::Key(key))
    }

    fn default(&self, name: &str) -> Option<&Value> {
        match &self.schema.form {
            Form::Object(fields) => fields.fields.get(name)?.default.as_ref(),
            _ => None,
        }
    }
}

/// Returns the items of a list; `None` for null and other types.
pub(super) fn items(value: Option<&Value>) -> Option<&[Value]> {
    value.and_then(Value::as_array).map(Vec::as_slice)
}

/// Returns the entries of a map; `None` for null and other types.
pub(super) fn entries(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object)
}

/// Returns whether two values are equal. Numbers are compared by value, so 1 equals 1.0.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(_), Value::Number(_)) => super::element::compare(a, b).is_eq(),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b)),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| same(a, b)))
        }
        _ => a == b,
    }
}
