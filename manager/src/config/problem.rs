//! What is wrong with a configuration, one line each: all of it, up to a bound.
//!
//! The bound is there because a file that a running manager must survive may be wrong in a hundred thousand places.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io;
use std::path::PathBuf;

use super::tree::Position;

/// Most problems that are told; more only cost whoever reads them, and the process its memory.
const MOST: usize = 100;

/// Why a configuration was refused. Nothing of it is applied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The file could not be read; worth a retry only if it is still being mounted.
    #[error("{}: cannot be read", path.display())]
    Read {
        /// The file, after `manager.yaml` was appended to a directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file was read and is wrong. Displays one line per problem, in the order of the file.
    #[error("{}", lines(origin, problems))]
    Invalid {
        /// The file, or what else the text came from.
        origin: String,
        /// Never empty. Of more than a hundred those that were found first, with the number of the others at the end.
        problems: Vec<Problem>,
    },
}

/// One thing that is wrong.
///
/// Displays as `PATH: FOUND; expected EXPECTED`, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where in the file; `None` for what is not in it, such as a key that is missing.
    pub position: Option<Position>,
    /// The key, such as `controllers["*"].queue.retry.baseDelay`; empty for the document as a whole.
    pub path: String,
    /// The value found and what was expected instead.
    pub message: String,
}

/// Collects problems while a document is read. Shared by all readers of one document, hence the cell.
#[derive(Debug, Default)]
pub(super) struct Problems {
    /// Those that are told: at most [`MOST`].
    found: RefCell<Vec<Problem>>,
    /// How many more there are.
    untold: Cell<usize>,
    /// The paths of those that are told, and each path around them.
    touched: RefCell<HashSet<String>>,
    /// Where each key that was asked for and present stands, by path.
    positions: RefCell<HashMap<String, Position>>,
}

// === impl ConfigError ===

impl ConfigError {
    /// Returns the lines to print, one per problem with its cause, each beginning with the file's name.
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

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

// === impl Problems ===

impl Problems {
    /// Remembers where a key stands, so that [`Problems::about`] can point at it later.
    pub(super) fn seen(&self, path: &str, at: Position) {
        self.positions.borrow_mut().insert(path.to_owned(), at);
    }

    /// Reports a problem at a known place.
    pub(super) fn at(&self, position: Position, path: &str, message: String) {
        self.push(Some(position), path, message);
    }

    /// Reports a problem found after reading, at the key or else at the closest section around it.
    pub(super) fn about(&self, path: &str, message: String) {
        let position = {
            let positions = self.positions.borrow();
            ancestors(path).find_map(|path| positions.get(path).copied())
        };
        self.push(position, path, message);
    }

    /// Returns whether anything at or below the path was refused, so that checks which combine several values
    /// do not judge a default put in place of a value the user wrote. Where more is wrong than is told, anything may be.
    pub(super) fn touches(&self, path: &str) -> bool {
        self.untold.get() > 0 || self.touched.borrow().contains(path)
    }

    /// Returns whether one more would only be counted.
    pub(super) fn is_full(&self) -> bool {
        self.found.borrow().len() >= MOST
    }

    /// Counts problems that nobody has to put into words.
    pub(super) fn count(&self, more: usize) {
        self.untold.set(self.untold.get().saturating_add(more));
    }

    /// Returns what is told, in the order of the file, what has no place first; and where each key stands.
    pub(super) fn finish(self) -> (Vec<Problem>, HashMap<String, Position>) {
        let mut found = self.found.into_inner();
        found.sort_by_key(|problem| problem.position);
        let untold = self.untold.get();
        if untold > 0 {
            found.push(Problem {
                position: None,
                path: String::new(),
                message: format!("and {untold} more problems"),
            });
        }
        (found, self.positions.into_inner())
    }

    /// Reports a problem whose place may be unknown.
    pub(super) fn push(&self, position: Option<Position>, path: &str, message: String) {
        if self.is_full() {
            return self.count(1);
        }
        self.touched.borrow_mut().extend(ancestors(path).map(str::to_owned));
        self.found.borrow_mut().push(Problem { position, path: path.to_owned(), message });
    }
}

/// Yields the path itself, then each path around it: `a["b"].c`, `a["b"]`, `a`.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| {
        let cut =
            if path.ends_with('"') || path.ends_with(']') { path.rfind('[') } else { path.rfind(['.', '[']) };
        cut.and_then(|cut| path.get(..cut))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_inside_each_of_its_sections() {
        let all: Vec<_> = ancestors(r#"controllers["*"].queue.retry"#).collect();
        assert_eq!(
            all,
            [
                r#"controllers["*"].queue.retry"#,
                r#"controllers["*"].queue"#,
                r#"controllers["*"]"#,
                "controllers"
            ]
        );
        assert_eq!(ancestors("probePolicy.allow[3]").nth(1), Some("probePolicy.allow"));
    }
}
