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

/// The uid of an object as the API server sent it. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("{self}")]
pub struct Uid(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    /// A uid that is a UUID in lower case, with hyphens at the standard positions.
    Uuid([u8; 16]),
    Text(Arc<str>),
}

/// The offsets of the hyphens in the text of a UUID, one bit each.
const HYPHENS: u64 = 1 << 8 | 1 << 13 | 1 << 18 | 1 << 23;
/// The length of a UUID as text, in bytes.
const LENGTH: usize = 36;

// === impl Uid ===

impl Uid {
    /// Makes a uid from the text of `metadata.uid`. Every text is valid, and `Display` writes it unchanged.
    pub fn new(text: &str) -> Self {
        Self(parse(text).map_or_else(|| Form::Text(text.into()), Form::Uuid))
    }
}

/// Parses a UUID, if `Display` of [`Uid`] would write the same text; `None` for any other text.
fn parse(text: &str) -> Option<[u8; 16]> {
    if text.len() != LENGTH {
        return None;
    }
    let mut uuid = 0_u128;
    for (at, byte) in text.bytes().enumerate() {
        let digit = match (byte, HYPHENS >> at & 1) {
            (b'-', 1) => continue,
            (b'0'..=b'9', 0) => byte - b'0',
            (b'a'..=b'f', 0) => byte - b'a' + 10,
            _ => return None,
        };
        uuid = uuid << 4 | u128::from(digit);
    }
    Some(uuid.to_be_bytes())
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
        let uuid = match &self.0 {
            Form::Uuid(bytes) => u128::from_be_bytes(*bytes),
            Form::Text(text) => return f.write_str(text),
        };
        let group = |shift: u32| (uuid >> shift) & 0xffff;
        write!(f, "{:08x}-{:04x}-{:04x}", uuid >> 96, group(80), group(64))?;
        write!(f, "-{:04x}-{:012x}", group(48), uuid & 0xffff_ffff_ffff)
    }
}

#[cfg(test)]
mod tests;
