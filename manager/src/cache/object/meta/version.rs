//! When one version of an object is newer than another.
//!
//! Kubernetes calls resourceVersions opaque, but every server that stores in etcd counts them up, and own writes
//! can only be ordered against watch events by comparing. So decimal numbers are compared, anything else is only
//! equal or not.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// A resourceVersion as the server wrote it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceVersion(Form);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Form {
    /// A number that is written back exactly as it came: no sign, no leading zero.
    Number(u64),
    /// Boxed once more, as hardly any server writes one: every version of every object holds this.
    Opaque(Arc<Box<str>>),
}

// === impl ResourceVersion ===

impl ResourceVersion {
    /// Takes the server's text.
    pub fn new(text: &str) -> Self {
        let plain = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
        let number = if plain { text.parse().ok() } else { None };
        Self(number.map_or_else(|| Form::Opaque(Arc::new(text.into())), Form::Number))
    }

    /// Returns the number, if it is one.
    pub(crate) fn number(&self) -> Option<u64> {
        match self.0 {
            Form::Number(number) => Some(number),
            Form::Opaque(_) => None,
        }
    }

    /// Orders two versions; `None` when they differ and at least one is not a number.
    pub fn compare(&self, other: &Self) -> Option<Ordering> {
        match (&self.0, &other.0) {
            (Form::Number(ours), Form::Number(theirs)) => Some(ours.cmp(theirs)),
            (ours, theirs) => (ours == theirs).then_some(Ordering::Equal),
        }
    }

    /// Returns whether this version is known to be newer.
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

impl fmt::Debug for ResourceVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests;
