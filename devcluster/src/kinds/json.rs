//! A JSON decoder with the behaviour of kube-apiserver: Go's error texts, a report of duplicate keys, and a
//! bounded depth.
//!
//! `serde_json` rejects invalid UTF-8, does not report duplicate keys and has other error texts; clients and
//! scripts match on those of Go.

use serde_json::map::Entry;
use serde_json::{Map, Number, Value};

/// Most levels of nesting. kube-apiserver accepts 10,000, but recursive functions over values must not
/// overflow the stack of a thread, and no known object has more than 60.
const MAX_DEPTH: usize = 256;

/// Most duplicate keys that are reported for one text, as in kube-apiserver.
const MAX_DUPLICATES: usize = 100;

/// The result of decoding a JSON text.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Decoded {
    pub(crate) value: Value,
    /// The paths of duplicate keys, such as `spec.ports[0].name`. The last value of a key is used.
    pub(crate) duplicates: Vec<String>,
}

/// Decodes a JSON text; errors have the texts of Go's encoding/json.
pub(crate) fn decode(text: &[u8]) -> Result<Decoded, String> {
    parse(text, None)
}

/// As [`decode`], but a number that is too large becomes the largest one: in Go, the field for which it is
/// meant decides about it.
pub(crate) fn decode_for_type(text: &[u8]) -> Result<Decoded, String> {
    parse(text, Some(f64::MAX))
}

fn parse(text: &[u8], largest: Option<f64>) -> Result<Decoded, String> {
    let mut parser = Parser { text, at: 0, depth: 0, largest, duplicates: Vec::new() };
    parser.skip_space();
    let value = parser.value(&Place::Root)?;
    parser.skip_space();
    match parser.peek() {
        None => Ok(Decoded { value, duplicates: parser.duplicates }),
        Some(_) => Err(parser.unexpected("after top-level value")),
    }
}

/// The position of a value in the document. Its path is built only to report a duplicate key.
enum Place<'a> {
    Root,
    Key(&'a Place<'a>, &'a str),
    Index(&'a Place<'a>, usize),
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    /// The value of larger numbers; `None` if they are an error.
    largest: Option<f64>,
    duplicates: Vec<String>,
}

// === impl Place ===

impl Place<'_> {
    fn path(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Key(parent, key) => match parent {
                Place::Root => (*key).to_owned(),
                parent => format!("{}.{key}", parent.path()),
            },
            Self::Index(parent, index) => format!("{}[{index}]", parent.path()),
        }
    }
}

// === impl Parser ===

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\r' | b'\n')) {
            self.at += 1;
        }
    }

    fn value(&mut self, place: &Place<'_>) -> Result<Value, String> {
        match self.peek() {
            Some(b'{') => self.nested(|parser| parser.object(place)),
            Some(b'[') => self.nested(|parser| parser.array(place)),
            Some(b'"') => Ok(Value::String(self.string()?)),
            Some(b't') => self.literal("true", Value::Bool(true)),
            Some(b'f') => self.literal("false", Value::Bool(false)),
            Some(b'n') => self.literal("null", Value::Null),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => Err(self.unexpected("looking for beginning of value")),
        }
    }

    fn nested(&mut self, read: impl FnOnce(&mut Self) -> Result<Value, String>) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(self.unexpected("exceeded max depth"));
        }
        self.at += 1;
        self.skip_space();
        let value = read(self);
        self.depth -= 1;
        value
    }

    fn object(&mut self, place: &Place<'_>) -> Result<Value, String> {
        let mut map = Map::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(map));
        }
        loop {
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("looking for beginning of object key string"));
            }
            let key = self.string()?;
            self.skip_space();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("after object key"));
            }
            self.at += 1;
            self.skip_space();
            let value = self.value(&Place::Key(place, &key))?;
            match map.entry(key) {
                Entry::Vacant(entry) => _ = entry.insert(value),
                Entry::Occupied(mut entry) => {
                    note_duplicate(&mut self.duplicates, &Place::Key(place, entry.key()));
                    entry.insert(value);
                }
            }
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Object(map));
                }
                _ => return Err(self.unexpected("after object key:value pair")),
            }
            self.skip_space();
        }
    }

    fn array(&mut self, place: &Place<'_>) -> Result<Value, String> {
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            items.push(self.value(&Place::Index(place, items.len()))?);
            self.skip_space();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::Array(items));
                }
                _ => return Err(self.unexpected("after array element")),
            }
            self.skip_space();
        }
    }

    fn literal(&mut self, word: &'static str, value: Value) -> Result<Value, String> {
        for expected in word.bytes() {
            if self.peek() != Some(expected) {
                let expected = char::from(expected);
                return Err(self.unexpected(&format!("in literal {word} (expecting '{expected}')")));
            }
            self.at += 1;
        }
        Ok(value)
    }

    fn number(&mut self) -> Result<Value, String> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.digits(),
            _ => return Err(self.unexpected("in numeric literal")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.some_digits("after decimal point in numeric literal")?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.some_digits("in exponent of numeric literal")?;
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        number(std::str::from_utf8(text).unwrap_or_default(), self.largest)
    }

    fn digits(&mut self) {
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.at += 1;
        }
    }

    fn some_digits(&mut self, context: &str) -> Result<(), String> {
        if !matches!(self.peek(), Some(b'0'..=b'9')) {
            return Err(self.unexpected(context));
        }
        self.digits();
        Ok(())
    }

    /// Parses a string. Invalid UTF-8 becomes U+FFFD.
    fn string(&mut self) -> Result<String, String> {
        self.at += 1;
        let mut out = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or_default();
            let special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..0x20);
            let plain = rest.get(..rest.iter().position(special).unwrap_or(rest.len())).unwrap_or_default();
            self.at += plain.len();
            out.push_str(&String::from_utf8_lossy(plain));
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(out);
                }
                Some(b'\\') => {
                    self.at += 1;
                    out.push(self.escaped()?);
                }
                _ => return Err(self.unexpected("in string literal")),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, String> {
        let c = match self.peek() {
            Some(b @ (b'"' | b'\\' | b'/')) => char::from(b),
            Some(b'b') => '\x08',
            Some(b'f') => '\x0c',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => {
                self.at += 1;
                return self.code_point();
            }
            _ => return Err(self.unexpected("in string escape code")),
        };
        self.at += 1;
        Ok(c)
    }

    /// Parses the digits after `\u`, and a second escape after a high surrogate. A surrogate without its
    /// partner becomes U+FFFD.
    fn code_point(&mut self) -> Result<char, String> {
        let unit = self.hexadecimal()?;
        let low = match self.text.get(self.at..self.at + 2) {
            Some(b"\\u") if (0xd800..0xdc00).contains(&unit) => {
                let back = self.at;
                self.at += 2;
                let low = self.hexadecimal()?;
                if !(0xdc00..0xe000).contains(&low) {
                    self.at = back;
                }
                low
            }
            _ => 0,
        };
        let code = match low {
            0xdc00..0xe000 => 0x1_0000 + ((unit - 0xd800) << 10) + (low - 0xdc00),
            _ => unit,
        };
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hexadecimal(&mut self) -> Result<u32, String> {
        let mut unit = 0;
        for _ in 0..4 {
            let Some(digit) = self.peek().and_then(|byte| char::from(byte).to_digit(16)) else {
                return Err(self.unexpected("in \\u hexadecimal character escape"));
            };
            unit = unit * 16 + digit;
            self.at += 1;
        }
        Ok(unit)
    }

    fn unexpected(&self, context: &str) -> String {
        let Some(byte) = self.peek() else { return "unexpected end of JSON input".to_owned() };
        let shown = match byte {
            b'\'' => r"'\''".to_owned(),
            b'"' => "'\"'".to_owned(),
            byte => format!("'{}'", super::quoted(&char::from(byte).to_string()).trim_matches('"')),
        };
        format!("invalid character {shown} {context}")
    }
}

fn note_duplicate(duplicates: &mut Vec<String>, place: &Place<'_>) {
    if duplicates.len() < MAX_DUPLICATES {
        let path = place.path();
        if !duplicates.contains(&path) {
            duplicates.push(path);
        }
    }
}

/// Returns the value of a number: an integer where it fits into 64 bits, otherwise a float. A float without
/// a fraction, such as `1.0`, becomes an integer, as kube-apiserver encodes it.
fn number(text: &str, largest: Option<f64>) -> Result<Value, String> {
    if let Ok(whole) = text.parse::<i64>() {
        return Ok(whole.into());
    }
    let parsed = text.parse::<f64>().ok().filter(|float| float.is_finite());
    let Some(float) = parsed.or(largest) else {
        return Err(format!("json: cannot unmarshal number {text} into Go value of type float64"));
    };
    // A float represents every integer up to 2^53 exactly.
    if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 {
        #[expect(clippy::cast_possible_truncation, reason = "the value is whole and in range")]
        return Ok((float as i64).into());
    }
    Ok(Number::from_f64(float).map_or(Value::Null, Value::Number))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn error(text: &str) -> String {
        decode(text.as_bytes()).expect_err(text)
    }

    #[test]
    fn values_are_read() {
        let text =
            br#" {"a": [1, -2.5, 1.0, 1e3, true, null], "b": "x\n\u00e9\ud83d\ude00\ud800", "c": {}} "#;
        let decoded = decode(text).expect("valid");
        let expected = json!({"a": [1, -2.5, 1, 1000, true, null], "b": "x\né😀\u{fffd}", "c": {}});
        assert_eq!(decoded.value, expected);
        assert!(decoded.duplicates.is_empty());
    }

    #[test]
    fn the_last_of_duplicate_keys_is_used_and_reported_once() {
        let decoded = decode(br#"{"a":{"b":1,"b":2,"b":3},"l":[{"c":1,"c":2}]}"#).expect("valid");
        assert_eq!(decoded.value, json!({"a": {"b": 3}, "l": [{"c": 2}]}));
        assert_eq!(decoded.duplicates, ["a.b", "l[0].c"]);
    }

    #[test]
    fn invalid_utf8_is_replaced() {
        let decoded = decode(b"\"\xff\xfe\"").expect("accepted");
        assert_eq!(decoded.value, json!("\u{fffd}\u{fffd}"));
    }

    #[test]
    fn errors_have_the_texts_of_go() {
        assert_eq!(error(""), "unexpected end of JSON input");
        assert_eq!(error("{"), "unexpected end of JSON input");
        assert_eq!(error("x"), "invalid character 'x' looking for beginning of value");
        assert_eq!(error("{} t"), "invalid character 't' after top-level value");
        assert_eq!(error("{a"), "invalid character 'a' looking for beginning of object key string");
        assert_eq!(error("{\"a\" 1}"), "invalid character '1' after object key");
        assert_eq!(error("{\"a\":1]"), "invalid character ']' after object key:value pair");
        assert_eq!(error("[1 2]"), "invalid character '2' after array element");
        assert_eq!(error("trye"), "invalid character 'y' in literal true (expecting 'u')");
        assert_eq!(error("\"\n\""), "invalid character '\\n' in string literal");
        assert_eq!(error("\"\\x\""), "invalid character 'x' in string escape code");
        assert_eq!(error("\"\\u12x\""), "invalid character 'x' in \\u hexadecimal character escape");
        assert_eq!(error("-x"), "invalid character 'x' in numeric literal");
        assert_eq!(error("1.x"), "invalid character 'x' after decimal point in numeric literal");
        assert_eq!(error("1ex"), "invalid character 'x' in exponent of numeric literal");
        assert_eq!(error("1e999"), "json: cannot unmarshal number 1e999 into Go value of type float64");
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(decode(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(error(&nested(MAX_DEPTH + 1)), "invalid character '[' exceeded max depth");
        assert_eq!(error(&"[".repeat(3_000_000)), "invalid character '[' exceeded max depth");
    }
}
