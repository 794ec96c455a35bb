//! The uid that distinguishes an object from earlier ones of the same name.
//!
//! API servers use UUIDs as uids, and a store holds one per object: sixteen bytes instead of 36 bytes of text
//! in their own allocation. Any other text is stored as it is.
//!
//! # Invariants
//! 1. `Display` writes exactly the text that was read.
//! 2. Equal texts have the same form, so comparing and hashing forms is enough.

use std::fmt;
use std::sync::Arc;

/// A uid as the API server sent it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("{self}")]
pub struct Uid(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    /// A UUID in lower case, with hyphens at the standard positions.
    Uuid([u8; 16]),
    Text(Arc<str>),
}

/// The length of a UUID as text.
const LENGTH: usize = 36;
/// Bytes of a UUID that have a hyphen before them.
const HYPHENS: [usize; 4] = [4, 6, 8, 10];

// === impl Uid ===

impl Uid {
    /// Makes a uid from the text of `metadata.uid`. Every text is valid, and `Display` writes it unchanged.
    pub fn new(text: &str) -> Self {
        Self(parse(text).map_or_else(|| Form::Text(text.into()), Form::Uuid))
    }
}

/// Parses a UUID, if `Display` of [`Uid`] would write the same text.
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

#[cfg(test)]
mod tests;
