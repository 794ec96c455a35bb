//! Deserializes a file: once into a tree of all written keys, and once per section into the section's type.
//!
//! Each pass parses the whole text, so an error has the line and column of the file. Of each section only the
//! first value of a wrong type is reported; all values of the right type are checked later.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::{Value as Json, json};
use serde_path_to_error::{Path, Segment, Track};
use serde_saphyr::options::{MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error, Location, Options, Spanned};

use super::check::expected;
use super::messages::{child, did_you_mean, hint, one_line, one_of, shown};
use super::{Position, Problem};

/// How deep mappings and lists of a YAML document may nest; the runtime's own sections need six levels.
const MAX_DEPTH: usize = 32;
/// How many nodes a YAML document may have, aliases expanded; ten thousand controllers need about 100,000.
const MAX_NODES: usize = 250_000;
/// How many nodes aliases may add to a YAML document; enough to share a block of settings among many
/// controllers.
const MAX_ALIASED: usize = 50_000;

/// A parsed YAML configuration file, with its text and the problems found.
#[derive(Debug, Default)]
pub(super) struct Document<'t> {
    text: &'t str,
    /// All keys and values of the document, as they are written.
    pub(super) tree: Json,
    /// The problems found in the document so far: unknown keys and values of a wrong type.
    pub(super) problems: Vec<Problem>,
}

// === impl Document ===

impl<'t> Document<'t> {
    /// Parses a text as YAML; its root must be a mapping or empty.
    pub(super) fn parse(text: &'t str) -> Result<Self, Problem> {
        match read(text, PhantomData::<Json>) {
            Ok(tree @ (Json::Object(_) | Json::Null)) => Ok(Self { text, tree, problems: Vec::new() }),
            Ok(other) => {
                let problem = Problem::new("", &other, "a mapping");
                Err(Problem { position: Some(Position { line: 1, column: 1 }), ..problem })
            }
            Err(failed) => Err(refusal(&failed.0, &failed.1, None, &Json::Null)),
        }
    }

    /// Records a problem for the first unknown key at the root of the document, and for wrong or missing
    /// values of `apiVersion` and `kind`, which are the `constants`.
    pub(super) fn check_keys(&mut self, constants: [(&str, &str); 2], sections: &[&str]) {
        let mut found = Vec::new();
        for (name, value) in constants {
            match self.tree.get(name) {
                None => found.push((name, format!("is missing; expected {name}: {value}"))),
                Some(found) if found == value => {}
                Some(other) => found.push((name, format!("{}; expected {value}", shown(other)))),
            }
        }
        let known: Vec<&str> =
            constants.iter().map(|(name, _)| *name).chain(sections.iter().copied()).collect();
        let mut written = self.tree.as_object().into_iter().flatten();
        if let Some((name, value)) = written.find(|(name, _)| !known.contains(&name.as_str())) {
            let near = did_you_mean(name, &known);
            found.push((name, format!("unknown key, set to {}; {near}", shown(value))));
        }
        let problem = |(name, message)| {
            let position = self.position(name);
            Problem { position, ..Problem::message(child("", name), message) }
        };
        self.problems = found.into_iter().map(problem).collect();
    }

    /// Deserializes the section `name` of the document, and records the first value of a wrong type as a
    /// problem. An absent section, null, or a section with such a value is the default.
    pub(super) fn section<T: DeserializeOwned + Default>(&mut self, name: &str, schema: &Json) -> T {
        if self.tree.get(name).is_none_or(Json::is_null) {
            return T::default();
        }
        match read(self.text, RootKey::<T>(name, PhantomData)) {
            Ok(found) => found.unwrap_or_default(),
            Err(failed) => {
                let schema = json!({"properties": {name: schema}});
                self.problems.push(refusal(&failed.0, &failed.1, Some(&self.tree), &schema));
                T::default()
            }
        }
    }

    /// Returns the position of the value of a key at the root of the document.
    fn position(&self, name: &str) -> Option<Position> {
        let found = read(self.text, RootKey::<Spanned<IgnoredAny>>(name, PhantomData));
        position(found.ok()??.referenced)
    }
}

/// Deserializes the value of one key at the root of a document, and skips all other keys.
struct RootKey<'n, T>(&'n str, PhantomData<T>);

impl<'de, T: serde::Deserialize<'de>> DeserializeSeed<'de> for RootKey<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: serde::Deserialize<'de>> Visitor<'de> for RootKey<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a mapping")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut keys: A) -> Result<Option<T>, A::Error> {
        let mut found = None;
        while let Some(key) = keys.next_key::<String>()? {
            if key == self.0 {
                found = Some(keys.next_value()?);
            } else {
                keys.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }
}

fn options() -> Options {
    serde_saphyr::options! {
        merge_keys: MergeKeyPolicy::AsOrdinary,
        strict_booleans: true,
        // A number, a boolean or null is never converted to text.
        no_schema: true,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, max_nodes: MAX_NODES },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIASED },
    }
}

/// Deserializes a YAML text. An error comes with the path of the value at which it occurred.
fn read<'t, S: DeserializeSeed<'t>>(text: &'t str, seed: S) -> Result<S::Value, Box<(Error, Path)>> {
    let mut track = Track::new();
    let read = serde_saphyr::with_deserializer_from_str_with_options(text, options(), |yaml| {
        seed.deserialize(serde_path_to_error::Deserializer::new(yaml, &mut track))
    });
    read.map_err(|error| Box::new((error, track.path())))
}

/// Converts a parser's error into a problem. `tree` is the document, `None` if it could not be parsed;
/// `schema` describes it.
fn refusal(error: &Error, path: &Path, tree: Option<&Json>, schema: &Json) -> Problem {
    let position = error.location().and_then(position);
    let (mut at, mut value, mut schema) = (String::new(), tree, schema);
    let mut in_key = false;
    for segment in path {
        match segment {
            Segment::Map { key } => {
                at = child(&at, key);
                value = value.and_then(|value| value.get(key));
                schema = match &schema["properties"][key] {
                    Json::Null => &schema["additionalProperties"],
                    known => known,
                };
            }
            Segment::Seq { index } => {
                at = format!("{at}[{index}]");
                value = value.and_then(|value| value.get(index));
                schema = &schema["items"];
            }
            Segment::Enum { .. } => {}
            Segment::Unknown => in_key = true,
        }
    }
    let found = shown(value.unwrap_or(&Json::Null));
    let message = match innermost(error) {
        Error::DuplicateMappingKey { key, .. } => {
            at = child(&at, key.as_deref().unwrap_or_default());
            "written twice; expected one value".to_owned()
        }
        Error::MultipleDocuments { .. } => "another document begins here; expected one".to_owned(),
        Error::QuotingRequired { .. } | Error::Unexpected { .. } if in_key => {
            "a key that is not text; expected a name".to_owned()
        }
        other if tree.is_none() => format!("not YAML: {}", plain(other)),
        Error::SerdeUnknownField { field, expected, .. } => {
            format!("unknown key, set to {found}; {}", did_you_mean(field, expected))
        }
        Error::SerdeMissingField { field, .. } => format!("has no {field}"),
        Error::SerdeUnknownVariant { variant, expected, .. } => {
            format!("{found}; expected {}{}", one_of(expected), hint(variant, expected))
        }
        // From `Deserialize` implementations, such as `from_text`.
        Error::Message { msg, .. } => format!("{found}; {}", one_line(msg)),
        other => match expected(schema) {
            Some(expected) => format!("{found}; expected {expected}"),
            None => format!("{found}; {}", plain(other)),
        },
    };
    Problem { position, ..Problem::message(at, message) }
}

/// Returns the error that occurred inside an alias if this is an error of an alias, else the error itself.
fn innermost(error: &Error) -> &Error {
    match error.without_snippet() {
        Error::AliasError { error, .. } => innermost(error),
        error => error,
    }
}

/// Returns the text of a parser's error without its position.
fn plain(error: &Error) -> String {
    let text = one_line(&error.to_string());
    text.split(" at line ").next().unwrap_or_default().to_owned()
}

fn position(location: Location) -> Option<Position> {
    let position = Position { line: location.line(), column: location.column() };
    (position.line > 0).then_some(position)
}
