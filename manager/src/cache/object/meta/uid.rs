//! What tells an object from an earlier one of the same name.
//!
//! Servers make uids that are UUIDs, and stores hold one per object: sixteen bytes say what would be 36 of text in an
//! allocation of its own. Any other text is kept as it is.
//!
//! # Invariants
//! 1. It is written back exactly as it came.
//! 2. Equal texts have one form, so that forms are compared and hashed, and never texts.

use std::fmt;
use std::sync::Arc;

/// A uid as the server wrote it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Uid(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    /// In lower case, with its hyphens where they belong.
    Uuid([u8; 16]),
    Text(Arc<str>),
}

/// The length of a UUID as text.
const LENGTH: usize = 36;
/// Before which of its bytes a UUID has a hyphen.
const HYPHENS: [usize; 4] = [4, 6, 8, 10];

// === impl Uid ===

impl Uid {
    /// Takes the server's text.
    pub fn new(text: &str) -> Self {
        Self(parse(text).map_or_else(|| Form::Text(text.into()), Form::Uuid))
    }
}

/// Reads a UUID that [`Uid`]'s `Display` would write the same.
fn parse(text: &str) -> Option<[u8; 16]> {
    let whole: &[u8; LENGTH] = text.as_bytes().try_into().ok()?;
    let mut rest = whole.as_slice();
    let mut bytes = [0; 16];
    for (at, byte) in bytes.iter_mut().enumerate() {
        if HYPHENS.contains(&at) {
            rest = rest.strip_prefix(b"-")?;
        }
        let ([high, low], behind) = rest.split_first_chunk()?;
        *byte = digit(*high)? << 4 | digit(*low)?;
        rest = behind;
    }
    Some(bytes)
}

fn digit(text: u8) -> Option<u8> {
    match text {
        b'0'..=b'9' => Some(text - b'0'),
        b'a'..=b'f' => Some(text - b'a' + 10),
        _ => None,
    }
}

impl From<&str> for Uid {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl From<&Self> for Uid {
    fn from(uid: &Self) -> Self {
        uid.clone()
    }
}

impl From<String> for Uid {
    fn from(text: String) -> Self {
        Self::new(&text)
    }
}

impl PartialEq<str> for Uid {
    fn eq(&self, other: &str) -> bool {
        match &self.0 {
            Form::Uuid(bytes) => parse(other).as_ref() == Some(bytes),
            Form::Text(text) => **text == *other,
        }
    }
}

impl PartialEq<&str> for Uid {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = match &self.0 {
            Form::Uuid(bytes) => bytes,
            Form::Text(text) => return f.write_str(text),
        };
        for (at, byte) in bytes.iter().enumerate() {
            if HYPHENS.contains(&at) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
