//! The configuration of a running manager: values in force, values that wait for a restart, and a refused
//! file.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::time::Instant;

use super::{Loaded, LogFilter};

/// The configuration of a running manager, and the outcome of the last reload.
#[derive(Clone, Debug)]
pub struct ReloadStatus {
    /// The configuration file that the manager reloads when it changes; `None` if it follows no file.
    pub file: Option<PathBuf>,
    /// The configuration loaded at the start of the process: in force for keys that apply at the next start.
    pub started: Arc<Loaded>,
    /// The configuration that a reload accepted last: in force for keys that apply live.
    pub accepted: Arc<Loaded>,
    /// The time at which the configuration `accepted` was accepted.
    pub accepted_at: Instant,
    /// The problems of the configuration file in its present form; `None` if `accepted` was read from it.
    pub refused: Option<RefusedFile>,
    /// A log filter set by hand; in force instead of `logging.level` until that key changes.
    pub log_level: Option<LogFilter>,
}

/// A version of the configuration file that was refused when the manager reloaded it.
#[derive(Clone, Debug)]
pub struct RefusedFile {
    /// The time at which the refused file was read.
    pub at: Instant,
    /// All problems of the refused file, one line each; never empty.
    pub problems: Vec<String>,
}

// === impl ReloadStatus ===

impl ReloadStatus {
    /// Returns the status at the start of a manager, before any reload.
    pub(crate) fn new(file: Option<PathBuf>, loaded: Arc<Loaded>) -> Self {
        Self {
            file,
            started: Arc::clone(&loaded),
            accepted: loaded,
            accepted_at: Instant::now(),
            refused: None,
            log_level: None,
        }
    }
}
