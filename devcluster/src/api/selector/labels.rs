//! Label selectors such as `app=web,tier in (a,b),!canary`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::kinds::{FieldError, names};

/// A label selector; all requirements must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

/// A condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    /// Empty for `Exists` and `Missing`; one integer for `Greater` and `Less`.
    values: BTreeSet<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    Missing,
    Greater,
    Less,
}

// === impl LabelSelector ===

impl LabelSelector {
    /// Parses a selector in the syntax of queries; the error has the text of kube-apiserver.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parser = Parser { tokens: scan(text), position: 0 };
        let mut requirements = Vec::new();
        loop {
            match parser.peek() {
                Token::End => return Ok(Self(requirements)),
                Token::Word(_) | Token::Symbol("!") => {}
                other => {
                    let found = other.text();
                    return Err(format!("found '{found}', expected: !, identifier, or 'end of string'"));
                }
            }
            let requirement = parser.requirement();
            requirements.push(requirement.map_err(|error| format!("unable to parse requirement: {error}"))?);
            match parser.next() {
                Token::End => return Ok(Self(requirements)),
                Token::Symbol(",") => match parser.peek() {
                    Token::Word(_) | Token::Symbol("!") => {}
                    other => return Err(format!("found '{}', expected: identifier after ','", other.text())),
                },
                other => return Err(format!("found '{}', expected: ',' or 'end of string'", other.text())),
            }
        }
    }

    /// Returns whether every object matches.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether an object with these labels matches; `None` for an object without labels.
    pub fn matches(&self, labels: Option<&Value>) -> bool {
        self.0.iter().all(|requirement| requirement.matches(labels))
    }
}

// === impl Requirement ===

impl Requirement {
    fn matches(&self, labels: Option<&Value>) -> bool {
        let value = labels.and_then(|labels| labels.get(&self.key)).and_then(Value::as_str);
        let number = |text: &str| text.parse::<i64>().ok();
        let bound = || self.values.first().and_then(|text| number(text));
        match self.operator {
            Operator::In => value.is_some_and(|value| self.values.contains(value)),
            Operator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::Missing => value.is_none(),
            Operator::Greater => {
                value.and_then(number).zip(bound()).is_some_and(|(value, bound)| value > bound)
            }
            Operator::Less => value.and_then(number).zip(bound()).is_some_and(|(value, bound)| value < bound),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    /// A key, a value, or the operator `in` or `notin`.
    Word(String),
    Symbol(&'static str),
    /// A special character that starts no symbol.
    Unknown(String),
    End,
}

/// All symbols; a longer symbol comes before its prefix.
const SYMBOLS: [&str; 9] = ["==", "!=", "=", "!", ",", "(", ")", "<", ">"];

impl Token {
    fn text(&self) -> &str {
        match self {
            Self::Word(text) | Self::Unknown(text) => text,
            Self::Symbol(text) => text,
            Self::End => "",
        }
    }
}

/// Splits a selector into tokens.
fn scan(text: &str) -> Vec<Token> {
    let special = |c: char| "=!(),<>".contains(c);
    let blank = |c: char| " \t\r\n".contains(c);
    let (mut tokens, mut rest) = (Vec::new(), text.trim_start_matches(blank));
    while !rest.is_empty() {
        if rest.starts_with(special) {
            let symbol = SYMBOLS.into_iter().find(|symbol| rest.starts_with(symbol));
            let length = symbol.map_or(1, str::len);
            let unknown = || Token::Unknown(rest.chars().take(1).collect());
            tokens.push(symbol.map_or_else(unknown, Token::Symbol));
            rest = rest.get(length..).unwrap_or_default();
        } else {
            let end = rest.find(|c| special(c) || blank(c)).unwrap_or(rest.len());
            let (word, after) = rest.split_at(end);
            tokens.push(Token::Word(word.to_owned()));
            rest = after;
        }
        rest = rest.trim_start_matches(blank);
    }
    tokens
}

struct Parser {
    tokens: Vec<Token>,
    position: usize,
}

// === impl Parser ===

impl Parser {
    fn peek(&self) -> Token {
        self.tokens.get(self.position).cloned().unwrap_or(Token::End)
    }

    fn next(&mut self) -> Token {
        let token = self.peek();
        self.position += 1;
        token
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let absent = self.peek() == Token::Symbol("!");
        if absent {
            self.position += 1;
        }
        let key = match self.next() {
            Token::Word(key) => key,
            other => return Err(format!("found '{}', expected: identifier", other.text())),
        };
        check("<nil>", &key, &names::qualified_name(&key))?;
        if absent || matches!(self.peek(), Token::End | Token::Symbol(",")) {
            let operator = if absent { Operator::Missing } else { Operator::Exists };
            return Ok(Requirement { key, operator, values: BTreeSet::new() });
        }
        let token = self.next();
        let (operator, many) = match token.text() {
            "in" => (Operator::In, true),
            "notin" => (Operator::NotIn, true),
            "=" | "==" => (Operator::In, false),
            "!=" => (Operator::NotIn, false),
            ">" => (Operator::Greater, false),
            "<" => (Operator::Less, false),
            found => return Err(format!("found '{found}', expected: in, notin, =, ==, !=, gt, lt")),
        };
        let values = if many { self.values()? } else { BTreeSet::from([self.value()?]) };
        if matches!(operator, Operator::Greater | Operator::Less)
            && let Some(value) = values.iter().find(|value| value.parse::<i64>().is_err())
        {
            let detail = "for 'Gt', 'Lt' operators, the value must be an integer";
            return Err(FieldError::invalid("values[0]", &value.as_str().into(), detail).to_string());
        }
        for (i, value) in values.iter().enumerate() {
            check(&format!("values[{i}][{key}]"), value, &names::label_value(value))?;
        }
        Ok(Requirement { key, operator, values })
    }

    fn value(&mut self) -> Result<String, String> {
        match self.peek() {
            Token::End | Token::Symbol(",") => Ok(String::new()),
            Token::Word(value) => {
                self.position += 1;
                Ok(value)
            }
            other => Err(format!("found '{}', expected: identifier", other.text())),
        }
    }

    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        match self.next() {
            Token::Symbol("(") => {}
            other => return Err(format!("found '{}' expected: '('", other.text())),
        }
        let mut values = BTreeSet::new();
        let mut after_comma = true;
        loop {
            match self.next() {
                Token::Word(value) if after_comma => {
                    values.insert(value);
                    after_comma = false;
                }
                Token::Symbol(")") => {
                    if after_comma {
                        values.insert(String::new());
                    }
                    return Ok(values);
                }
                Token::Symbol(",") => {
                    if after_comma {
                        values.insert(String::new());
                    }
                    after_comma = true;
                }
                other if after_comma => {
                    return Err(format!("found '{}', expected: ',', or identifier", other.text()));
                }
                other => return Err(format!("found '{}', expected: ',' or ')'", other.text())),
            }
        }
    }
}

fn check(path: &str, value: &str, errors: &[String]) -> Result<(), String> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(FieldError::invalid(path, &value.into(), &errors.join("; ")).to_string())
}
