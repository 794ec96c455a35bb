//! Searches an object for the value that a path selects.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Filter, JsonPath, Step};

/// A value that is neither an object nor a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scalar {
    /// The text of a string; a number or a boolean as in the JSON.
    pub text: String,
    /// `observedGeneration` of the innermost object on the path that has this field.
    pub observed_generation: Option<i64>,
}

/// The selected values are not one scalar. Displays the values that were found instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotOneValue {
    /// Several values.
    #[error("several values; expected one")]
    Several,
    /// An object.
    #[error("an object; expected a string, a number or a boolean")]
    Object,
    /// A list.
    #[error("a list; expected a string, a number or a boolean")]
    List,
}

/// One search.
#[derive(Default)]
pub(super) struct Search<'a> {
    found: Option<(&'a RawValue, Option<i64>)>,
    has_several: bool,
    /// Bytes of JSON that were read; a text read twice counts twice.
    pub(super) bytes_read: usize,
}

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
                if let Some((value, own)) = self.field(json, name) {
                    self.walk(value, own.or(observed), rest);
                }
            }
            Step::Index(index) => {
                let elements = self.elements(json);
                let from_end = || elements.len().checked_sub(usize::try_from(index.unsigned_abs()).ok()?);
                let at = usize::try_from(*index).ok().or_else(from_end);
                if let Some(element) = at.and_then(|at| elements.get(at)) {
                    self.walk(element, observed, rest);
                }
            }
            Step::Filter(filter) => {
                for element in self.elements(json) {
                    if !self.has_several && self.matches(element, filter) {
                        self.walk(element, observed, rest);
                    }
                }
            }
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

    /// Returns a field of an object, and the `observedGeneration` of the object.
    fn field(&mut self, json: &'a RawValue, name: &str) -> Option<(&'a RawValue, Option<i64>)> {
        let fields: HashMap<String, &RawValue> = self.read(json);
        let observed = fields.get("observedGeneration").and_then(|value| value.get().parse().ok());
        Some((*fields.get(name)?, observed))
    }

    fn elements(&mut self, json: &'a RawValue) -> Vec<&'a RawValue> {
        self.read(json)
    }

    /// Reads the fields of an object or the elements of a list; any other value has none.
    fn read<T: Deserialize<'a> + Default>(&mut self, json: &'a RawValue) -> T {
        self.bytes_read += json.get().len();
        serde_json::from_str(json.get()).unwrap_or_default()
    }

    fn matches(&mut self, element: &'a RawValue, filter: &Filter) -> bool {
        let mut fields = filter.fields.iter();
        let value = fields.try_fold(element, |value, name| Some(self.field(value, name)?.0));
        let scalar = value.filter(|value| !value.get().starts_with(['{', '[']));
        scalar.is_some_and(|scalar| {
            serde_json::from_str(scalar.get()).is_ok_and(|value: Value| value == filter.literal)
        })
    }
}
