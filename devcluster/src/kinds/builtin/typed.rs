//! The typed form of an object: its JSON after decoding into its Go type and encoding again.
//!
//! The typed form has no unknown fields and no empty fields that Go omits. It has the zero values that Go
//! always writes, and times and quantities are canonical.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::types::{Field, Omit, SchemaOr, Shape, Type, find_type};
use crate::kinds::kind::Kind;

mod quantity;
mod scalar;
mod time;

pub use quantity::canonical as canonical_quantity;
pub(super) use quantity::{at_least_milli, compare, is_whole};
pub(super) use scalar::base64_text;
pub(super) use time::format_micros;
pub(super) use time::format_seconds;

/// An object in typed form.
#[derive(Clone, Debug, PartialEq)]
pub struct Typed {
    /// The object.
    pub value: Value,
    /// The paths of fields that the type does not declare, such as `spec.bogus`.
    pub unknown: Vec<String>,
}

/// A value that does not fit its Go type. The message equals that of the real server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TypeError(pub String);

/// Returns the type of the objects of a kind; `None` for custom resources.
pub fn type_of(kind: &Kind) -> Option<&'static Type> {
    kind.type_name.as_deref().and_then(find_type)
}

/// Returns the typed form of an object.
///
/// # Errors
///
/// Returns an error if a value has the wrong type.
pub fn convert(of: &'static Type, value: Value) -> Result<Typed, TypeError> {
    let mut conversion = Conversion { names: Vec::new(), path: String::new(), unknown: Vec::new() };
    let value = conversion.object(of, value, None)?;
    // Documents have no order here; the real server reports unknown fields in that of the document.
    conversion.unknown.sort_unstable();
    Ok(Typed { value, unknown: conversion.unknown })
}

/// Makes empty lists null, as they are after the real server has stored the object: protobuf has no empty
/// lists. Definitions of custom resources are stored as JSON and keep them.
pub fn as_stored(of: &'static Type, value: &mut Value) {
    if !of.name.ends_with(".CustomResourceDefinition")
        && let Value::Object(map) = value
    {
        store_fields(of, map);
    }
}

fn store_fields(of: &'static Type, map: &mut Map<String, Value>) {
    for field in &of.fields {
        if field.name.is_empty() {
            if let Some(part) = embedded(field.shape) {
                store_fields(part, map);
            }
        } else if let Some(value) = map.get_mut(field.name) {
            store_value(field.shape, value);
        }
    }
}

fn store_value(shape: Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::List(_), value @ Value::Array(_)) if value.as_array().is_some_and(Vec::is_empty) => {
            *value = Value::Null;
        }
        (Shape::Pointer(target), value) => store_value(*target, value),
        (Shape::List(items), Value::Array(list)) => {
            for item in list {
                store_value(*items, item);
            }
        }
        (Shape::Map(values), Value::Object(map)) => {
            for item in map.values_mut() {
                store_value(*values, item);
            }
        }
        (Shape::Struct(name), Value::Object(map)) => {
            if let Some(of) = find_type(name) {
                store_fields(of, map);
            }
        }
        _ => {}
    }
}

/// The depth at which objects are refused; recursion in types ends here.
const MAX_DEPTH: usize = 256;

struct Conversion {
    /// The names of the fields from the root, as error messages list them.
    names: Vec<&'static str>,
    /// The path with list positions and map keys, as strict validation reports it.
    path: String,
    unknown: Vec<String>,
}

/// The field under conversion, and its struct type.
#[derive(Clone, Copy)]
struct Place {
    of: &'static Type,
    field: &'static Field,
}

impl Conversion {
    fn object(&mut self, of: &'static Type, value: Value, place: Option<Place>) -> Result<Value, TypeError> {
        let mut given = match value {
            Value::Object(given) => given,
            Value::Null => Map::new(),
            _ => return Err(self.mismatch(&described(&value, false), place, &short_name(of.name))),
        };
        if self.names.len() > MAX_DEPTH {
            return Err(TypeError("json: exceeded max depth".to_owned()));
        }
        let mut out = Map::new();
        let mut known = 0;
        self.fields(of, of, &mut given, &mut out, &mut known)?;
        if known < given.len() {
            for name in given.keys().filter(|name| !has_field(of, name)) {
                let length = self.enter(name);
                self.unknown.push(self.path.clone());
                self.path.truncate(length);
            }
        }
        Ok(Value::Object(out))
    }

    /// Appends a name to the path and returns the length of the path before it.
    fn enter(&mut self, name: &str) -> usize {
        let length = self.path.len();
        if length > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        length
    }

    /// Converts the fields that `part` declares: `of` itself, or a struct embedded in it. Their values move
    /// from `given` to `out`.
    fn fields(
        &mut self,
        of: &'static Type,
        part: &'static Type,
        given: &mut Map<String, Value>,
        out: &mut Map<String, Value>,
        known: &mut usize,
    ) -> Result<(), TypeError> {
        for field in &part.fields {
            if field.name.is_empty() {
                if let Some(embedded) = embedded(field.shape) {
                    self.fields(of, embedded, given, out, known)?;
                }
                continue;
            }
            let value = given.get_mut(field.name).map(std::mem::take);
            *known += usize::from(value.is_some());
            let converted = match value {
                None | Some(Value::Null) => zero(field.shape),
                Some(value) => {
                    let length = self.enter(field.name);
                    self.names.push(field.name);
                    let converted = self.value(field.shape, value, Place { of, field })?;
                    self.names.pop();
                    self.path.truncate(length);
                    converted
                }
            };
            if !left_out(field, &converted) {
                out.insert(field.name.to_owned(), converted);
            }
        }
        Ok(())
    }

    fn value(&mut self, shape: Shape, value: Value, place: Place) -> Result<Value, TypeError> {
        if value.is_null() {
            return Ok(zero(shape));
        }
        match shape {
            Shape::Pointer(target) => self.value(*target, value, place),
            Shape::List(items) => {
                let Value::Array(list) = value else { return Err(self.wrong(&value, shape, place)) };
                let length = self.path.len();
                let mut out = Vec::with_capacity(list.len());
                for (i, item) in list.into_iter().enumerate() {
                    // Writing to memory does not fail.
                    _ = write!(self.path, "[{i}]");
                    out.push(self.value(*items, item, place)?);
                    self.path.truncate(length);
                }
                Ok(Value::Array(out))
            }
            Shape::Map(values) => {
                let Value::Object(mut map) = value else { return Err(self.wrong(&value, shape, place)) };
                for (key, item) in &mut map {
                    let length = self.enter(key);
                    *item = self.value(*values, std::mem::take(item), place)?;
                    self.path.truncate(length);
                }
                Ok(Value::Object(map))
            }
            Shape::Struct(name) => match find_type(name) {
                Some(of) => self.object(of, value, Some(place)),
                None => Ok(value),
            },
            Shape::SchemaOr(other) => self.schema_or(other, value, place),
            _ => scalar::convert(shape, value).map_err(|problem| match problem {
                scalar::Problem::Type(given) => {
                    self.mismatch(&given, Some(place), &go_name(shape, place.field))
                }
                scalar::Problem::Text(text) => TypeError(text),
            }),
        }
    }

    fn schema_or(&mut self, other: SchemaOr, value: Value, place: Place) -> Result<Value, TypeError> {
        const SCHEMA: Shape = Shape::Struct("apiextensions/v1.JSONSchemaProps");
        match (other, &value) {
            (_, Value::Object(_)) => self.value(SCHEMA, value, place),
            (SchemaOr::Bool, Value::Bool(_)) => Ok(value),
            (SchemaOr::Array, Value::Array(_)) => self.value(Shape::List(&SCHEMA), value, place),
            (SchemaOr::Strings, Value::Array(_)) => self.value(Shape::List(&Shape::String), value, place),
            (SchemaOr::Bool, _) => Err(TypeError("boolean or JSON schema expected".to_owned())),
            _ => Ok(Value::Null),
        }
    }

    /// Returns the error for a field with a value of the wrong type.
    fn wrong(&self, value: &Value, shape: Shape, place: Place) -> TypeError {
        self.mismatch(&described(value, false), Some(place), &go_name(shape, place.field))
    }

    fn mismatch(&self, given: &str, place: Option<Place>, wanted: &str) -> TypeError {
        TypeError(match place {
            None => format!("json: cannot unmarshal {given} into Go value of type {wanted}"),
            Some(Place { of, .. }) => {
                let of = of.name.rsplit('.').next().unwrap_or_default();
                let field = self.names.join(".");
                format!("json: cannot unmarshal {given} into Go struct field {of}.{field} of type {wanted}")
            }
        })
    }
}

/// Returns the name of a value's JSON type. `quote` adds the digits of a number.
fn described(value: &Value, quote: bool) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(number) if quote => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) => "object".to_owned(),
    }
}

/// Returns the name that Go prints for a type: `v1.Pod` for `core/v1.Pod`.
fn short_name(name: &str) -> String {
    name.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Returns the name of the Go type of `shape`, which is the shape of a field or a part of it.
fn go_name(shape: Shape, field: &Field) -> String {
    // The table has the Go name of the whole field, so the layers around `shape` are removed from it.
    let mut name = field.go;
    let mut layer = field.shape;
    while layer != shape {
        let (prefix, inner) = match layer {
            Shape::Pointer(inner) => ("*", inner),
            Shape::List(inner) => ("[]", inner),
            Shape::Map(inner) => ("]", inner),
            _ => break,
        };
        name = name.and_then(|name| match prefix {
            "]" => name.split_once(']').map(|(_, rest)| rest),
            prefix => name.strip_prefix(prefix),
        });
        layer = *inner;
    }
    name.map_or_else(|| derived_name(shape), str::to_owned)
}

fn derived_name(shape: Shape) -> String {
    match shape {
        Shape::String | Shape::Time | Shape::MicroTime | Shape::Quantity => "string".to_owned(),
        Shape::Int32 | Shape::IntOrString => "int32".to_owned(),
        Shape::Int64 => "int64".to_owned(),
        Shape::Uint8 => "uint8".to_owned(),
        Shape::Float => "float64".to_owned(),
        Shape::Bool => "bool".to_owned(),
        Shape::Bytes => "[]uint8".to_owned(),
        Shape::Strings => "v1.ExtraValue".to_owned(),
        Shape::RawExtension | Shape::Json | Shape::Fields | Shape::SchemaOr(_) => "object".to_owned(),
        Shape::Struct(name) => short_name(name),
        Shape::Pointer(inner) => derived_name(*inner),
        Shape::List(inner) => format!("[]{}", derived_name(*inner)),
        Shape::Map(inner) => format!("map[string]{}", derived_name(*inner)),
    }
}

pub(super) fn embedded(shape: Shape) -> Option<&'static Type> {
    match shape {
        Shape::Struct(name) => find_type(name),
        Shape::Pointer(target) => embedded(*target),
        _ => None,
    }
}

fn has_field(of: &'static Type, name: &str) -> bool {
    of.by_name.contains_key(name)
        || of
            .fields
            .iter()
            .filter(|field| field.name.is_empty())
            .filter_map(|field| embedded(field.shape))
            .any(|part| has_field(part, name))
}

/// Returns the JSON of Go's zero value for a shape.
pub(super) fn zero(shape: Shape) -> Value {
    match shape {
        Shape::String => Value::String(String::new()),
        Shape::Int32 | Shape::Int64 | Shape::Uint8 | Shape::Float | Shape::IntOrString => Value::from(0),
        Shape::Bool | Shape::SchemaOr(SchemaOr::Bool) => Value::Bool(false),
        Shape::Quantity => Value::String("0".to_owned()),
        Shape::Struct(name) => {
            let mut out = Map::new();
            if let Some(of) = find_type(name) {
                add_zeros(of, &mut out);
            }
            Value::Object(out)
        }
        Shape::Bytes
        | Shape::Time
        | Shape::MicroTime
        | Shape::RawExtension
        | Shape::Json
        | Shape::Fields
        | Shape::Strings
        | Shape::SchemaOr(_)
        | Shape::Pointer(_)
        | Shape::List(_)
        | Shape::Map(_) => Value::Null,
    }
}

fn add_zeros(of: &'static Type, out: &mut Map<String, Value>) {
    for field in &of.fields {
        if field.name.is_empty() {
            if let Some(part) = embedded(field.shape) {
                add_zeros(part, out);
            }
            continue;
        }
        let value = zero(field.shape);
        if !left_out(field, &value) {
            out.insert(field.name.to_owned(), value);
        }
    }
}

/// Returns whether Go omits the field from JSON when it has this value.
pub(super) fn left_out(field: &Field, value: &Value) -> bool {
    let empty = match field.shape {
        Shape::Pointer(_) => value.is_null(),
        Shape::List(_) | Shape::Map(_) | Shape::Bytes | Shape::Strings => match value {
            Value::Array(items) => items.is_empty(),
            Value::Object(entries) => entries.is_empty(),
            Value::String(text) => text.is_empty(),
            _ => true,
        },
        Shape::String => value.as_str().is_none_or(str::is_empty),
        Shape::Bool => value.as_bool() != Some(true),
        Shape::Int32 | Shape::Int64 | Shape::Uint8 | Shape::Float => value.as_f64() == Some(0.0),
        // In Go, no struct counts as empty.
        _ => false,
    };
    match field.omit {
        Omit::Never => false,
        Omit::Empty => empty,
        Omit::Zero => empty || *value == zero(field.shape),
    }
}
