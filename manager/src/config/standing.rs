//! How the configuration of a running manager stands: what is in force, what waits for a restart, what was refused.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::time::Instant;

use super::{Loaded, LogFilter};

/// What is known of a running manager's configuration.
#[derive(Clone, Debug)]
pub struct Standing {
    /// The file that is followed; `None` if none is.
    pub file: Option<PathBuf>,
    /// What the manager was started with: in force for the keys that need a restart.
    pub started: Arc<Loaded>,
    /// What was accepted last: in force for the keys that are applied live.
    pub accepted: Arc<Loaded>,
    /// When it was.
    pub accepted_at: Instant,
    /// What is wrong with the file as it is now; `None` if it is what was accepted last.
    pub refused: Option<Refused>,
    /// The log filter that somebody has set by hand since `logging.level` was read last, and that holds instead.
    pub log_level: Option<LogFilter>,
}

/// A file that was not accepted.
#[derive(Clone, Debug)]
pub struct Refused {
    /// When it was read.
    pub at: Instant,
    /// Everything that is wrong with it, one line each; never empty.
    pub problems: Vec<String>,
}

// === impl Standing ===

impl Standing {
    /// That of a manager which starts.
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
