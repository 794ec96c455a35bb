//! The file, flags and schema of a configuration, to read the file again when it changes.

use std::io;
use std::path::{Path, PathBuf};

use super::loaded::file_in;
use super::{ConfigError, ConfigSchema, Loaded, Overrides};

/// The configuration file of a manager, with the flags that override it and the keys it may have. A manager
/// reloads the file when it changes: see [`ManagerOptions::source`](crate::manager::ManagerOptions::source).
#[derive(Clone, Debug)]
pub struct ConfigSource {
    file: PathBuf,
    overrides: Overrides,
    schema: ConfigSchema,
}

// === impl ConfigSource ===

impl ConfigSource {
    /// Makes a source from a file, or from a directory with a `manager.yaml`; nothing is read yet. The
    /// arguments are those of [`ConfigSchema::load`].
    pub fn new(path: &Path, overrides: Overrides, schema: ConfigSchema) -> Self {
        Self { file: file_in(path), overrides, schema }
    }

    /// Returns the path of the file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Parses and checks the text of the file, `read` being the outcome of reading it.
    ///
    /// # Errors
    /// If the file could not be read, or anything in it is wrong.
    pub(crate) fn parse(&self, read: io::Result<String>) -> Result<Loaded, ConfigError> {
        let text = read.map_err(|source| ConfigError::Read { path: self.file.clone(), source })?;
        self.schema.parse(&text, &self.file.display().to_string(), &self.overrides)
    }
}
