//! The schema of a value, for built-in kinds and custom resources alike.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::checks::Checks;

/// The schema of one value. Schemas of built-in kinds refer to each other and may be recursive, so children
/// are looked up by [`Arc`] and never copied.
#[derive(Clone, Debug)]
pub struct Schema {
    /// The shape of the value.
    pub form: Form,
    /// Whether an explicit `null` is kept.
    pub nullable: bool,
    /// The value of a missing field.
    pub default: Option<Value>,
    /// The validations that a CustomResourceDefinition declares for the value; `None` in built-in kinds.
    pub checks: Option<Box<Checks>>,
}

/// The shape of a value.
#[derive(Clone, Debug)]
pub enum Form {
    /// Any JSON value; the content is kept as it is, and server-side apply deduces its structure.
    Any,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// A whole number or a string.
    IntOrString,
    /// A list.
    List {
        /// The schema of each item.
        items: Arc<Schema>,
        /// How server-side apply identifies the items.
        list: List,
        /// How strategic merge patch treats the list: merged by scalars or by a key, else replaced.
        merge: Option<Merge>,
    },
    /// A map from any key to values of one schema.
    Map {
        /// The schema of each value.
        values: Arc<Schema>,
        /// Whether server-side apply owns the map as a whole.
        atomic: bool,
    },
    /// A mapping with named fields.
    Object(Arc<Fields>),
}

/// The named fields of an object.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// The schema of each field, by its JSON name.
    pub fields: BTreeMap<String, Arc<Schema>>,
    /// Names of the fields that must be present.
    pub required: Vec<String>,
    /// Whether unknown fields are kept.
    pub preserve_unknown: bool,
    /// Whether server-side apply owns the object as a whole.
    pub atomic: bool,
    /// Whether a strategic merge patch may carry `$retainKeys` for this object.
    pub retain_keys: bool,
}

/// How the items of a list are identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// The list is replaced as a whole.
    Atomic,
    /// The items are distinct scalars.
    Set,
    /// The items are objects, identified by the values of these fields.
    Map(Vec<String>),
}

/// How strategic merge patch merges a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The items are scalars; new ones are added.
    Scalars,
    /// The items are objects, identified by the value of this field.
    Key(String),
}
