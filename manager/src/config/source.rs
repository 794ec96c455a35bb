//! Where a configuration was read, for reading it again.

use std::io;
use std::path::{Path, PathBuf};

use super::loaded::file_in;
use super::{ConfigError, ConfigSchema, Loaded, Overrides};

/// The file of a manager's configuration, with the flags over it and the keys it may have. A manager follows it: see
/// [`ManagerOptions::source`](crate::manager::ManagerOptions::source).
#[derive(Clone, Debug)]
pub struct Source {
    file: PathBuf,
    overrides: Overrides,
    schema: ConfigSchema,
}

// === impl Source ===

impl Source {
    /// Names a file, or the `manager.yaml` of a directory, with the other arguments of [`ConfigSchema::load`].
    pub fn new(path: &Path, overrides: Overrides, schema: ConfigSchema) -> Self {
        Self { file: file_in(path), overrides, schema }
    }

    /// Returns the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Judges the text of the file.
    ///
    /// # Errors
    /// If it could not be read, or anything in it is wrong.
    pub(crate) fn parse(&self, read: io::Result<String>) -> Result<Loaded, ConfigError> {
        let text = read.map_err(|source| ConfigError::Read { path: self.file.clone(), source })?;
        self.schema.parse(&text, &self.file.display().to_string(), &self.overrides)
    }
}
