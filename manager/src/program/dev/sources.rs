//! Notices saved files by polling.
//!
//! Polling needs no library and sees each change, also on file systems that report none to the kernel of this
//! machine. The files of a program are few: a look at a thousand takes some milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

/// The parts of a package that make up a program. Only these are watched: the program itself may write other
/// files, and cargo does.
const WATCHED: [&str; 5] = ["Cargo.toml", "build.rs", "config", "samples", "src"];

/// Time between two polls. A change is reported once two polls agree, because saving takes several steps.
const PERIOD: Duration = Duration::from_millis(100);

/// The watched files, and their state when the last build began.
#[derive(Debug, Default)]
pub(super) struct Sources {
    paths: BTreeSet<PathBuf>,
    seen: Files,
}

/// Time of the last write and length of each file.
type Files = BTreeMap<PathBuf, (Option<SystemTime>, u64)>;

// === impl Sources ===

impl Sources {
    /// Watches a file or folder from now on.
    pub(super) async fn add(&mut self, path: &Path) {
        if self.paths.insert(path.to_owned()) {
            self.seen.extend(look([path.to_owned()].into()).await);
        }
    }

    /// Watches the sources of a package from now on.
    pub(super) async fn add_package(&mut self, folder: &Path) {
        for part in WATCHED {
            self.add(&folder.join(part)).await;
        }
    }

    /// Waits until a file differs from its state at the end of the last call, and is not being written.
    ///
    /// # Cancel safety
    /// No change is lost; call it again.
    pub(super) async fn changed(&mut self) {
        let paths = Arc::new(self.paths.clone());
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = None;
        loop {
            ticks.tick().await;
            let now = look(BTreeSet::clone(&paths)).await;
            if now != self.seen && last.as_ref() == Some(&now) {
                self.seen = now;
                return;
            }
            last = Some(now);
        }
    }
}

/// Returns the state of all files below these paths, without hidden ones.
async fn look(paths: BTreeSet<PathBuf>) -> Files {
    let looked = spawn_blocking(move || {
        let (mut files, mut left) = (Files::new(), Vec::from_iter(paths));
        while let Some(path) = left.pop() {
            // Follows symbolic links. A file may have been removed meanwhile.
            let Ok(found) = fs::metadata(&path) else { continue };
            if found.is_dir() {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                left.extend(
                    entries
                        .filter(|entry| !is_hidden(&entry.file_name().to_string_lossy()))
                        .map(|entry| entry.path()),
                );
            } else {
                files.insert(path, (found.modified().ok(), found.len()));
            }
        }
        files
    });
    looked.await.unwrap_or_default()
}

/// Returns whether a file is hidden, or the backup of an editor.
fn is_hidden(name: &str) -> bool {
    name.starts_with(['.', '#']) || name.ends_with('~')
}

#[cfg(test)]
mod tests;
