//! Converts scalars from any accepted JSON to the JSON that Go writes.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use serde_json::{Number, Value};

use super::{described, quantity, time};
use crate::kinds::builtin::types::Shape;

/// Base64 as in Go's standard encoding: padding is required, bits after the last byte may be set.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
);

/// The reason why a value does not fit its type.
pub(super) enum Problem {
    /// The value has another type; the string names it.
    Type(String),
    /// Another problem; the string is the whole message.
    Text(String),
}

/// Converts a value that is not null.
pub(super) fn convert(shape: Shape, value: Value) -> Result<Value, Problem> {
    let mismatch = || Problem::Type(described(&value, false));
    let text = || value.as_str().ok_or_else(mismatch);
    Ok(match shape {
        Shape::String | Shape::IntOrString if value.is_string() => value,
        Shape::String => return Err(mismatch()),
        Shape::Bool => Value::from(value.as_bool().ok_or_else(mismatch)?),
        Shape::Int32 | Shape::IntOrString => whole(&value, i64::from(i32::MIN), i64::from(i32::MAX))?,
        Shape::Uint8 => whole(&value, 0, i64::from(u8::MAX))?,
        Shape::Int64 => whole(&value, i64::MIN, i64::MAX)?,
        Shape::Float => float(value.as_f64().ok_or_else(mismatch)?),
        Shape::Bytes => {
            let bytes = base64_bytes(text()?)
                .map_err(|at| Problem::Text(format!("illegal base64 data at input byte {at}")))?;
            Value::from(base64_text(&bytes))
        }
        Shape::Time => time::seconds(text()?).map_err(Problem::Text)?.into(),
        Shape::MicroTime => time::micros(text()?).map_err(Problem::Text)?.into(),
        Shape::Quantity => {
            let number;
            let text = match &value {
                Value::String(text) => text.trim(),
                Value::Number(n) => {
                    number = n.to_string();
                    number.strip_suffix(".0").unwrap_or(&number)
                }
                _ => return Err(Problem::Text(quantity::FORMAT.to_owned())),
            };
            quantity::canonical(text).map_err(|error| Problem::Text(error.to_owned()))?.into()
        }
        Shape::Strings => match &value {
            Value::Array(items) if items.iter().all(Value::is_string) => value,
            _ => return Err(mismatch()),
        },
        _ => value,
    })
}

fn whole(value: &Value, min: i64, max: i64) -> Result<Value, Problem> {
    let Value::Number(number) = value else { return Err(Problem::Type(described(value, false))) };
    match number.as_i64() {
        Some(whole) if (min..=max).contains(&whole) => Ok(Value::from(whole)),
        _ => Err(Problem::Type(described(value, true))),
    }
}

/// Converts a float. Go writes a whole float without a fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::float_cmp,
    reason = "compared with the exact whole number"
)]
fn float(value: f64) -> Value {
    if value.trunc() == value && value.abs() < 1e15 {
        return Value::from(value as i64);
    }
    Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Decodes base64, ignoring newlines. The error is the position of the first invalid byte.
fn base64_bytes(text: &str) -> Result<Vec<u8>, usize> {
    let joined: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    BASE64.decode(&joined).map_err(|error| match error {
        base64::DecodeError::InvalidByte(at, _) => at,
        _ => joined.len() / 4 * 4,
    })
}

/// Encodes bytes as base64.
pub(in crate::kinds::builtin) fn base64_text(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}
