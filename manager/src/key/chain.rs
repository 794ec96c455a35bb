//! An error with its causes on one line, for a log or an operator.

use std::error::Error;
use std::fmt;

/// Displays an error with all its causes, each once, joined by `: `. Some libraries repeat a cause in the text of its
/// consequence; such a cause is not told again.
#[derive(Debug)]
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn Error + 'static));

// === impl Chain ===

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let of_cause = error.to_string();
            if !text.contains(&of_cause) {
                text.push_str(": ");
                text.push_str(&of_cause);
            }
            cause = error.source();
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests;
