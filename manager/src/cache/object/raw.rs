//! The raw bytes of one object and of the watch event around it.

use super::json::{Cursor, Malformed};

/// Bytes that begin with an object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    pub(crate) bytes: &'a [u8],
    /// Whether the rest of a watch event follows the object; otherwise it ends the text.
    in_event: bool,
}

// === impl Raw ===

impl<'a> Raw<'a> {
    /// The object of a watch event, followed by the rest of the event.
    pub(crate) fn in_event(bytes: &'a [u8]) -> Self {
        Self { bytes, in_event: true }
    }

    /// Checks the text behind the object.
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
