//! Compares resourceVersions.
//!
//! Kubernetes calls resourceVersions opaque, but every server that stores in etcd counts them up, and own
//! writes can only be ordered against watch events by comparison. So decimal numbers are compared as numbers;
//! other texts are only equal or different.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The resourceVersion of an object as the API server sent it.
#[derive(Clone, PartialEq, Eq, Hash, derive_more::Debug)]
#[debug("{self}")]
pub struct ResourceVersion(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    /// A resourceVersion that is a number, which `Display` writes exactly as it was read: no sign, no leading
    /// zero.
    Number(u64),
    /// A resourceVersion that is not a plain number. Double boxing saves memory: every version holds this
    /// enum, and hardly any server sends such a text.
    Opaque(Arc<Box<str>>),
}

// === impl ResourceVersion ===

impl ResourceVersion {
    /// Makes a resourceVersion from the text of the API server. Every text is valid.
    pub fn new(text: &str) -> Self {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        let number = if plain { text.parse().ok() } else { None };
        Self(number.map_or_else(|| Form::Opaque(Arc::new(text.into())), Form::Number))
    }

    /// Returns the resourceVersion as a number; `None` for an opaque text.
    pub(crate) fn number(&self) -> Option<u64> {
        match self.0 {
            Form::Number(number) => Some(number),
            Form::Opaque(_) => None,
        }
    }

    /// Compares two resourceVersions; `None` if they differ and at least one is not a number.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Form::Number(one), Form::Number(other)) => Some(one.cmp(other)),
            (one, other) => (one == other).then_some(Ordering::Equal),
        }
    }

    /// Returns whether this resourceVersion is newer than `other`; `false` if the two cannot be compared.
    pub fn is_newer_than(&self, other: &Self) -> bool {
        self.compare(other) == Some(Ordering::Greater)
    }
}

impl fmt::Display for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Form::Number(number) => write!(f, "{number}"),
            Form::Opaque(text) => f.write_str(text),
        }
    }
}
