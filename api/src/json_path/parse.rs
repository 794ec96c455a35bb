//! Parses the text of a path into steps.

use std::str::FromStr;

use serde_json::Value;

use super::{Filter, JsonPath, MAX_CHARACTERS, MAX_STEPS, Step};

/// Reserved characters that can be part of a field name in a JSON path after a backslash.
const ESCAPABLE: &str = ".$@*";
/// Characters that cannot be part of a field name in a JSON path; those in [`ESCAPABLE`] can after a
/// backslash.
const RESERVED: &str = "\\.,[]{}()$@*?'\"=!<>";

const SEVERAL: &str = "selects several values; expected one field, index or filter";
const NAME: &str =
    "expected the name of a field; . $ @ and * inside a name need a backslash, also between quotes";
const BRACKET: &str = "expected an index such as [0] or [-1], a key such as ['name'] in single quotes, or a \
                       filter such as [?(@.type==\"Ready\")]";
const FILTER: &str =
    "expected one comparison such as @.type==\"Ready\": fields, ==, and a string, number or boolean";

/// Error of a text that is not a JSON path to one value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("character {position}: {problem}")]
pub struct InvalidPath {
    /// Position of the first invalid character of the text, counted from 1; one past the end if the text ends
    /// too early.
    pub position: usize,
    /// The text expected at the position, or the problem of the text found there.
    pub problem: &'static str,
}

struct Parser<'a> {
    text: &'a str,
    /// The rest of the text, which is not parsed yet.
    rest: &'a str,
}

// === impl JsonPath ===

impl FromStr for JsonPath {
    type Err = InvalidPath;

    fn from_str(text: &str) -> Result<Self, InvalidPath> {
        let mut parser = Parser { text, rest: text };
        if let Some((end, _)) = text.char_indices().nth(MAX_CHARACTERS) {
            parser.rest = text.get(end..).unwrap_or_default();
            return parser.refuse("expected at most 256 characters");
        }
        Ok(Self { text: text.to_owned(), steps: parser.path()? })
    }
}

// === impl Parser ===

impl<'a> Parser<'a> {
    fn path(&mut self) -> Result<Vec<Step>, InvalidPath> {
        let braces = self.eat("{");
        self.eat(".");
        let mut steps = vec![Step::Field(self.name()?)];
        let mut count = 1;
        loop {
            let begin = self.rest;
            steps.push(match self.peek() {
                Some('[') => self.bracket()?,
                Some('.') if self.rest.starts_with("..") => return self.refuse(SEVERAL),
                Some('.') if self.eat(".") => Step::Field(self.name()?),
                _ => break,
            });
            count += steps.last().map_or(0, Step::count);
            if count > MAX_STEPS {
                self.rest = begin;
                return self.refuse("expected at most 16 steps, including the fields of filters");
            }
        }
        self.skip_spaces();
        if braces {
            self.expect("}", "expected a dot, a bracket or the closing brace")?;
        }
        match self.peek() {
            None => Ok(steps),
            Some('=') => self.refuse("expected the end: the expected value belongs in the field value"),
            Some(_) => self.refuse("expected a dot, a bracket or the end"),
        }
    }

    fn name(&mut self) -> Result<String, InvalidPath> {
        let mut name = String::new();
        loop {
            name += self.take(|next| !RESERVED.contains(next) && !next.is_whitespace() && !next.is_control());
            let mut next = self.rest.chars();
            match (next.next(), next.next()) {
                (Some('\\'), Some(escaped)) if ESCAPABLE.contains(escaped) => {
                    name.push(escaped);
                    self.rest = next.as_str();
                }
                (Some('*'), _) => return self.refuse(SEVERAL),
                (Some('\\'), _) => return self.refuse(NAME),
                _ if name.is_empty() => return self.refuse(NAME),
                _ => return Ok(name),
            }
        }
    }

    fn bracket(&mut self) -> Result<Step, InvalidPath> {
        if self.eat("[?(") {
            return self.filter();
        }
        if self.eat("['") {
            let name = self.name()?;
            return self.expect("']", NAME).map(|()| Step::Field(name));
        }
        self.eat("[");
        let index = self.take(|next| next == '-' || next.is_ascii_digit()).parse();
        match (self.peek(), index) {
            (Some(']'), Ok(index)) if self.eat("]") => Ok(Step::Index(index)),
            (Some(':' | ',' | '*'), _) => self.refuse(SEVERAL),
            _ => self.refuse(BRACKET),
        }
    }

    fn filter(&mut self) -> Result<Step, InvalidPath> {
        self.skip_spaces();
        let mut fields = Vec::new();
        self.expect("@", FILTER)?;
        while self.eat(".") {
            fields.push(self.name()?);
        }
        self.skip_spaces();
        self.expect("==", FILTER)?;
        self.skip_spaces();
        let literal = self.literal()?;
        self.skip_spaces();
        self.expect(")]", FILTER)?;
        Ok(Step::Filter(Filter { fields, literal }))
    }

    fn literal(&mut self) -> Result<Value, InvalidPath> {
        for quote in ["\"", "'"] {
            if self.eat(quote) {
                let text =
                    self.take(|next| !"\\{}".contains(next) && !quote.contains(next) && !next.is_control());
                let problem = "expected the closing quote; a string has no backslash and no brace inside";
                return if self.eat(quote) { Ok(text.into()) } else { self.refuse(problem) };
            }
        }
        let begin = self.rest;
        let word = self.take(|next| next.is_ascii_alphanumeric() || "-.".contains(next));
        match serde_json::from_str(word) {
            Ok(boolean @ Value::Bool(_)) => Ok(boolean),
            // kubectl has no exponents.
            Ok(number @ Value::Number(_)) if !word.contains(['e', 'E']) => Ok(number),
            _ => {
                self.rest = begin;
                self.refuse(FILTER)
            }
        }
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    fn eat(&mut self, token: &str) -> bool {
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str, problem: &'static str) -> Result<(), InvalidPath> {
        if self.eat(token) { Ok(()) } else { self.refuse(problem) }
    }

    fn take(&mut self, accepts: impl Fn(char) -> bool) -> &'a str {
        let end = self.rest.find(|next| !accepts(next)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches(' ');
    }

    fn refuse<T>(&self, problem: &'static str) -> Result<T, InvalidPath> {
        let position = self.text.chars().count() - self.rest.chars().count() + 1;
        Err(InvalidPath { position, problem })
    }
}
