//! Follows files by polling.
//!
//! Once a second the attributes of the files are read, through symbolic links. They change when a file is
//! saved in place, replaced by a rename, or when the directory of a mounted `ConfigMap` or `Secret` is
//! swapped. Files with changed attributes are read, and read again 100 ms later; their contents are returned
//! once two reads agree. So an incomplete file is not returned, nor a new certificate with the previous key.
//!
//! # Invariants
//! 1. Files are accessed on a blocking thread, one at a time per follower: a volume that hangs delays this
//!    follower and holds one thread.
//! 2. Contents are returned only if they differ from those returned last. An error is contents too.

use std::fs::metadata;
use std::hash::{BuildHasher as _, RandomState};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::os::open_without_waiting;

/// Time between two polls of followed files.
const PERIOD: Duration = Duration::from_secs(1);

/// Time between two reads of followed files that have to agree. A program that writes a file of at most 1 MiB
/// does not pause for so long between two writes, and a longer wait would only delay the contents. Programs
/// that write over a network rename a complete file.
const CONFIRMATION: Duration = Duration::from_millis(100);

/// Length in bytes of the largest file that is read: as large as a `ConfigMap` or a `Secret` may be.
pub(crate) const MAX_FILE_BYTES: u64 = 1 << 20;

/// Follows `N` files with contents that belong together, and returns the contents after each change.
#[derive(Debug)]
pub(crate) struct Follower<const N: usize> {
    files: Arc<[PathBuf; N]>,
    ticks: Interval,
    /// The attributes of the followed files before the last read; `None` if the next poll must read in any
    /// case.
    attributes: Option<[Attributes; N]>,
    /// Hash of file contents that were read once, to be confirmed by a second read.
    unconfirmed: Option<u64>,
    /// Hash of the file contents that were returned last; `None` before the first.
    returned: Option<u64>,
    hasher: RandomState,
    read: fn(&Path) -> io::Result<Vec<u8>>,
}

/// Attributes of a file: device, inode, length, and the times of the last write and of the last change; at
/// least one of them changes when the file is written or replaced. `None` if they cannot be read.
type Attributes = Option<(u64, u64, u64, (i64, i64), (i64, i64))>;

// === impl Follower ===

impl<const N: usize> Follower<N> {
    /// Makes a follower of the files at these paths, which need not exist. Must be called within a runtime.
    pub(crate) fn new(files: [PathBuf; N]) -> Self {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            files: Arc::new(files),
            ticks,
            attributes: None,
            unconfirmed: None,
            returned: None,
            hasher: RandomState::new(),
            read: read_regular,
        }
    }

    /// Returns the contents of each followed file or the error of reading it: on the first call as they are,
    /// later once they have changed.
    ///
    /// # Cancel safety
    /// No change is lost, but a started read continues on its thread; so callers should not drop the future
    /// often.
    pub(crate) async fn next(&mut self) -> [io::Result<Vec<u8>>; N] {
        loop {
            self.ticks.tick().await;
            let (files, read) = (Arc::clone(&self.files), self.read);
            let known = self.attributes.filter(|_| self.unconfirmed.is_none());
            let polled = spawn_blocking(move || {
                let attributes = files.each_ref().map(|file| attributes(file));
                (known != Some(attributes)).then(|| (attributes, files.each_ref().map(|file| read(file))))
            });
            // Unchanged, or the read panicked: wait for the next tick.
            let Ok(Some((attributes, contents))) = polled.await else { continue };
            // An error may end without a change of the attributes.
            self.attributes = contents.iter().all(Result::is_ok).then_some(attributes);
            let read = contents.each_ref().map(|read| read.as_ref().map_err(ToString::to_string));
            let hash = self.hasher.hash_one(read);
            if self.returned == Some(hash) {
                self.unconfirmed = None;
            } else if self.unconfirmed.replace(hash) == Some(hash) {
                self.unconfirmed = None;
                self.returned = Some(hash);
                return contents;
            } else {
                self.ticks.reset_after(CONFIRMATION);
            }
        }
    }
}

fn attributes(file: &Path) -> Attributes {
    let found = metadata(file).ok()?;
    let (modified, changed) = ((found.mtime(), found.mtime_nsec()), (found.ctime(), found.ctime_nsec()));
    Some((found.dev(), found.ino(), found.size(), modified, changed))
}

/// Reads a regular file of at most [`MAX_FILE_BYTES`]. Anything else is an error; a pipe does not block.
pub(crate) fn read_regular(path: &Path) -> io::Result<Vec<u8>> {
    let file = open_without_waiting(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed distinguishes a full file from one that is too long.
    let length = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if u64::try_from(length).is_ok_and(|length| length > MAX_FILE_BYTES) {
        return Err(io::Error::other("longer than 1 MiB"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests;
