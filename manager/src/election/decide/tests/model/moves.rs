//! The moves of the model.

/// Lease duration after [`Hand::Lengthen`], in seconds.
pub(super) const LENGTHENED: i32 = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    TimePasses,
    Serve(usize),
    Answer(usize),
    Fail(usize),
    /// The network loses a request or its answer; no replica has to run for that, and none is notified.
    Lose(usize),
    ServeLate(usize),
    Watch(usize),
    Tick(usize),
    WatchDown(usize),
    WatchUp(usize),
    Stop(usize),
    WorkEnds(usize),
    GiveWorkUp(usize),
    Restart(usize),
    ByHand(Hand),
}

/// An edit of the Lease by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hand {
    Delete,
    /// Removes the holder.
    Clear,
    /// Names another holder and keeps the other fields.
    Name(&'static str),
    /// Sets a lease duration of two seconds. A duration of one second and no holder would be a release.
    Shorten,
    /// Sets a lease duration of [`LENGTHENED`].
    Lengthen,
    /// Changes a field outside of the record, such as a label.
    Touch,
}

// === impl Move ===

impl Move {
    /// Returns the replica whose process must run for this move, if any.
    pub(super) fn runs_on(self) -> Option<usize> {
        match self {
            Self::Answer(i)
            | Self::Fail(i)
            | Self::Watch(i)
            | Self::Tick(i)
            | Self::WatchDown(i)
            | Self::WatchUp(i)
            | Self::Stop(i)
            | Self::WorkEnds(i)
            | Self::GiveWorkUp(i) => Some(i),
            Self::TimePasses
            | Self::Serve(_)
            | Self::Lose(_)
            | Self::ServeLate(_)
            | Self::Restart(_)
            | Self::ByHand(_) => None,
        }
    }
}
