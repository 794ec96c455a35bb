//! The bytes of one object, and what may follow them.

use super::json::{Cursor, Malformed};

/// Bytes that begin with an object.
#[derive(Clone, Copy, Debug)]
pub(in crate::cache) struct Raw<'a> {
    pub(in crate::cache) bytes: &'a [u8],
    /// Whether the rest of the watch event follows that it came in, instead of nothing.
    in_event: bool,
}

// === impl Raw ===

impl<'a> Raw<'a> {
    /// Bytes behind which the rest of a watch event follows.
    pub(in crate::cache) fn in_event(bytes: &'a [u8]) -> Self {
        Self { bytes, in_event: true }
    }

    /// Makes sure that only what may follow the object does.
    pub(in crate::cache) fn end(self, cursor: &mut Cursor<'_>) -> Result<(), Malformed> {
        // An event has two members; a server that knows a third one may send it.
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
