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
mod tests {
    use super::*;

    #[test]
    fn whatever_it_is_it_is_written_back_as_it_came() {
        for text in [
            "0f8fad5b-d9cb-469f-a165-70867728950e",
            "0F8FAD5B-D9CB-469F-A165-70867728950E",
            "0f8fad5bd9cb469fa16570867728950e",
            "0f8fad5b-d9cb-469f-a165-7086772895-e",
            "0f8fad5b-d9cb-469f-a165+70867728950e",
            "0f8fad5b-d9cb-469f-a165-70867728950g",
            "0f8fad5-bd9cb-469f-a165-70867728950e",
            "0f8fad5b-d9cb-469f-a165-70867728950e0",
            "0f8fad5b-d9cb-469f-a165-70867728950\u{e9}",
            "u1",
            "",
        ] {
            let uid = Uid::new(text);
            assert_eq!(uid.to_string(), text);
            assert!(uid == text && uid == Uid::new(text));
        }
    }

    #[test]
    fn uids_that_differ_in_their_text_are_two() {
        let texts = [
            "0f8fad5b-d9cb-469f-a165-70867728950e",
            "0F8FAD5B-D9CB-469F-A165-70867728950E",
            "0f8fad5b-d9cb-469f-a165-70867728950f",
            "0f8fad5bd9cb469fa16570867728950e",
            "u1",
        ];
        for (at, one) in texts.iter().enumerate() {
            for (other_at, other) in texts.iter().enumerate() {
                let same = (Uid::new(one) == Uid::new(other), Uid::new(one) == *other);
                assert_eq!(same, (at == other_at, at == other_at), "{one} and {other}");
            }
        }
    }

    #[test]
    fn one_of_a_server_takes_no_memory_of_its_own() {
        assert!(matches!(Uid::new("0f8fad5b-d9cb-469f-a165-70867728950e").0, Form::Uuid(_)));
    }
}
