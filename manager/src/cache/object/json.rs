//! Walks over JSON text once and leaves every value in place.
//!
//! Most of an object is only copied: a walk has to find the end of each value and to check that it is JSON.
//! With `serde_json`'s `RawValue` each level that is read would take one more pass; here the members of that
//! level are visited one by one, and the values below it are skipped in the same pass.
//!
//! # Invariants
//! 1. Text that the walk accepts can be read by `serde_json`: grammar, escapes, surrogates and depth are
//!    checked; the range of numbers and repeated keys are not.
//! 2. `at` is on a character boundary between two tokens.

use std::borrow::Cow;

/// Number of levels of JSON nesting that `serde_json` accepts.
const DEPTH: u32 = 127;

/// Error of a text that is not JSON. A retry does not help.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{expected} expected at byte {at}")]
pub(crate) struct Malformed {
    expected: &'static str,
    at: usize,
}

/// A position in JSON text that moves on from token to token and checks them.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    text: &'a str,
    at: usize,
    /// Number of JSON objects entered by [`Cursor::open`] and not left yet.
    depth: u32,
}

/// A value in JSON text, with its position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    /// The offset of the value's first byte in the JSON text.
    pub(crate) start: usize,
    /// The text of the JSON value, as it is written.
    pub(crate) text: &'a str,
}

/// Iterates over the members of one JSON object. After each call of [`Members::next`] the caller has to step
/// over the value.
#[derive(Debug)]
pub(crate) struct Members<'c, 'a> {
    pub(crate) cursor: &'c mut Cursor<'a>,
    first: bool,
}

/// Bytes that begin with the JSON of an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether the rest of a watch event follows the object; otherwise it ends the text.
    in_event: bool,
}

// === impl Cursor ===

impl<'a> Cursor<'a> {
    /// Makes a cursor before the first byte of a JSON text. Fails if the bytes are not UTF-8.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(Self::over(text)),
            Err(error) => Err(Malformed { expected: "UTF-8", at: error.valid_up_to() }),
        }
    }

    pub(crate) fn over(text: &'a str) -> Self {
        Self { text, at: 0, depth: 0 }
    }

    pub(crate) fn at(&self) -> usize {
        self.at
    }

    /// Skips white space and returns the next byte of the JSON text; `None` at its end.
    pub(crate) fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\t' | b'\r') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Steps over white space, and over `byte` if it is the next one; returns whether it was.
    pub(crate) fn take(&mut self, byte: u8) -> bool {
        let there = self.peek() == Some(byte);
        self.at += usize::from(there);
        there
    }

    /// Enters a JSON object and returns an iterator over its members. Fails if the next value is no object.
    pub(crate) fn open(&mut self) -> Result<Members<'_, 'a>, Malformed> {
        if !self.take(b'{') {
            return self.fail("an object");
        }
        self.depth += 1;
        Ok(Members { cursor: self, first: true })
    }

    /// Checks that only white space follows the current position.
    pub(crate) fn end(&mut self) -> Result<(), Malformed> {
        if self.peek().is_none() { Ok(()) } else { self.fail("the end") }
    }

    /// Steps over a JSON value of any type and returns it.
    pub(crate) fn value(&mut self) -> Result<Value<'a>, Malformed> {
        self.peek();
        let start = self.at;
        self.skip()?;
        Ok(self.since(start))
    }

    /// Returns the JSON text between the offset `start` and the current position.
    pub(crate) fn since(&self, start: usize) -> Value<'a> {
        Value { start, text: self.text.get(start..self.at).unwrap_or_default() }
    }

    pub(crate) fn fail<T>(&self, expected: &'static str) -> Result<T, Malformed> {
        Err(Malformed { expected, at: self.at })
    }

    fn skip(&mut self) -> Result<(), Malformed> {
        // One bit for each open level, the innermost in the lowest bit: 1 is an object, 0 an array.
        let mut levels = 0_u128;
        let mut depth = 0_u32;
        loop {
            match self.peek() {
                Some(b'"') => self.string()?,
                Some(opening @ (b'{' | b'[')) => {
                    if self.depth + depth == DEPTH {
                        return self.fail("less nesting");
                    }
                    self.at += 1;
                    let object = opening == b'{';
                    let empty = self.take(if object { b'}' } else { b']' });
                    if !empty {
                        levels = (levels << 1) | u128::from(object);
                        depth += 1;
                        if object {
                            self.key()?;
                        }
                        continue;
                    }
                }
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(b't') => self.literal("true")?,
                Some(b'f') => self.literal("false")?,
                Some(b'n') => self.literal("null")?,
                _ => return self.fail("a value"),
            }
            // A value is complete; it may also complete the values around it.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                let object = levels & 1 == 1;
                match self.peek() {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.key()?;
                        }
                        break;
                    }
                    Some(b'}') if object => {}
                    Some(b']') if !object => {}
                    _ => return self.fail("a comma or the end of the object or list"),
                }
                self.at += 1;
                levels >>= 1;
                depth -= 1;
            }
        }
    }

    /// Steps over the key of a JSON member and its colon; returns the offset of the end of the key.
    fn key(&mut self) -> Result<usize, Malformed> {
        if self.peek() != Some(b'"') {
            return self.fail("a key");
        }
        self.string()?;
        let end = self.at;
        if self.take(b':') { Ok(end) } else { self.fail("a colon") }
    }

    /// Steps over a JSON string; the cursor is on its opening quote.
    fn string(&mut self) -> Result<(), Malformed> {
        self.at += 1;
        loop {
            self.plain();
            match self.text.as_bytes().get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                Some(_) => return self.fail("an escape in place of a control character"),
                None => return self.fail("the end of a string"),
            }
        }
    }

    /// Steps to the next quote, backslash or control character of a JSON string, eight bytes at a time.
    fn plain(&mut self) {
        const ONES: u64 = u64::from_ne_bytes([0x01; 8]);
        const HIGH: u64 = ONES << 7;
        let bytes = self.text.as_bytes();
        while let Some(chunk) = bytes.get(self.at..).and_then(<[u8]>::first_chunk) {
            let word = u64::from_le_bytes(*chunk);
            let (quote, backslash) = (word ^ (ONES * u64::from(b'"')), word ^ (ONES * u64::from(b'\\')));
            // A borrow can mark a wrong byte only behind a right one, so the lowest marked byte is right.
            let found = ((quote.wrapping_sub(ONES) & !quote)
                | (backslash.wrapping_sub(ONES) & !backslash)
                | (word.wrapping_sub(ONES * 0x20) & !word))
                & HIGH;
            if found != 0 {
                self.at += found.trailing_zeros() as usize / 8;
                return;
            }
            self.at += 8;
        }
        let rest = bytes.get(self.at..).unwrap_or_default();
        let special = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
        self.at += rest.iter().position(special).unwrap_or(rest.len());
    }

    fn escape(&mut self) -> Result<(), Malformed> {
        match self.text.as_bytes().get(self.at + 1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => {
                self.at += 2;
                Ok(())
            }
            Some(b'u') => match self.unicode_escape()? {
                0xD800..0xDC00 => match self.text.as_bytes().get(self.at) {
                    Some(b'\\') if matches!(self.unicode_escape()?, 0xDC00..0xE000) => Ok(()),
                    _ => self.fail("the second half of a surrogate pair"),
                },
                0xDC00..0xE000 => self.fail("the first half of a surrogate pair"),
                _ => Ok(()),
            },
            _ => self.fail("an escape"),
        }
    }

    /// Steps over one `\uXXXX` escape and returns its UTF-16 code unit.
    fn unicode_escape(&mut self) -> Result<u16, Malformed> {
        let escape = self.text.get(self.at..self.at + 6).and_then(|escape| escape.strip_prefix("\\u"));
        let digits = escape.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
            Some(unit) => {
                self.at += 6;
                Ok(unit)
            }
            None => self.fail("an escape"),
        }
    }

    fn number(&mut self) -> Result<(), Malformed> {
        self.take_any(b"-");
        // A digit behind a leading zero fails later, where a comma or the end is expected.
        if !self.take_any(b"0") {
            self.digits()?;
        }
        if self.take_any(b".") {
            self.digits()?;
        }
        if self.take_any(b"eE") {
            self.take_any(b"+-");
            self.digits()?;
        }
        Ok(())
    }

    /// Steps over the next byte if it is one of `bytes`, and returns whether it was.
    fn take_any(&mut self, bytes: &[u8]) -> bool {
        let there = self.text.as_bytes().get(self.at).is_some_and(|byte| bytes.contains(byte));
        self.at += usize::from(there);
        there
    }

    fn digits(&mut self) -> Result<(), Malformed> {
        let rest = self.text.as_bytes().get(self.at..).unwrap_or_default();
        let count = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        if count == 0 { self.fail("a digit") } else { Ok(()) }
    }

    fn literal(&mut self, word: &'static str) -> Result<(), Malformed> {
        let there = self.text.get(self.at..).is_some_and(|rest| rest.starts_with(word));
        self.at += if there { word.len() } else { 0 };
        if there { Ok(()) } else { self.fail("a value") }
    }
}

// === impl Members ===

impl<'a> Members<'_, 'a> {
    /// Steps over the key of the next member to its value, and returns the key; `None` at the end of the
    /// object. Do not call it again after `None`.
    pub(crate) fn next(&mut self) -> Result<Option<Value<'a>>, Malformed> {
        let first = std::mem::replace(&mut self.first, false);
        if self.cursor.take(b'}') {
            self.cursor.depth -= 1;
            return Ok(None);
        }
        if !first && !self.cursor.take(b',') {
            return self.cursor.fail("a comma or the end of the object");
        }
        self.cursor.peek();
        let start = self.cursor.at;
        let end = self.cursor.key()?;
        Ok(Some(Value { start, text: self.cursor.text.get(start..end).unwrap_or_default() }))
    }
}

// === impl Value ===

impl<'a> Value<'a> {
    /// Returns the offset behind the last byte of the JSON value.
    pub(crate) fn end(&self) -> usize {
        self.start + self.text.len()
    }

    /// Returns whether the JSON value is `null`, which counts as absent, as it does for the API server.
    pub(crate) fn is_null(&self) -> bool {
        self.text == "null"
    }

    /// Returns the content of a JSON string, borrowed if it has no escapes; `None` for values of other types.
    pub(crate) fn string(&self) -> Option<Cow<'a, str>> {
        let inner = self.text.strip_prefix('"')?.strip_suffix('"')?;
        if memchr::memchr(b'\\', inner.as_bytes()).is_none() {
            return Some(Cow::Borrowed(inner));
        }
        serde_json::from_str(self.text).ok().map(Cow::Owned)
    }
}

// === impl Raw ===

impl<'a> Raw<'a> {
    /// Makes the bytes of an object that the rest of its watch event follows.
    pub(crate) fn in_event(bytes: &'a [u8]) -> Self {
        Self { bytes, in_event: true }
    }

    /// Checks the text behind the object: only the rest of the watch event, or only white space.
    pub(crate) fn end(self, cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
        // Today an event has two members; a newer server may send another one.
        while self.in_event && !cursor.take(b'}') {
            if !(cursor.take(b',') && cursor.value()?.text.starts_with('"') && cursor.take(b':')) {
                return cursor.fail("a comma or the end of the event");
            }
            cursor.value()?;
        }
        cursor.end()
    }
}

impl<'a> From<&'a [u8]> for Raw<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { bytes, in_event: false }
    }
}

#[cfg(test)]
mod tests;
