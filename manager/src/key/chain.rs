//! An error with its causes on one line, for a log or an operator.

use std::error::Error;
use std::fmt;

/// Displays an error with its causes.
#[derive(Debug)]
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn Error + 'static));

// === impl Chain ===

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
