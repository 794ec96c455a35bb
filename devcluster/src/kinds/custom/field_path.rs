//! Field paths such as `.spec.replicas` and `.labels['app']`, resolved in a schema.

use serde_json::Value;

/// The field at the end of a path.
#[derive(Debug)]
pub(super) struct Found<'a> {
    /// The path in the form of field errors, such as `spec.replicas` or `labels[app]`.
    pub path: String,
    /// The name of the first field.
    pub root: String,
    /// The schema of the field.
    pub schema: &'a Value,
}

/// Follows a path through the properties of a schema. `brackets` allows steps such as `['app']`.
///
/// # Errors
///
/// Returns the message of the server.
pub(super) fn resolve<'a>(path: &str, schema: &'a Value, brackets: bool) -> Result<Found<'a>, String> {
    let tokens = tokens(path);
    let mut tokens = tokens.iter().copied();
    let mut found = Found { path: String::new(), root: String::new(), schema };
    let end = || "unexpected end of JSON path".to_owned();
    while let Some(token) = tokens.next() {
        match token {
            "." => {
                let name = tokens.next().ok_or_else(end)?;
                descend(&mut found, name)?;
            }
            "[" if !brackets => return Err("array notation is not allowed".to_owned()),
            "[" => {
                let token = tokens.next().ok_or_else(end)?;
                let quoted = token
                    .strip_prefix('\'')
                    .and_then(|rest| rest.strip_suffix('\''))
                    .ok_or_else(|| format!("expected single quoted string but got {token}"))?;
                descend(&mut found, &unescaped(quoted)?)?;
                match tokens.next().ok_or_else(end)? {
                    "]" => {}
                    other => return Err(format!("expected ] but got {other}")),
                }
            }
            other => return Err(format!("expected [ or . but got: {other}")),
        }
    }
    Ok(found)
}

fn descend(found: &mut Found<'_>, name: &str) -> Result<(), String> {
    let missing = || "does not refer to a valid field".to_owned();
    let properties = found.schema.get("properties").and_then(Value::as_object).filter(|map| !map.is_empty());
    if found.root.is_empty() {
        name.clone_into(&mut found.root);
    }
    if let Some(properties) = properties {
        if !found.path.is_empty() {
            found.path.push('.');
        }
        found.path.push_str(name);
        found.schema = properties.get(name).ok_or_else(missing)?;
    } else {
        found.path.push('[');
        found.path.push_str(name);
        found.path.push(']');
        found.schema = found
            .schema
            .get("additionalProperties")
            .filter(|values| values.is_object())
            .ok_or_else(missing)?;
    }
    Ok(())
}

/// Splits a path at `.`, `[` and `]`, which are tokens of their own. Quoted strings stay whole.
fn tokens(path: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = path;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '.' | '[' | ']' => 1,
            '\'' => {
                let mut escaped = false;
                let end = rest.char_indices().skip(1).find(|(_, c)| {
                    let ends = *c == '\'' && !escaped;
                    escaped = *c == '\\';
                    ends
                });
                end.map_or(rest.len(), |(at, _)| at + 1)
            }
            _ => rest.find(['.', '[', ']']).unwrap_or(rest.len()),
        };
        let (token, after) = rest.split_at(length);
        tokens.push(token);
        rest = after;
    }
    tokens
}

fn unescaped(text: &str) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        out.push(match chars.next() {
            Some('a') => '\x07',
            Some('b') => '\x08',
            Some('f') => '\x0c',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('v') => '\x0b',
            Some(c @ ('\'' | '\\')) => c,
            Some(c) => return Err(format!("invalid string literal: invalid escape char \\{c}")),
            None => '\\',
        });
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::resolve;

    #[test]
    fn paths_follow_properties_and_maps() {
        let schema = json!({"properties": {
            "spec": {"properties": {"replicas": {"type": "integer"}, "a.b": {"type": "string"}}},
            "labels": {"additionalProperties": {"type": "string"}},
        }});
        for (path, expected) in [
            (".spec.replicas", Ok("spec.replicas")),
            (".labels['app']", Ok("labels[app]")),
            (".spec['a.b']", Ok("spec.a.b")),
            (".spec.missing", Err("does not refer to a valid field")),
            (".spec.replicas.x", Err("does not refer to a valid field")),
            ("spec", Err("expected [ or . but got: spec")),
            (".spec[0]", Err("expected single quoted string but got 0")),
            (".", Err("unexpected end of JSON path")),
        ] {
            let found = resolve(path, &schema, true).map(|found| found.path);
            assert_eq!(found.as_deref(), expected.map_err(str::to_owned).as_deref(), "{path}");
        }
        assert_eq!(
            resolve(".labels['app']", &schema, false).map(|found| found.path),
            Err("array notation is not allowed".to_owned())
        );
    }
}
