//! One change of one object, as handlers receive it.

use super::view::View;
use crate::client::Writer;

/// One change of one object. `old` and `new` are its states before and after the change.
#[derive(Clone, Copy, Debug)]
pub struct Delta<'a> {
    /// The state of the object before the change; `None` for a new object. For a deletion this is the last
    /// known state.
    pub old: Option<&'a View>,
    /// The state of the object after the change; `None` for a deleted object.
    pub new: Option<&'a View>,
    /// Whether the object existed before this handler subscribed, or before the store's first list.
    pub initial: bool,
    /// Whether the delta comes from a periodic resync: `old` and `new` are then the same version.
    pub resync: bool,
    /// The writer of the change if this process made it; otherwise `None`. The watch event of the same write
    /// causes no further delta.
    pub own_write: Option<Writer>,
}

/// The source of a change of an object in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The change comes from the first list, or from the initial events of a watch.
    Initial,
    /// The change comes from a watch event, or is a difference found by a relist.
    Live,
    /// The change comes from the response to a write of this process, by this writer.
    OwnWrite(Writer),
    /// The delta comes from a periodic resync; the object has not changed.
    Resync,
}

// === impl Delta ===

impl<'a> Delta<'a> {
    pub(in crate::cache) fn new(old: Option<&'a View>, new: Option<&'a View>, origin: Origin) -> Self {
        let own_write = if let Origin::OwnWrite(writer) = origin { Some(writer) } else { None };
        let (initial, resync) = (origin == Origin::Initial, origin == Origin::Resync);
        Self { old, new, initial, resync, own_write }
    }

    /// Returns the new state of the object, or the last known state of a deleted object.
    pub fn latest(&self) -> Option<&'a View> {
        self.new.or(self.old)
    }
}
