//! Problems of a configuration, one line each.

use std::fmt;
use std::io;
use std::path::PathBuf;

use serde_json::Value as Json;

use super::messages::{one_line, shown};

/// The most problems in one configuration error: a file that a running manager reloads may have a hundred
/// thousand.
const MAX_PROBLEMS: usize = 100;

/// The reason that a configuration was refused. No part of the configuration is applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The configuration file could not be read; worth a retry only if it is still being mounted.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The path of the configuration file that was read: with `manager.yaml` appended if the given path
        /// is a directory.
        path: PathBuf,
        /// The error of the operating system that prevented the read.
        source: io::Error,
    },
    /// The configuration was read and has problems. Displays one line per problem.
    #[error("{}", lines(origin, problems))]
    Invalid {
        /// The path of the configuration file, or another name for the origin of the text.
        origin: String,
        /// The problems of the configuration; never empty. If there are more than a hundred, the first
        /// hundred and the number of the others.
        problems: Vec<Problem>,
    },
}

/// One problem of a configuration.
///
/// Displays as `PATH: FOUND; expected EXPECTED`, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The position of the problem in the file; `None` if the value has the right type and the problem is the
    /// value itself.
    pub position: Option<Position>,
    /// The path of the key with the problem, such as `controllers["*"].queue.retry.baseDelay`; empty for the
    /// document as a whole.
    pub path: String,
    /// The text of the problem: the value found, and the values expected instead.
    pub message: String,
}

/// A position in a configuration file; line and column count from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line of the file, counted from 1.
    pub line: u64,
    /// The character within the line, counted from 1.
    pub column: u64,
}

// === impl ConfigError ===

impl ConfigError {
    /// Makes an error from the problems of a configuration. Problems beyond the first hundred are only
    /// counted.
    pub(super) fn invalid(origin: &str, mut problems: Vec<Problem>) -> Self {
        let more = problems.len().saturating_sub(MAX_PROBLEMS);
        if more > 0 {
            problems.truncate(MAX_PROBLEMS);
            problems.push(Problem::message("", format!("and {more} more problems")));
        }
        Self::Invalid { origin: origin.to_owned(), problems }
    }

    /// Returns the lines to print for this error: one per problem, each with its cause and beginning with the
    /// file's name.
    pub fn lines(&self) -> Vec<String> {
        match self {
            Self::Read { source, .. } => vec![format!("{self}: {source}")],
            Self::Invalid { .. } => self.to_string().lines().map(str::to_owned).collect(),
        }
    }
}

fn lines(origin: &str, problems: &[Problem]) -> String {
    let line = |problem: &Problem| match problem.position {
        Some(at) => format!("{origin}:{at}: {problem}"),
        None => format!("{origin}: {problem}"),
    };
    problems.iter().map(line).collect::<Vec<_>>().join("\n")
}

// === impl Problem ===

impl Problem {
    /// Makes a problem of the value at a path below its section, such as `prices.apple` or `regions[2]`.
    ///
    /// ```
    /// use mainstay::config::Problem;
    ///
    /// let problem = Problem::new("prices.apple", &0, "a price above 0");
    /// assert_eq!(problem.to_string(), "prices.apple: 0; expected a price above 0");
    /// ```
    pub fn new(
        path: impl Into<String>,
        value: &(impl serde::Serialize + ?Sized),
        expected: impl fmt::Display,
    ) -> Self {
        let value = serde_json::to_value(value).unwrap_or(Json::Null);
        Self::message(path, one_line(&format!("{}; expected {expected}", shown(&value))))
    }

    /// Makes a problem of the key at `path` with this message, without a position in the file.
    pub(super) fn message(path: impl Into<String>, message: String) -> Self {
        Self { position: None, path: path.into(), message }
    }

    /// Returns the problem with the name of its section put in front of its path.
    pub(super) fn below(self, section: &str) -> Self {
        let separator = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        Self { path: format!("{section}{separator}{}", self.path), ..self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

// === impl Position ===

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}
