//! The struct types of the built-in kinds: their fields as Go declares them.

use std::collections::HashMap;
use std::sync::{LazyLock, OnceLock};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::table;

/// A struct type of Kubernetes, such as `apps/v1.DeploymentSpec`.
#[derive(Debug)]
pub struct Type {
    /// The name, such as `apps/v1.DeploymentSpec`.
    pub(super) name: &'static str,
    /// The fields in the order of the declaration.
    pub(super) fields: Vec<Field>,
    /// Position in `fields` of each name in JSON; fields of embedded structs are not among them.
    pub(super) by_name: HashMap<&'static str, usize>,
    /// Whether server-side apply owns values as a whole.
    pub(super) atomic: bool,
}

/// A field of a struct type.
#[derive(Debug, Deserialize)]
pub(super) struct Field {
    /// The name in JSON; empty if the struct is embedded and its fields stand beside this one.
    #[serde(rename = "n", default)]
    pub(super) name: &'static str,
    /// The number on the wire; zero if the field is only in JSON.
    #[serde(rename = "p", default)]
    pub(super) number: u32,
    /// The type.
    #[serde(rename = "t")]
    pub(super) shape: Shape,
    /// Which values are left out of JSON.
    #[serde(rename = "o", default)]
    pub(super) omit: Omit,
    /// The name of the Go type, where that is not the one of `shape`.
    #[serde(rename = "g", default)]
    pub(super) go: Option<&'static str>,
    /// How strategic merge patch treats a list.
    #[serde(rename = "m", default)]
    pub(super) merge: Option<&'static str>,
    /// Whether a strategic merge patch may carry `$retainKeys`.
    #[serde(rename = "k", default)]
    pub(super) retain_keys: bool,
    /// How server-side apply identifies the items of a list: the names of the keys, none for a set of scalars.
    #[serde(rename = "l", default)]
    pub(super) list: Option<Vec<&'static str>>,
    /// Whether server-side apply owns the value as a whole.
    #[serde(rename = "a", default)]
    pub(super) atomic: bool,
    /// The default in the schema, which server-side apply needs for the keys of list items.
    #[serde(rename = "d", default)]
    pub(super) default: Option<Value>,
    /// The value that the server sets where the field is missing.
    #[serde(rename = "s", default)]
    pub(super) server_default: Option<Value>,
    /// Whether the schema requires the field.
    #[serde(rename = "r", default)]
    pub(super) required: bool,
}

/// Which values JSON leaves out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Omit {
    /// None: a zero value is written.
    #[default]
    Never,
    /// Empty values, as Go's `omitempty` defines them: structs are always written.
    Empty,
    /// Zero values, structs included.
    Zero,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// A string.
    String,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A whole number of 8 bits without sign.
    Uint8,
    /// A number.
    Float,
    /// True or false.
    Bool,
    /// Bytes, in JSON as base64.
    Bytes,
    /// A time in seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// A number with a unit, such as `500m`.
    Quantity,
    /// A whole number or a string.
    IntOrString,
    /// An object of any kind.
    RawExtension,
    /// Any value.
    Json,
    /// The set of fields that a manager owns.
    Fields,
    /// A list of strings that the wire wraps into a message.
    Strings,
    /// `JSONSchemaPropsOrBool` and its relatives: a schema, or another value in its place.
    SchemaOr(SchemaOr),
    /// A struct.
    Struct(&'static str),
    /// A pointer: its absence differs from a zero value.
    Pointer(&'static Shape),
    /// A list.
    List(&'static Shape),
    /// A map from strings.
    Map(&'static Shape),
}

/// The value that may stand in the place of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SchemaOr {
    /// A list of schemas.
    Array,
    /// True or false.
    Bool,
    /// A list of strings.
    Strings,
}

impl Shape {
    /// Reads the Go-like notation of the table, such as `[]core/v1.Container`.
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

/// The line of a type.
#[derive(Deserialize)]
struct TypeLine {
    #[serde(rename = "type")]
    name: &'static str,
    #[serde(rename = "a", default)]
    atomic: bool,
    fields: Vec<Field>,
}

/// Returns the struct type of this name, if the table has it.
pub fn find_type(name: &str) -> Option<&'static Type> {
    static TYPES: LazyLock<HashMap<&'static str, (&'static str, OnceLock<Type>)>> = LazyLock::new(|| {
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
