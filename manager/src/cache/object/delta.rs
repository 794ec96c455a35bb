//! One change of one object.

use super::view::View;
use crate::client::Writer;

/// One change of one object, as handlers see it: `old` and `new` are the states before and after.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// The state before; `None` for a new object. On a delete this is the last known state.
    pub old: Option<&'a View>,
    /// The state after; `None` for a deleted object.
    pub new: Option<&'a View>,
    /// The object was there when this handler, or the store, began.
    pub initial: bool,
    /// Nothing changed: the periodic look, with `old` and `new` the same version.
    pub resync: bool,
    /// This process made the change, and who of it; the watch event that follows is silent.
    pub own_write: Option<Writer>,
}

/// Where a change came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cache) enum Origin {
    /// A list, or the initial events of a watch: the first ones are no news.
    Initial,
    /// A watch event, or what a later list found different.
    Live,
    /// The answer to a write of this process.
    OwnWrite(Writer),
    /// Nothing changed: the periodic look.
    Resync,
}

// === impl Delta ===

impl<'a> Delta<'a> {
    pub(in crate::cache) fn new(old: Option<&'a View>, new: Option<&'a View>, origin: Origin) -> Self {
        let own_write = if let Origin::OwnWrite(writer) = origin { Some(writer) } else { None };
        let (initial, resync) = (origin == Origin::Initial, origin == Origin::Resync);
        Self { old, new, initial, resync, own_write }
    }

    /// Returns the newest state there is: the new one, or for a delete the last known.
    pub fn latest(&self) -> Option<&'a View> {
        self.new.or(self.old)
    }
}
