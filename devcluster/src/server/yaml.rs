//! Decodes and encodes YAML in the form of kube-apiserver.

use std::thread;

use serde_json::Value;
use serde_saphyr::{DuplicateKeyPolicy, Error, Options, SerializerOptions};

/// Most levels of nested maps and lists, the same as for JSON.
const MAX_DEPTH: usize = 256;

/// The result of decoding a YAML text.
#[derive(Debug, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// The warning about the first duplicate key, if any. The last value of the key is used.
    pub(crate) duplicate: Option<String>,
}

/// Stack of the thread that parses a text. In a debug build the parser takes 25 KB for each level, more than
/// the 2 MB that most threads have.
const STACK_BYTES: usize = 16 << 20;

/// Decodes a YAML text; an empty text is null. Errors have the form of go-yaml.
pub(crate) fn decode(text: &[u8]) -> Result<Decoded, String> {
    thread::scope(|scope| {
        let parser = thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || read(text));
        let parser = parser.map_err(|error| format!("yaml: {error}"))?;
        parser.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn read(text: &[u8]) -> Result<Decoded, String> {
    let text = String::from_utf8_lossy(text);
    if text.trim().is_empty() {
        return Ok(Decoded { value: Value::Null, duplicate: None });
    }
    let duplicate = match parse(&text, DuplicateKeyPolicy::Error) {
        Ok(value) => return Ok(Decoded { value, duplicate: None }),
        Err(error) => match error.without_snippet() {
            Error::DuplicateMappingKey { key, location } => {
                let (key, line) = (crate::kinds::quoted(key.as_deref().unwrap_or_default()), location.line());
                format!("yaml: unmarshal errors:\n  line {line}: key {key} already set in map")
            }
            _ => return Err(described(&error)),
        },
    };
    match parse(&text, DuplicateKeyPolicy::LastWins) {
        Ok(value) => Ok(Decoded { value, duplicate: Some(duplicate) }),
        Err(error) => Err(described(&error)),
    }
}

/// Encodes a value as kube-apiserver does: lists are not indented below their key.
pub(crate) fn encode(value: &Value) -> String {
    let mut options = SerializerOptions::default();
    options.compact_list_indent = true;
    let mut out = String::new();
    // Cannot fail: YAML can represent every JSON value, and the writer is a String.
    drop(serde_saphyr::to_fmt_writer_with_options(&mut out, value, options));
    out
}

fn parse(text: &str, duplicate_keys: DuplicateKeyPolicy) -> Result<Value, Error> {
    let mut options = Options::default();
    options.duplicate_keys = duplicate_keys;
    options.with_snippet = false;
    options.budget = serde_saphyr::budget! { max_depth: MAX_DEPTH };
    serde_saphyr::from_str_with_options(text, options)
}

fn described(error: &Error) -> String {
    match error.location() {
        Some(location) => format!("yaml: line {}: {}", location.line(), error.without_snippet()),
        None => format!("yaml: {}", error.without_snippet()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_read_as_yaml_1_1() {
        let decoded = decode(b"a: [1, 2.5, yes, null, 'x']\nb:\n- c: 07:00\n").expect("valid");
        assert_eq!(decoded.value, json!({"a": [1, 2.5, true, null, "x"], "b": [{"c": "07:00"}]}));
        assert_eq!(decoded.duplicate, None);
        assert_eq!(decode(b" \n").expect("empty").value, Value::Null);
    }

    #[test]
    fn the_last_of_duplicate_keys_counts() {
        let decoded = decode(b"a:\n  b: 1\n  b: 2\n").expect("valid");
        assert_eq!(decoded.value, json!({"a": {"b": 2}}));
        let remark = "yaml: unmarshal errors:\n  line 3: key \"b\" already set in map";
        assert_eq!(decoded.duplicate.as_deref(), Some(remark));
    }

    #[test]
    fn a_broken_text_is_located() {
        let error = decode(b"a: 1\nb: {").expect_err("broken");
        assert!(error.starts_with("yaml: line 2: "), "{error}");
    }

    #[test]
    fn deep_nesting_is_refused() {
        for (open, close) in [("[", "]"), ("{a: ", "}")] {
            let nested = |depth: usize| open.repeat(depth) + "1" + &close.repeat(depth);
            assert!(decode(nested(MAX_DEPTH - 1).as_bytes()).is_ok());
            assert!(decode(nested(MAX_DEPTH + 1).as_bytes()).is_err());
            assert!(decode(open.repeat(100_000).as_bytes()).is_err());
        }
    }

    #[test]
    fn lists_are_written_without_indent() {
        let value = json!({"items": [{"a": "yes", "b": 1}], "empty": {}, "none": []});
        assert_eq!(encode(&value), "empty: {}\nitems:\n- a: \"yes\"\n  b: 1\nnone: []\n");
    }
}
