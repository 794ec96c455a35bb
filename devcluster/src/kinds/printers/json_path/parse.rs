//! Reads paths such as `.status.conditions[?(@.type=="Ready")].status`.

use serde_json::Value;

use super::{JsonPath, Node, Slice};

/// The deepest nesting of filters and unions.
const DEEPEST: usize = 16;

/// Reads a path without its braces; `None` if it is malformed.
pub(super) fn path(text: &str) -> Option<JsonPath> {
    nested(text, 0)
}

fn nested(text: &str, depth: usize) -> Option<JsonPath> {
    if depth > DEEPEST {
        return None;
    }
    let (mut nodes, mut rest) = (Vec::new(), text);
    while let Some(first) = rest.chars().next() {
        if first == '}' {
            break;
        }
        rest = match first {
            '\n' | '\r' => return None,
            ' ' | '@' | '$' => rest.get(1..)?,
            '[' if rest.starts_with("[?(") => filter(rest.get(3..)?, depth, &mut nodes)?,
            '[' => brackets(rest.get(1..)?, depth, &mut nodes)?,
            '"' | '\'' => quoted(rest, first, &mut nodes)?,
            '.' => match rest.strip_prefix("..") {
                Some(_) if nodes.last() == Some(&Node::Recursive) => return None,
                Some(after) => {
                    nodes.push(Node::Recursive);
                    if after.starts_with(is_word) { field(after, &mut nodes)? } else { after }
                }
                None => field(rest.get(1..)?, &mut nodes)?,
            },
            '+' | '-' | '0'..='9' => number(rest, &mut nodes)?,
            other if is_word(other) => {
                let (word, after) = rest.split_at(rest.find(is_terminator).unwrap_or(rest.len()));
                nodes.push(match word {
                    "true" | "false" => Node::Literal(Value::Bool(word == "true")),
                    _ => Node::Word,
                });
                after
            }
            _ => return None,
        };
    }
    Some(JsonPath(nodes))
}

/// Reads a field up to a character that ends it; a backslash escapes one.
fn field<'a>(text: &'a str, nodes: &mut Vec<Node>) -> Option<&'a str> {
    let mut end = text.len();
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if !escaped && is_terminator(c) {
            end = at;
            break;
        }
        escaped = c == '\\' && !escaped;
    }
    let (name, rest) = text.split_at_checked(end)?;
    nodes.push(match name {
        "*" => Node::Wildcard,
        name => Node::Field(name.replace('\\', "")),
    });
    Some(rest)
}

/// Reads what follows `[`: a slice, a name in quotes, or several of them.
fn brackets<'a>(text: &'a str, depth: usize, nodes: &mut Vec<Node>) -> Option<&'a str> {
    let (inside, rest) = text.split_once(']')?;
    if inside.contains('\n') {
        return None;
    }
    if inside.contains(',') {
        let paths = inside.split(',').map(|part| nested(&format!("[{}]", part.trim_matches(' ')), depth + 1));
        nodes.push(Node::Union(paths.collect::<Option<_>>()?));
        return Some(rest);
    }
    let name = inside.strip_prefix('\'').and_then(|name| name.strip_suffix('\''));
    match name.filter(|name| !name.contains('\'')) {
        Some(name) => nodes.extend(nested(&format!(".{name}"), depth + 1)?.0),
        None => nodes.push(Node::Slice(slice(if inside == "*" { ":" } else { inside })?)),
    }
    Some(rest)
}

fn slice(text: &str) -> Option<Slice> {
    let mut parts = text.split(':');
    let mut next = || match parts.next() {
        None => Some(None),
        Some("") => Some(Some(None)),
        Some(part) if part.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(Some(Some(part.parse::<i64>().ok()?)))
        }
        Some(_) => None,
    };
    let (start, end, step) = (next()?, next()?, next()?);
    if parts.next().is_some() {
        return None;
    }
    let start = start.flatten().unwrap_or_default();
    let (end, is_index) = match end {
        None => (Some(start + 1), true),
        Some(end) => (end, false),
    };
    Some(Slice { start, end, is_index, step: step.flatten() })
}

/// Reads what follows `[?(`: a comparison, or a path that must exist.
fn filter<'a>(text: &'a str, depth: usize, nodes: &mut Vec<Node>) -> Option<&'a str> {
    let (mut quote, mut previous, mut end) = (None, ' ', None);
    for (at, c) in text.char_indices() {
        match (c, quote) {
            ('\n', _) => return None,
            ('"' | '\'', None) => quote = Some(c),
            (c, Some(open)) if c == open && previous != '\\' => quote = None,
            (')', None) => {
                end = Some(at);
                break;
            }
            _ => {}
        }
        previous = c;
    }
    let (inside, rest) = text.split_at(end?);
    let rest = rest.strip_prefix(")]")?;
    let is_operator = |c: char| matches!(c, '!' | '<' | '>' | '=');
    let start = inside.find(is_operator).filter(|start| *start > 0);
    let compared = start.and_then(|start| {
        let (left, compared) = inside.split_at(start);
        let length = compared.find(|c| !is_operator(c))?;
        let (operator, right) = compared.split_at(length);
        Some((left, operator, right))
    });
    nodes.push(match compared {
        Some((left, operator, right)) => Node::Filter {
            left: nested(left, depth + 1)?,
            operator: operator.to_owned(),
            right: nested(right, depth + 1)?,
        },
        None => Node::Filter {
            left: nested(inside, depth + 1)?,
            operator: "exists".to_owned(),
            right: JsonPath(Vec::new()),
        },
    });
    Some(rest)
}

fn quoted<'a>(text: &'a str, quote: char, nodes: &mut Vec<Node>) -> Option<&'a str> {
    let (mut value, mut chars) = (String::new(), text.char_indices().skip(1));
    while let Some((at, c)) = chars.next() {
        match c {
            '\n' => return None,
            '\\' => value.push(chars.next()?.1),
            c if c == quote => {
                nodes.push(Node::Literal(value.into()));
                return text.get(at + 1..);
            }
            c => value.push(c),
        }
    }
    None
}

fn number<'a>(text: &'a str, nodes: &mut Vec<Node>) -> Option<&'a str> {
    let unsigned = text.trim_start_matches(['+', '-']);
    let signs = text.len() - unsigned.len();
    let digits = unsigned.find(|c: char| c != '.' && !c.is_ascii_digit()).unwrap_or(unsigned.len());
    let (number, rest) = text.split_at(signs + digits);
    let number = number.strip_prefix('+').unwrap_or(number);
    nodes.push(Node::Literal(match number.parse::<i64>() {
        Ok(whole) => whole.into(),
        Err(_) => number.parse::<f64>().ok()?.into(),
    }));
    Some(rest)
}

fn is_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns whether a character ends a field or a word.
fn is_terminator(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\r' | '\n' | '.' | ',' | '[' | ']' | '$' | '@' | '{' | '}')
}
