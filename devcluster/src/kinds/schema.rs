//! The schema of a value, the same type for built-in kinds and custom resources.

use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use serde_json::Value;

use super::checks::Checks;

/// The schema of one value. Schemas of built-in kinds share their parts, so parts are in an [`Arc`].
#[derive(Clone, Debug)]
pub struct Schema {
    /// The shape of the value.
    pub form: Form,
    /// Whether an explicit `null` is kept.
    pub nullable: bool,
    /// The default of a missing field; `None` if it has none.
    pub default: Option<Value>,
    /// The validations that a CustomResourceDefinition declares for the value; `None` in built-in kinds.
    pub checks: Option<Box<Checks>>,
}

/// The shape of a value.
#[derive(Clone, Debug)]
pub enum Form {
    /// Any JSON value. The content is kept, and server-side apply deduces its structure.
    Any,
    /// A string.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// A boolean.
    Boolean,
    /// A whole number or a string.
    IntOrString,
    /// A list.
    List {
        /// The schema of each item.
        items: Arc<Schema>,
        /// The identity of the items in server-side apply.
        list: List,
        /// The treatment of the list in a strategic merge patch; `None` if the list is replaced.
        merge: Option<Merge>,
    },
    /// A map from any key to values of one schema.
    Map {
        /// The schema of each value.
        values: Arc<Schema>,
        /// Whether server-side apply owns the map as a whole.
        atomic: bool,
    },
    /// An object with named fields.
    Object(Arc<Fields>),
}

/// The named fields of an object.
#[derive(Clone, Debug, Default)]
pub struct Fields {
    /// The schemas of the fields, by JSON name.
    pub fields: IndexMap<String, Arc<Schema>, RandomState>,
    /// Whether unknown fields are kept.
    pub preserve_unknown: bool,
    /// Whether server-side apply owns the object as a whole.
    pub atomic: bool,
}

/// The identity of the items of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// Items have no identity; the list is replaced as a whole.
    Atomic,
    /// The items are distinct scalars, identified by their value.
    Set,
    /// The items are objects, identified by the values of these key fields.
    Map(Vec<String>),
}

/// The way in which a strategic merge patch merges a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Merge {
    /// The items are scalars; new items are added.
    Scalars,
    /// The items are objects, identified by the value of this key field.
    Key(String),
}
