//! Field selectors such as `metadata.name=x,status.phase!=Running`.

use serde_json::Value;

use crate::kinds::Kind;

/// A field selector; all terms must match.
#[derive(Clone, Debug, Default)]
pub(super) struct FieldSelector(Vec<Term>);

/// A comparison of one field.
#[derive(Clone, Debug)]
struct Term {
    /// The possible paths of the field; the first one with a value counts.
    paths: Vec<Vec<String>>,
    /// The value of a missing field.
    missing: String,
    /// True for `=` and `==`, false for `!=`.
    equal: bool,
    value: String,
}

// === impl FieldSelector ===

impl FieldSelector {
    pub(super) fn parse(kind: &Kind, text: &str) -> Result<Self, String> {
        let mut parts = split(text);
        parts.sort_unstable();
        let mut terms = Vec::new();
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            let Some((label, equal, value)) = operator(part) else {
                return Err(format!("invalid selector: '{text}'; can't understand '{part}'"));
            };
            let value = unescape(value)?;
            let (paths, missing) = field(kind, label)?;
            terms.push(Term { paths, missing, equal, value });
        }
        Ok(Self(terms))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|term| term.matches(object))
    }
}

// === impl Term ===

impl Term {
    fn matches(&self, object: &Value) -> bool {
        let mut found = self.paths.iter().filter_map(|path| at(object, path));
        let actual = found.next().unwrap_or_else(|| self.missing.clone());
        (actual == self.value) == self.equal
    }
}

/// Returns the text of a field; `None` if it is missing, empty, or no scalar.
fn at(object: &Value, path: &[String]) -> Option<String> {
    match path.iter().try_fold(object, |value, name| value.get(name))? {
        Value::Null | Value::Array(_) | Value::Object(_) => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Returns the paths of a field label and the value of a missing field.
fn field(kind: &Kind, label: &str) -> Result<(Vec<Vec<String>>, String), String> {
    let metadata = |name: &str| vec![vec!["metadata".to_owned(), name.to_owned()]];
    match label {
        "metadata.name" => return Ok((metadata("name"), String::new())),
        "metadata.namespace" if kind.namespaced || kind.type_name.is_some() => {
            return Ok((metadata("namespace"), String::new()));
        }
        _ => {}
    }
    let known = kind.selectable_fields.iter().find(|field| field.label == label);
    known.map(|field| (field.paths.clone(), field.missing.clone())).ok_or_else(|| unsupported(kind, label))
}

/// Returns the error for an unknown field label. The texts differ among built-in groups; this is
/// the most common one.
fn unsupported(kind: &Kind, label: &str) -> String {
    match (kind.type_name.is_some(), kind.selectable_fields.is_empty()) {
        (true, true) => {
            format!("{label:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        _ => format!("field label not supported: {label}"),
    }
}

/// Splits a selector at commas that are not escaped.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut rest, mut escaped) = (Vec::new(), text, false);
    for (i, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                let start = text.len() - rest.len();
                parts.push(text.get(start..i).unwrap_or_default());
                rest = text.get(i + 1..).unwrap_or_default();
            }
            _ => {}
        }
    }
    parts.push(rest);
    parts
}

/// Splits a term into the label, whether the operator is an equality, and the escaped value.
fn operator(part: &str) -> Option<(&str, bool, &str)> {
    let at = part.find(['=', '!']).filter(|at| part.get(*at..).is_some_and(starts_with_operator));
    let at = at.or_else(|| part.find('='))?;
    let (label, rest) = part.split_at(at);
    let known = [("!=", false), ("==", true), ("=", true)];
    known.into_iter().find_map(|(text, equal)| Some((label, equal, rest.strip_prefix(text)?)))
}

fn starts_with_operator(text: &str) -> bool {
    text.starts_with("!=") || text.starts_with('=')
}

fn unescape(value: &str) -> Result<String, String> {
    let mut out = String::with_capacity(value.len());
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some(escaped @ ('\\' | ',' | '=')) => out.push(escaped),
                Some(other) => {
                    return Err(format!("invalid field selector: invalid escape sequence: \\{other}"));
                }
                None => return Err("invalid field selector: invalid escape sequence: \\".to_owned()),
            },
            ',' | '=' => {
                let message = "invalid field selector: unescaped character in value";
                return Err(format!("{message}: {}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    Ok(out)
}
