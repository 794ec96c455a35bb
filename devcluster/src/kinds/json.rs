//! Parses JSON and reports duplicate fields, which [`serde_json::Value`] alone would hide.

use std::fmt;

use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// A parsed value, and its duplicate fields.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The value. Of duplicate fields, it has the last one.
    pub value: Value,
    /// The paths of duplicate fields, such as `spec.containers[0].name`.
    pub duplicates: Vec<String>,
}

/// Parses one JSON value.
///
/// # Errors
///
/// Returns an error if the text is not JSON, or is nested deeper than 128 levels.
pub fn parse(text: &[u8]) -> Result<Parsed, serde_json::Error> {
    let mut duplicates = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let place = Place { path: &mut String::new(), duplicates: &mut duplicates };
    let value = place.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(Parsed { value, duplicates })
}

/// The path of the next value, and the duplicate fields found so far.
struct Place<'a> {
    path: &'a mut String,
    duplicates: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Place<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Place<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        let length = self.path.len();
        loop {
            *self.path = format!("{}[{}]", self.path, list.len());
            let place = Place { path: self.path, duplicates: self.duplicates };
            let item = items.next_element_seed(place)?;
            self.path.truncate(length);
            match item {
                Some(item) => list.push(item),
                None => return Ok(Value::Array(list)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        let length = self.path.len();
        while let Some(key) = entries.next_key::<String>()? {
            if length > 0 {
                self.path.push('.');
            }
            self.path.push_str(&key);
            if map.contains_key(&key) {
                self.duplicates.push(self.path.clone());
            }
            let value = entries.next_value_seed(Place { path: self.path, duplicates: self.duplicates })?;
            self.path.truncate(length);
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duplicates_are_reported_with_their_path() {
        let parsed = parse(br#"{"a":[{"b":1,"b":{"c":1,"c":2.5}}],"d":null,"d":-1}"#).unwrap();
        assert_eq!(parsed.value, serde_json::json!({"a": [{"b": {"c": 2.5}}], "d": -1}));
        assert_eq!(parsed.duplicates, ["a[0].b", "a[0].b.c", "d"]);
    }

    #[test]
    fn malformed_and_deeply_nested_json_is_refused() {
        assert!(parse(b"{} x").is_err());
        assert!(parse("[".repeat(200).as_bytes()).is_err());
    }
}
