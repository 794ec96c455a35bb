//! Decodes objects that clients send as protobuf, guided by the table of types.
//!
//! The result is the JSON of the same object, before [`convert`](super::typed::convert) removes empty fields.

use serde_json::{Map, Number, Value};

use super::typed::{base64_text, embedded, format_micros, format_seconds};
use super::types::{SchemaOr, Shape, Type, find_type};

mod wire;

use wire::{Payload, Reader};

/// The bytes in front of every enveloped object.
pub const MAGIC: &[u8] = b"k8s\0";

/// The deepest nesting of messages; deeper messages are refused.
const MAX_DEPTH: usize = 128;

/// The reason why bytes are not an object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProtobufError {
    /// The bytes do not begin with [`MAGIC`].
    #[error("the object does not start with the protobuf prefix k8s")]
    Prefix,
    /// The envelope names a kind that is not in the table.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    Unknown {
        /// The API version in the envelope.
        api_version: String,
        /// The kind in the envelope.
        kind: String,
    },
    /// The bytes break the rules of protobuf.
    #[error("proto: {0}")]
    Malformed(&'static str),
}

/// Decodes an enveloped object; `apiVersion` and `kind` of the envelope become fields of the result.
///
/// # Errors
///
/// Returns an error if the envelope or the object is malformed, or if its kind is unknown.
pub fn decode(bytes: &[u8]) -> Result<Value, ProtobufError> {
    let body = bytes.strip_prefix(MAGIC).ok_or(ProtobufError::Prefix)?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    let mut envelope = Reader::new(body);
    while let Some((number, payload)) = envelope.field()? {
        match number {
            1 => {
                let mut meta = Reader::new(payload.bytes()?);
                while let Some((number, payload)) = meta.field()? {
                    match number {
                        1 => api_version = payload.text()?,
                        2 => kind = payload.text()?,
                        _ => {}
                    }
                }
            }
            2 => raw = payload.bytes()?,
            _ => {}
        }
    }
    let Some(of) = registered(&api_version, &kind) else {
        return Err(ProtobufError::Unknown { api_version, kind });
    };
    let mut object = Map::new();
    message(of, raw, &mut object, 0)?;
    object.insert("apiVersion".to_owned(), api_version.into());
    object.insert("kind".to_owned(), kind.into());
    Ok(Value::Object(object))
}

/// Returns the type of a kind, including kinds that occur only in subresources and request bodies.
pub fn registered(api_version: &str, kind: &str) -> Option<&'static Type> {
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let group = group.split('.').next().unwrap_or_default();
    find_type(&format!("{group}/{version}.{kind}")).or_else(|| {
        let everywhere = ["DeleteOptions", "CreateOptions", "UpdateOptions", "PatchOptions", "Status"];
        everywhere.contains(&kind).then(|| find_type(&format!("meta/v1.{kind}"))).flatten()
    })
}

fn message(
    of: &'static Type,
    bytes: &[u8],
    into: &mut Map<String, Value>,
    depth: usize,
) -> Result<(), ProtobufError> {
    if depth > MAX_DEPTH {
        return Err(ProtobufError::Malformed("message is too deep"));
    }
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        let Some(field) = of.fields.iter().find(|field| field.number == number) else { continue };
        if field.name.is_empty() {
            if let Some(part) = embedded(field.shape) {
                message(part, payload.bytes()?, into, depth + 1)?;
            }
            continue;
        }
        let before = into.remove(field.name);
        let value = value(field.shape, payload, before, depth + 1)?;
        into.insert(field.name.to_owned(), value);
    }
    Ok(())
}

/// Decodes one occurrence of a field; `before` is the value of earlier occurrences.
fn value(
    shape: Shape,
    payload: Payload<'_>,
    before: Option<Value>,
    depth: usize,
) -> Result<Value, ProtobufError> {
    Ok(match shape {
        Shape::Pointer(target) => value(*target, payload, before, depth)?,
        Shape::String => payload.text()?.into(),
        Shape::Int32 | Shape::Int64 | Shape::Uint8 => payload.whole()?.into(),
        Shape::Bool => (payload.whole()? != 0).into(),
        Shape::Float => Number::from_f64(payload.float()?).map_or(Value::Null, Value::Number),
        Shape::Bytes => base64_text(payload.bytes()?).into(),
        Shape::List(items) => {
            let mut list = match before {
                Some(Value::Array(list)) => list,
                _ => Vec::new(),
            };
            match (items, payload) {
                // Several numbers may be packed into one field.
                (Shape::Int32 | Shape::Int64, Payload::Bytes(packed)) => {
                    let mut reader = Reader::new(packed);
                    while !reader.is_empty() {
                        list.push(Payload::Varint(reader.varint()?).whole()?.into());
                    }
                }
                _ => list.push(value(*items, payload, None, depth)?),
            }
            Value::Array(list)
        }
        Shape::Map(values) => {
            let mut map = match before {
                Some(Value::Object(map)) => map,
                _ => Map::new(),
            };
            let mut key = String::new();
            let mut entry = None;
            let mut reader = Reader::new(payload.bytes()?);
            while let Some((number, payload)) = reader.field()? {
                match number {
                    1 => key = payload.text()?,
                    2 => entry = Some(value(*values, payload, entry.take(), depth)?),
                    _ => {}
                }
            }
            map.insert(key, entry.unwrap_or_else(|| super::typed::zero(*values)));
            Value::Object(map)
        }
        Shape::Struct(name) => {
            let mut map = match before {
                Some(Value::Object(map)) => map,
                _ => Map::new(),
            };
            if let Some(of) = find_type(name) {
                message(of, payload.bytes()?, &mut map, depth)?;
            }
            Value::Object(map)
        }
        Shape::Time | Shape::MicroTime => time(shape, payload.bytes()?)?,
        Shape::Quantity => {
            let text = single(payload.bytes()?)?.map_or(Ok(String::new()), Payload::text)?;
            Value::String(if text.is_empty() { "0".to_owned() } else { text })
        }
        Shape::IntOrString => {
            let (mut is_text, mut number, mut text) = (false, 0, String::new());
            let mut reader = Reader::new(payload.bytes()?);
            while let Some((field, payload)) = reader.field()? {
                match field {
                    1 => is_text = payload.whole()? == 1,
                    2 => number = payload.whole()?,
                    3 => text = payload.text()?,
                    _ => {}
                }
            }
            if is_text { text.into() } else { number.into() }
        }
        Shape::RawExtension | Shape::Json | Shape::Fields => match single(payload.bytes()?)? {
            Some(raw) if !raw.bytes()?.is_empty() => serde_json::from_slice(raw.bytes()?)
                .map_err(|_| ProtobufError::Malformed("a raw value is not JSON"))?,
            _ => Value::Null,
        },
        Shape::Strings => {
            let mut list = Vec::new();
            let mut reader = Reader::new(payload.bytes()?);
            while let Some((number, payload)) = reader.field()? {
                if number == 1 {
                    list.push(payload.text()?.into());
                }
            }
            Value::Array(list)
        }
        Shape::SchemaOr(other) => schema_or(other, payload.bytes()?, depth)?,
    })
}

/// Decodes `JSONSchemaPropsOrBool` and the similar types: a schema, or another value in its place.
fn schema_or(other: SchemaOr, bytes: &[u8], depth: usize) -> Result<Value, ProtobufError> {
    const SCHEMA: Shape = Shape::Struct("apiextensions/v1.JSONSchemaProps");
    let (mut schema, mut instead) = (None, Value::Null);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match (other, number) {
            (SchemaOr::Bool, 1) => instead = (payload.whole()? != 0).into(),
            (SchemaOr::Bool, 2) | (_, 1) => schema = Some(value(SCHEMA, payload, schema.take(), depth)?),
            (SchemaOr::Array, 2) => instead = value(Shape::List(&SCHEMA), payload, Some(instead), depth)?,
            (SchemaOr::Strings, 2) => {
                instead = value(Shape::List(&Shape::String), payload, Some(instead), depth)?;
            }
            _ => {}
        }
    }
    Ok(schema.unwrap_or(instead))
}

/// Returns field 1 of a message that has no other field; `None` if it is missing.
fn single(bytes: &[u8]) -> Result<Option<Payload<'_>>, ProtobufError> {
    let mut found = None;
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        if number == 1 {
            found = Some(payload);
        }
    }
    Ok(found)
}

fn time(shape: Shape, bytes: &[u8]) -> Result<Value, ProtobufError> {
    if bytes.is_empty() {
        return Ok(Value::Null);
    }
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(bytes);
    while let Some((number, payload)) = reader.field()? {
        match number {
            1 => seconds = payload.whole()?,
            2 => nanos = payload.whole()?,
            _ => {}
        }
    }
    let time = i32::try_from(nanos)
        .ok()
        .and_then(|nanos| jiff::Timestamp::new(seconds, nanos).ok())
        .ok_or(ProtobufError::Malformed("time out of range"))?;
    Ok(if shape == Shape::Time { format_seconds(time) } else { format_micros(time) }.into())
}
