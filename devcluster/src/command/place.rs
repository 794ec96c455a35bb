//! The folder of a cluster in the background: its lock, its kubeconfig and its log.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

/// Longest name of a cluster.
const LONGEST: usize = 63;

/// The folder of a cluster in the background, which only this user may read.
#[derive(Debug)]
pub(super) struct Place(PathBuf);

// === impl Place ===

impl Place {
    /// Finds the folder of a cluster, and makes it if there is none.
    pub(super) fn of(name: &str) -> io::Result<Self> {
        let folder = |name| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let all = folder("XDG_RUNTIME_DIR").or_else(|| Some(folder("HOME")?.join(".cache")));
        let all = all.ok_or_else(|| io::Error::other("neither XDG_RUNTIME_DIR nor HOME is set"))?;
        let folder = all.join("mainstay-cluster").join(name);
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self(folder))
    }

    /// Takes the lock and leaves the id of this process in it; `None` while the process of the cluster has
    /// it.
    pub(super) fn lock(&self) -> io::Result<Option<File>> {
        let mut file = self.open()?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
            Ok(()) => {
                file.set_len(0)?;
                write!(file, "{}", std::process::id())?;
                Ok(Some(file))
            }
        }
    }

    /// Waits until no process has the lock, and takes it.
    pub(super) fn wait(&self) -> io::Result<File> {
        let file = self.open()?;
        file.lock()?;
        Ok(file)
    }

    fn open(&self) -> io::Result<File> {
        let path = self.0.join("lock");
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
    }

    /// Returns the id of the process that took the lock last.
    pub(super) fn process(&self) -> Option<i32> {
        fs::read_to_string(self.0.join("lock")).ok()?.parse().ok()
    }

    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.0.join("kubeconfig")
    }

    pub(super) fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    /// Removes the folder.
    pub(super) fn remove(&self) -> io::Result<()> {
        fs::remove_dir_all(&self.0)
    }
}

/// Checks the name of a cluster, which is the name of a folder.
pub(super) fn name(text: &str) -> Result<String, String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if text.is_empty() || text.len() > LONGEST || !text.chars().all(allowed) {
        return Err(format!("expected 1 to {LONGEST} lower-case letters, digits and dashes"));
    }
    Ok(text.to_owned())
}
