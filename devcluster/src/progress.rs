//! What a long start tells of itself.

use std::fmt;
use std::sync::Arc;

/// Hears, line by line, what takes long. Says nothing by default.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Hear>>);

type Hear = dyn Fn(&str) + Send + Sync;

// === impl Progress ===

impl Progress {
    /// Calls `hear` with each line.
    pub fn new(hear: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(hear)))
    }

    pub(crate) fn tell(&self, line: &str) {
        if let Some(hear) = &self.0 {
            hear(line);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(heard)" } else { "Progress(unheard)" })
    }
}
