//! The rules in `x-kubernetes-validations`: CEL expressions over a value and the old value that it replaces.

mod evaluate;
mod expression;
mod functions;
mod place;
mod types;
mod value;

use kube_cel::cel::IdedExpr;
use kube_cel::cel::parser::Parser;
use serde_json::Value;

pub use expression::{Activation, Environment, Expression, Output};

pub(super) use evaluate::check;
pub(super) use types::{Declared, compile};
pub use value::RESERVED;

use super::field_path;
use crate::kinds::errors::Reason;

/// The largest number of open brackets, which is the depth that the parser accepts.
const MAX_OPEN: usize = 96;
/// The largest share of brackets and negations in an expression. Above it, the parser takes far too long.
const MAX_NOISE: f64 = 0.6;
/// Most syntax errors of one expression that are reported.
const MAX_SYNTAX_ERRORS: usize = 100;

/// One CEL rule.
#[derive(Debug)]
pub struct Rule {
    /// The expression in the schema.
    pub text: String,
    /// The message for a value that breaks the rule; empty if the rule has none.
    pub message: String,
    /// The reason of the error for a value that breaks the rule.
    reason: Reason,
    /// The path of the field that the error names, relative to the value; `None` for the value itself.
    field_path: Option<String>,
    /// Whether `oldSelf` is an optional value, so the rule also runs without an old value.
    optional_old_self: bool,
    /// Whether the rule mentions `oldSelf`.
    pub uses_old_self: bool,
    /// The parsed expression, `None` for an empty rule; or the error of the parser.
    program: Result<Option<IdedExpr>, String>,
    /// The parsed expression of the message; `None` if there is none or it is malformed.
    message_program: Option<IdedExpr>,
}

impl Rule {
    /// Parses one rule in the schema `of`.
    pub fn new(raw: &Value, of: &Value) -> Self {
        let text = |field: &str| raw.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let rule = text("rule");
        let program = if rule.trim().is_empty() { Ok(None) } else { parse(&rule).map(Some) };
        let uses_old_self =
            matches!(&program, Ok(Some(program)) if program.references().has_variable("oldSelf"));
        let message = text("messageExpression");
        let path = text("fieldPath");
        Self {
            text: rule,
            message: text("message").trim().to_owned(),
            reason: match raw.get("reason").and_then(Value::as_str) {
                Some("FieldValueForbidden") => Reason::Forbidden,
                Some("FieldValueRequired") => Reason::Required,
                Some("FieldValueDuplicate") => Reason::Duplicate,
                _ => Reason::Invalid,
            },
            field_path: if path.is_empty() {
                None
            } else {
                field_path::resolve(&path, of, true).ok().map(|found| found.path)
            },
            optional_old_self: raw.get("optionalOldSelf").and_then(Value::as_bool).unwrap_or(false),
            uses_old_self,
            program,
            message_program: if message.is_empty() { None } else { parse(&message).ok() },
        }
    }

    /// Returns the name of the rule in error messages: its message, or its expression.
    fn name(&self) -> &str {
        if self.message.is_empty() { self.text.trim() } else { &self.message }
    }
}

/// Parses an expression.
///
/// The parser of the library needs gigabytes for some short expressions that are mostly brackets, and its
/// depth counter fails on deep ones. Both kinds are refused before the parser runs.
///
/// # Errors
///
/// Returns the message of the server.
pub(super) fn parse(text: &str) -> Result<IdedExpr, String> {
    let (mut open, mut noise, mut visible) = (0_usize, 0_u32, 0_u32);
    for c in text.chars().filter(|c| !c.is_whitespace()) {
        visible += 1;
        match c {
            '(' | '[' | '{' => {
                open += 1;
                noise += 1;
            }
            ')' | ']' | '}' => {
                open = open.saturating_sub(1);
                noise += 1;
            }
            '!' => noise += 1,
            _ => {}
        }
        if open > MAX_OPEN {
            return Err("ERROR: <input>:-1:0: expression recursion limit exceeded: 250".to_owned());
        }
    }
    if visible > 24 && f64::from(noise) > f64::from(visible) * MAX_NOISE {
        return Err("ERROR: <input>:-1:0: expression recursion limit exceeded: 250".to_owned());
    }
    Parser::default().enable_optional_syntax(true).parse(text).map_err(|errors| syntax_errors(text, &errors))
}

/// Formats syntax errors in the form of Go's CEL, which gives up after a hundred.
fn syntax_errors(text: &str, errors: &kube_cel::cel::ParseErrors) -> String {
    let mut errors: Vec<_> = errors.errors.iter().collect();
    errors.sort_by_key(|error| error.pos);
    let lines = errors.iter().take(MAX_SYNTAX_ERRORS).map(|error| {
        let column = usize::try_from(error.pos.1).unwrap_or(0);
        let message = error.msg.strip_prefix("Syntax error: ").unwrap_or(&error.msg);
        located(text, usize::try_from(error.pos.0).unwrap_or(1), column, &format!("Syntax error: {message}"))
    });
    let more = (errors.len() > MAX_SYNTAX_ERRORS).then(|| "1 more errors were truncated".to_owned());
    lines.chain(more).collect::<Vec<_>>().join("\n")
}

/// Formats an error at a position in an expression. Lines and columns start at 1.
fn located(text: &str, line: usize, column: usize, message: &str) -> String {
    let source = text.lines().nth(line.saturating_sub(1)).unwrap_or_default();
    let marker = ".".repeat(column.saturating_sub(1));
    format!("ERROR: <input>:{line}:{column}: {message}\n | {source}\n | {marker}^")
}
