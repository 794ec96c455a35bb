//! Values that the file spells as text: times, sizes and other types with a parser of their own.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{Deserializer, Error, Visitor};

/// Reads a value from text by its parser, whose error names the expected form, such as `a port from 1 to 65535`.
///
/// A number, a boolean or null is never converted to text. Use it as
/// `#[serde(deserialize_with = "mainstay::config::from_text")]`.
pub fn from_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    struct Text<T>(PhantomData<T>);

    /// Words the refusal of a scalar that is not text. A parser may have a hint for it, such as a missing unit.
    fn refuse<T: FromStr<Err: fmt::Display>, E: Error>(scalar: &dyn fmt::Display) -> E {
        match scalar.to_string().parse::<T>() {
            Ok(_) => E::custom("expected text, in quotes"),
            Err(expected) => E::custom(format!("expected {expected}")),
        }
    }

    impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for Text<T> {
        type Value = T;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text")
        }

        fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
            text.parse().map_err(|expected| E::custom(format!("expected {expected}")))
        }

        fn visit_u64<E: Error>(self, number: u64) -> Result<T, E> {
            Err(refuse::<T, E>(&number))
        }

        fn visit_i64<E: Error>(self, number: i64) -> Result<T, E> {
            Err(refuse::<T, E>(&number))
        }

        fn visit_f64<E: Error>(self, number: f64) -> Result<T, E> {
            Err(refuse::<T, E>(&number))
        }

        fn visit_bool<E: Error>(self, value: bool) -> Result<T, E> {
            Err(refuse::<T, E>(&value))
        }

        fn visit_unit<E: Error>(self) -> Result<T, E> {
            Err(refuse::<T, E>(&"null"))
        }
    }

    deserializer.deserialize_any(Text(PhantomData))
}

/// Has a type read from text by its `FromStr`, written by its `Display`, and described by a pattern that every
/// accepted text matches.
macro_rules! as_text {
    ($type:ty, $pattern:expr) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::config::from_text(deserializer)
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

pub(super) use as_text;
