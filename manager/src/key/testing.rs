//! A key of a type of its own, for the tests of whatever takes any key.

use std::fmt;

use super::Key;

/// A key that is a number and names no object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) u32);

impl Key for Id {
    fn namespace(&self) -> Option<&str> {
        None
    }

    fn name(&self) -> &'static str {
        "id"
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "id-{}", self.0)
    }
}
