//! Notices saved files by polling.
//!
//! Polling needs no library and sees each change, also on file systems that report none to the kernel of this
//! machine. The files of a program are few: a look at a thousand takes some milliseconds.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

/// The parts of a package that are watched, beside the folders of its crates. The program itself may write
/// other files, and cargo does.
const WATCHED: [&str; 5] = ["Cargo.toml", "build.rs", "config", "samples", "src"];

/// Time between two polls. A change is reported once two polls agree, because saving takes several steps.
const PERIOD: Duration = Duration::from_millis(100);

/// The watched files, and their state when the last build began.
#[derive(Debug, Default)]
pub(super) struct Sources {
    paths: BTreeSet<PathBuf>,
    seen: Files,
}

type Files = BTreeMap<PathBuf, State>;

/// The state of a file. Two states with the same content are equal: a build script may write the same source
/// anew in each build.
#[derive(Clone, Copy, Debug)]
struct State {
    modified: Option<SystemTime>,
    length: u64,
    /// The hash of the content, which is read only if the other two fields have changed.
    content: u64,
}

// === impl Sources ===

impl Sources {
    /// Watches a file or folder. Files written after the build `began` count as changed.
    pub(super) async fn add(&mut self, path: &Path, began: SystemTime) {
        if self.paths.insert(path.to_owned()) {
            let mut files = look([path.to_owned()].into(), Files::new()).await;
            files.retain(|_, state| state.modified.is_none_or(|modified| modified <= began));
            self.seen.extend(files);
        }
    }

    /// Waits until a file differs from its state at the end of the last call, and is not being written.
    ///
    /// # Cancel safety
    /// No change is lost; call it again.
    pub(super) async fn changed(&mut self) {
        let mut ticks = interval(PERIOD);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last: Option<Files> = None;
        loop {
            ticks.tick().await;
            let known = last.as_ref().unwrap_or(&self.seen).clone();
            let now = look(self.paths.clone(), known).await;
            if now != self.seen && last.as_ref() == Some(&now) {
                self.seen = now;
                return;
            }
            last = Some(now);
        }
    }
}

// === impl State ===

impl State {
    /// Reads the state of a file that had this state before.
    fn read(path: &Path, found: &Metadata, before: Option<&Self>) -> Self {
        let (modified, length) = (found.modified().ok(), found.len());
        let content = match before {
            Some(before) if (before.modified, before.length) == (modified, length) => before.content,
            // An unreadable file has no content; cargo will name it.
            _ => fs::read(path).map_or(0, |content| hash(&content)),
        };
        Self { modified, length, content }
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.content == other.content
    }
}

/// Returns the paths of a package that are watched.
pub(super) fn of_package(folder: &Path) -> impl Iterator<Item = PathBuf> {
    WATCHED.into_iter().map(|part| folder.join(part))
}

/// Returns whether a file is hidden, or the backup of an editor.
pub(super) fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with(['.', '#']) || name.ends_with('~')
}

/// Returns the state of all files below these paths, without hidden ones; `known` is an earlier one.
async fn look(paths: BTreeSet<PathBuf>, known: Files) -> Files {
    let looked = spawn_blocking(move || {
        let (mut files, mut left) = (Files::new(), Vec::from_iter(paths));
        while let Some(path) = left.pop() {
            // Follows symbolic links. A file may have been removed meanwhile.
            let Ok(found) = fs::metadata(&path) else { continue };
            if found.is_dir() {
                let entries = fs::read_dir(&path).into_iter().flatten().flatten();
                left.extend(entries.map(|entry| entry.path()).filter(|path| !is_hidden(path)));
            } else {
                let state = State::read(&path, &found, known.get(&path));
                files.insert(path, state);
            }
        }
        files
    });
    looked.await.unwrap_or_default()
}

fn hash(content: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(content);
    hasher.finish()
}

#[cfg(test)]
mod tests;
