//! Values that the file spells as text: durations, sizes and other types with a parser of their own.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize as _, Deserializer, Error as _};
use serde_json::Value as Json;

/// Deserializes a value from a text by its `FromStr`; the error of that names the expected form, such as `a
/// port from 1 to 65535`.
///
/// A number, a boolean or null is never converted to text. Use it as
/// `#[serde(deserialize_with = "mainstay::config::from_text")]`.
pub fn from_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    let value = Json::deserialize(deserializer)?;
    // The parser may have a hint for a scalar that is not text, such as a missing unit.
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    match text.parse() {
        Ok(_) if !value.is_string() => Err(D::Error::custom("expected text, in quotes")),
        parsed => parsed.map_err(|expected| D::Error::custom(format!("expected {expected}"))),
    }
}

/// Implements `Deserialize` by `FromStr` as [`from_text`] does, `Serialize` by `Display`, and `JsonSchema` by
/// a pattern that every accepted text matches. The caller's crate needs serde and schemars.
///
/// [`from_text`]: crate::config::from_text
#[doc(hidden)]
#[macro_export]
macro_rules! as_text {
    ($type:ty, $pattern:expr) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::config::from_text(deserializer)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl schemars::JsonSchema for $type {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({"type": "string", "pattern": $pattern})
            }
        }
    };
}

#[doc(inline)]
pub use as_text;
