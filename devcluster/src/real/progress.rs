//! Progress lines of a long start.

use std::fmt;
use std::sync::Arc;

/// A callback that receives the output of a build, line by line. The default ignores it.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<Callback>>);

type Callback = dyn Fn(&str) + Send + Sync;

// === impl Progress ===

impl Progress {
    /// Returns a progress that calls `callback` with each line of output.
    pub fn new(callback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(callback)))
    }

    pub(crate) fn report(&self, line: &str) {
        if let Some(callback) = &self.0 {
            callback(line);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(reported)" } else { "Progress(ignored)" })
    }
}
