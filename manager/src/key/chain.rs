//! An error with its causes on one line, for a log or an operator.

use std::error::Error;
use std::fmt;

/// Displays an error with all its causes, joined by `: `. A cause is left out if its text is already part of
/// the line, as some libraries repeat their source.
#[derive(Debug)]
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn Error + 'static));

// === impl Chain ===

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = self.0.to_string();
        let mut cause = self.0.source();
        while let Some(error) = cause {
            let next = error.to_string();
            if !text.contains(&next) {
                text.push_str(": ");
                text.push_str(&next);
            }
            cause = error.source();
        }
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests;
