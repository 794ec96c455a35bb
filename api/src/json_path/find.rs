//! Searches an object for the value that a path selects.

use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Filter, JsonPath, Step};

/// A string, number or boolean that a JSON path selects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The value as text: a string without quotes; a number or a boolean as in the JSON.
    pub text: String,
    /// `observedGeneration` of the innermost object on the JSON path that has this field; `None` if none has
    /// it.
    pub observed_generation: Option<i64>,
}

/// Error of a search with a JSON path: it selects something else than one scalar value. Displays the values
/// that were found instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOneValue {
    /// The path selects several values.
    #[error("several values; expected one")]
    Several,
    /// The path selects an object.
    #[error("an object; expected a string, a number or a boolean")]
    Object,
    /// The path selects a list.
    #[error("a list; expected a string, a number or a boolean")]
    List,
}

/// One search of a JSON path in an object, with the value found so far.
#[derive(Default)]
pub(super) struct Search<'a> {
    found: Option<(&'a RawValue, Option<i64>)>,
    has_several: bool,
    /// Number of bytes of JSON that the search has read; a text read twice counts twice.
    pub(super) bytes_read: usize,
}

/// Serde visitor that reads the field of this name, and the field `observedGeneration`, of a JSON object.
struct FieldVisitor<'n>(&'n str);

#[derive(Default)]
struct Field<'a> {
    value: Option<&'a RawValue>,
    observed_generation: Option<i64>,
}

/// Serde visitor that calls a function with each element of a JSON list.
struct ElementVisitor<F>(F);

// === impl JsonPath ===

impl JsonPath {
    /// Returns the value that the path selects in an object, which is given as JSON; `None` if a field is
    /// absent, an index is outside its list, or the value is null.
    ///
    /// # Errors
    /// Fails if the path selects several values, an object or a list.
    pub fn find(&self, object: &[u8]) -> Result<Option<Scalar>, NotOneValue> {
        self.search(object).result()
    }

    pub(super) fn search<'a>(&self, object: &'a [u8]) -> Search<'a> {
        let mut search = Search::default();
        if let Ok(object) = serde_json::from_slice(object) {
            search.walk(object, None, &self.steps);
        }
        search
    }
}

// === impl Search ===

impl<'a> Search<'a> {
    fn walk(&mut self, json: &'a RawValue, observed: Option<i64>, steps: &[Step]) {
        let Some((step, rest)) = steps.split_first() else { return self.add(json, observed) };
        match step {
            Step::Field(name) => {
                let field = self.field(json, name);
                if let Some(value) = field.value {
                    self.walk(value, field.observed_generation.or(observed), rest);
                }
            }
            Step::Index(index) => {
                let mut length = 0;
                if *index < 0 {
                    self.each(json, |_, _| length += 1);
                }
                // Negative if the index is before the start of the list.
                let mut left = index.saturating_add(length);
                let mut found = None;
                self.each(json, |_, element| {
                    found = found.or((left == 0).then_some(element));
                    left -= 1;
                });
                if let Some(element) = found {
                    self.walk(element, observed, rest);
                }
            }
            Step::Filter(filter) => self.each(json, |search, element| {
                if !search.has_several && search.matches(element, filter) {
                    search.walk(element, observed, rest);
                }
            }),
        }
    }

    fn add(&mut self, json: &'a RawValue, observed: Option<i64>) {
        if json.get() != "null" {
            self.has_several = self.found.replace((json, observed)).is_some();
        }
    }

    fn result(self) -> Result<Option<Scalar>, NotOneValue> {
        let Some((json, observed_generation)) = self.found else { return Ok(None) };
        match json.get().as_bytes().first() {
            _ if self.has_several => Err(NotOneValue::Several),
            Some(b'{') => Err(NotOneValue::Object),
            Some(b'[') => Err(NotOneValue::List),
            Some(b'"') => {
                let text = serde_json::from_str(json.get()).ok();
                Ok(text.map(|text| Scalar { text, observed_generation }))
            }
            _ => Ok(Some(Scalar { text: json.get().to_owned(), observed_generation })),
        }
    }

    fn field(&mut self, json: &'a RawValue, name: &str) -> Field<'a> {
        self.bytes_read += json.get().len();
        let read = serde_json::Deserializer::from_str(json.get()).deserialize_map(FieldVisitor(name));
        read.unwrap_or_default()
    }

    fn each(&mut self, json: &'a RawValue, mut visit: impl FnMut(&mut Self, &'a RawValue)) {
        self.bytes_read += json.get().len();
        let visitor = ElementVisitor(|element| visit(self, element));
        // A value that is not a list has no elements.
        let _is_list = serde_json::Deserializer::from_str(json.get()).deserialize_seq(visitor).is_ok();
    }

    fn matches(&mut self, element: &'a RawValue, filter: &Filter) -> bool {
        let mut value = element;
        for name in &filter.fields {
            let Some(next) = self.field(value, name).value else { return false };
            value = next;
        }
        let is_scalar = !value.get().starts_with(['{', '[']);
        is_scalar && serde_json::from_str::<Value>(value.get()).is_ok_and(|value| value == filter.literal)
    }
}

// === impl FieldVisitor ===

impl<'de> Visitor<'de> for FieldVisitor<'_> {
    type Value = Field<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut field = Field::default();
        while let Some(key) = map.next_key::<String>()? {
            let is_generation = key == "observedGeneration";
            if key != self.0 && !is_generation {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let value: &RawValue = map.next_value()?;
            if key == self.0 {
                field.value = Some(value);
            }
            if is_generation {
                field.observed_generation = value.get().parse().ok();
            }
        }
        Ok(field)
    }
}

// === impl ElementVisitor ===

impl<'de, F: FnMut(&'de RawValue)> Visitor<'de> for ElementVisitor<F> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut elements: A) -> Result<(), A::Error> {
        while let Some(element) = elements.next_element()? {
            (self.0)(element);
        }
        Ok(())
    }
}
