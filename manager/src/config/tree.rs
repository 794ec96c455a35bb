//! A YAML document as a tree whose every node knows its line and column.
//!
//! Reading into typed structures would stop at the first wrong value. The tree takes any document, and the
//! readers that walk it can report everything that is wrong at once, each with its place in the file.
//!
//! # Invariants
//! 1. Every key of a mapping is kept, in order, duplicates included: the reader refuses those by name.
//! 2. Nothing is interpreted beyond YAML 1.2's own scalars: `yes` is text, `<<` is an ordinary key.
//! 3. Nesting, aliases and size are bounded, so a hostile document fails to parse instead of using up the process.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};

/// How deep a document may nest; ours need six levels.
const MAX_DEPTH: usize = 32;
/// How many nodes a document may have, aliases followed; ten thousand controllers need about 100,000.
const MAX_NODES: usize = 250_000;
/// How many nodes aliases may add; enough to share a block of settings among many controllers.
const MAX_ALIASED: usize = 50_000;

/// A place in a file; both count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line.
    pub line: u64,
    /// The character within the line.
    pub column: u64,
}

/// One value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    /// Where the value is used: for an alias the place of the `*name`, not that of its anchor.
    pub(super) at: Position,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Whole(i128),
    Fraction(f64),
    Text(String),
    List(Vec<Node>),
    /// In the order of the file; a key may occur twice.
    Map(Vec<(Node, Node)>),
}

/// Why a text is not YAML at all.
#[derive(Debug)]
pub(super) struct SyntaxError {
    pub(super) at: Option<Position>,
    /// One line, without the place.
    pub(super) message: String,
}

/// Reads one document. A text without any content is `Null`.
pub(super) fn parse(text: &str) -> Result<Node, SyntaxError> {
    // Last-wins is the one policy under which a map visitor is still given every pair, which is what lets the
    // reader name each duplicate instead of stopping at the first.
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        strict_booleans: true,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH, max_nodes: MAX_NODES },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_ALIASED },
    };
    let mut documents: Vec<Node> =
        serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
            let at = error.location().map(position).filter(|at| at.line > 0);
            SyntaxError { at, message: one_line(&error.without_snippet().to_string()) }
        })?;
    match documents.len() {
        0 => Ok(Node { value: Value::Null, at: Position { line: 1, column: 1 } }),
        1 => Ok(documents.remove(0)),
        n => Err(SyntaxError {
            at: documents.get(1).map(|second| second.at),
            message: format!("holds {n} documents; expected one"),
        }),
    }
}

// === impl Position ===

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

// === impl Value ===

/// Longest text repeated in a message; what is longer is cut.
const SHOWN: usize = 60;

/// Displays on one line, as short as it takes to find the value in the file again.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(value) => write!(f, "{value}"),
            Self::Whole(value) => write!(f, "{value}"),
            Self::Fraction(value) => write!(f, "{value:?}"),
            Self::Text(text) if text.chars().count() > SHOWN => {
                write!(f, "{:?}...", text.chars().take(SHOWN).collect::<String>())
            }
            Self::Text(text) => write!(f, "{text:?}"),
            Self::List(items) if items.is_empty() => f.write_str("[]"),
            Self::List(items) => write!(f, "a list of {}", items.len()),
            Self::Map(entries) if entries.is_empty() => f.write_str("{}"),
            Self::Map(entries) => write!(f, "a mapping of {}", entries.len()),
        }
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_saphyr::Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self { value: spanned.value, at: position(spanned.referenced) })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a scalar, a list or a mapping")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Whole(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Whole(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Fraction(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut map: Vec<(Node, Node)> = Vec::new();
        while let Some(pair) = pairs.next_entry()? {
            map.push(pair);
            if map.len() > MAX_NODES {
                return Err(A::Error::custom("mapping has too many keys"));
            }
        }
        Ok(Value::Map(map))
    }
}

fn position(location: serde_saphyr::Location) -> Position {
    Position { line: location.line(), column: location.column() }
}

/// Keeps a parser's message to one line, because each problem is one line of output.
fn one_line(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ")
}
