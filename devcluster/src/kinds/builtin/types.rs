//! The struct types of the built-in kinds, with their fields as declared in Go.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use foldhash::fast::RandomState;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::table;

/// A struct type of Kubernetes, such as `apps/v1.DeploymentSpec`.
#[derive(Debug)]
pub struct Type {
    /// The name, such as `apps/v1.DeploymentSpec`.
    pub(super) name: &'static str,
    /// The fields in the order of their declaration.
    pub(super) fields: Vec<Field>,
    /// The position in `fields` of each JSON name. Fields of embedded structs are not included.
    pub(super) by_name: HashMap<&'static str, usize, RandomState>,
    /// Whether server-side apply owns a value of this type as a whole.
    pub(super) atomic: bool,
}

/// A field of a struct type.
#[derive(Debug, Deserialize)]
pub(super) struct Field {
    /// The JSON name. Empty for an embedded struct, because JSON has the fields of the struct instead.
    #[serde(rename = "n", default)]
    pub(super) name: &'static str,
    /// The protobuf number; 0 for a field that exists only in JSON.
    #[serde(rename = "p", default)]
    pub(super) number: u32,
    /// The shape of the value.
    #[serde(rename = "t")]
    pub(super) shape: Shape,
    /// The values that Go omits from JSON.
    #[serde(rename = "o", default)]
    pub(super) omit: Omit,
    /// The name of the Go type, if it differs from that of `shape`.
    #[serde(rename = "g", default)]
    pub(super) go: Option<&'static str>,
    /// The merge key of a list in a strategic merge patch: empty for scalars, `None` if the list is replaced.
    #[serde(rename = "m", default)]
    pub(super) merge: Option<&'static str>,
    /// The key fields by which server-side apply identifies the items of a list: empty for a set of scalars,
    /// `None` for an atomic list.
    #[serde(rename = "l", default)]
    pub(super) list: Option<Vec<&'static str>>,
    /// Whether server-side apply owns the value as a whole.
    #[serde(rename = "a", default)]
    pub(super) atomic: bool,
    /// The default in the schema. Server-side apply needs it for the keys of list items.
    #[serde(rename = "d", default)]
    pub(super) default: Option<Value>,
    /// The value that the server sets if the field is missing.
    #[serde(rename = "s", default)]
    pub(super) server_default: Option<Value>,
}

/// The values that Go omits from JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Omit {
    /// No value: zero values are written.
    #[default]
    Never,
    /// Empty values, as Go's `omitempty` defines them. Structs are always written.
    Empty,
    /// Zero values, structs included.
    Zero,
}

/// The shape of a field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A string.
    String,
    /// A signed integer of 32 bits.
    Int32,
    /// A signed integer of 64 bits.
    Int64,
    /// An unsigned integer of 8 bits.
    Uint8,
    /// A floating point number of 64 bits.
    Float,
    /// A boolean.
    Bool,
    /// Bytes, written as base64 in JSON.
    Bytes,
    /// A time with a precision of seconds.
    Time,
    /// A time with a precision of microseconds.
    MicroTime,
    /// A quantity, such as `500m`.
    Quantity,
    /// An integer of 32 bits or a string.
    IntOrString,
    /// An object of any kind, or null.
    RawExtension,
    /// Any JSON value.
    Json,
    /// A field set of server-side apply.
    Fields,
    /// A list of strings that protobuf wraps into a message.
    Strings,
    /// `JSONSchemaPropsOrBool` or a similar type: a schema, or another value in its place.
    SchemaOr(SchemaOr),
    /// A struct, by the name of its type.
    Struct(&'static str),
    /// A pointer. A missing pointer differs from a zero value.
    Pointer(&'static Shape),
    /// A list of items with this shape.
    List(&'static Shape),
    /// A map from strings to values with this shape.
    Map(&'static Shape),
}

/// The value that may replace a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaOr {
    /// A list of schemas.
    Array,
    /// A boolean.
    Bool,
    /// A list of strings.
    Strings,
}

impl Shape {
    /// Parses the Go-like notation of the table, such as `[]core/v1.Container`.
    fn parse(text: &'static str) -> Self {
        let leak = |text| -> &'static Self { Box::leak(Box::new(Self::parse(text))) };
        if let Some(target) = text.strip_prefix('*') {
            return Self::Pointer(leak(target));
        }
        if let Some(items) = text.strip_prefix("[]") {
            return Self::List(leak(items));
        }
        if let Some(values) = text.strip_prefix("map[string]") {
            return Self::Map(leak(values));
        }
        match text {
            "string" => Self::String,
            "int32" => Self::Int32,
            "int64" => Self::Int64,
            "uint8" => Self::Uint8,
            "float64" => Self::Float,
            "bool" => Self::Bool,
            "bytes" => Self::Bytes,
            "Time" => Self::Time,
            "MicroTime" => Self::MicroTime,
            "Quantity" => Self::Quantity,
            "IntOrString" => Self::IntOrString,
            "RawExtension" => Self::RawExtension,
            "JSON" => Self::Json,
            "FieldsV1" => Self::Fields,
            "strings" => Self::Strings,
            "SchemaOrArray" => Self::SchemaOr(SchemaOr::Array),
            "SchemaOrBool" => Self::SchemaOr(SchemaOr::Bool),
            "SchemaOrStrings" => Self::SchemaOr(SchemaOr::Strings),
            name => Self::Struct(name),
        }
    }
}

impl<'de: 'static> Deserialize<'de> for Shape {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <&'static str>::deserialize(deserializer)?;
        if text.is_empty() { Err(D::Error::custom("a field without type")) } else { Ok(Self::parse(text)) }
    }
}

impl Type {
    /// Whether this is the `HorizontalPodAutoscaler` of `v1`, which is stored as one of `v2`.
    pub fn is_older_autoscaler(&self) -> bool {
        self.name == "autoscaling/v1.HorizontalPodAutoscaler"
    }
}

/// The line of a struct type in the table.
#[derive(Deserialize)]
struct TypeLine {
    #[serde(rename = "type")]
    name: &'static str,
    #[serde(rename = "a", default)]
    atomic: bool,
    fields: Vec<Field>,
}

/// Returns the struct type with this name; `None` if the table does not have it.
pub fn find_type(name: &str) -> Option<&'static Type> {
    type Types = HashMap<&'static str, (&'static str, OnceLock<Type>), RandomState>;
    static TYPES: LazyLock<Types> = LazyLock::new(|| {
        table::type_lines().iter().map(|(name, line)| (*name, (*line, OnceLock::new()))).collect()
    });
    let (line, parsed) = TYPES.get(name)?;
    Some(parsed.get_or_init(|| read(line)))
}

#[expect(clippy::expect_used, reason = "the table is part of the binary, and a test reads all of it")]
fn read(line: &'static str) -> Type {
    let line: TypeLine = serde_json::from_str(line).expect("the line of a type");
    let by_name =
        line.fields.iter().enumerate().filter(|(_, field)| !field.name.is_empty()).map(|(i, f)| (f.name, i));
    Type { name: line.name, by_name: by_name.collect(), atomic: line.atomic, fields: line.fields }
}
