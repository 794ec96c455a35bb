//! Where a configuration was read, for reading it again.

use std::io;
use std::path::{Path, PathBuf};

use super::loaded::file_in;
use super::{ConfigError, Loaded, Overrides};

/// The file of a manager's configuration, and what was said about it when it was read first: the flags over it, and the
/// controllers it may name. Given to a manager, the file is followed: see
/// [`ManagerOptions::source`](crate::manager::ManagerOptions::source).
#[derive(Clone, Debug)]
pub struct Source {
    file: PathBuf,
    overrides: Overrides,
    /// `None` for any.
    controllers: Option<Vec<String>>,
}

// === impl Source ===

impl Source {
    /// Names a file, or the `manager.yaml` of a directory, with what
    /// [`Loaded::load`] is given beside it.
    pub fn new(path: &Path, overrides: Overrides, controllers: Option<&[&str]>) -> Self {
        let controllers = controllers.map(|names| names.iter().map(|&name| name.to_owned()).collect());
        Self { file: file_in(path), overrides, controllers }
    }

    /// Returns the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Reads what the file was found to hold.
    ///
    /// # Errors
    /// If it could not be read, or anything in it is wrong.
    pub(crate) fn parse(&self, read: io::Result<String>) -> Result<Loaded, ConfigError> {
        let text = read.map_err(|source| ConfigError::Read { path: self.file.clone(), source })?;
        let controllers: Option<Vec<&str>> =
            self.controllers.as_ref().map(|names| names.iter().map(String::as_str).collect());
        let origin = self.file.display().to_string();
        Loaded::parse(&text, &origin, &self.overrides, controllers.as_deref())
    }
}
