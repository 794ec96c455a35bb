//! A test that needs a program or a right that this machine lacks is skipped, or fails in CI.

use std::io::Write as _;

use mainstay_devcluster::DevClusterError;

/// The error of a cluster that did not start.
#[derive(Clone, Debug)]
pub(super) struct Failure {
    text: String,
    /// Whether the cause is that this machine lacks the programs.
    unavailable: bool,
}

// === impl Failure ===

impl From<DevClusterError> for Failure {
    fn from(error: DevClusterError) -> Self {
        let unavailable = error.is_unavailable();
        Self { text: format!("{:#}", anyhow::Error::from(error)), unavailable }
    }
}

impl Failure {
    /// Returns None, after a printed notice, if this machine lacks the programs of a cluster; otherwise, and
    /// in CI, fails the test.
    pub(super) fn skip_or_fail<T>(&self) -> Option<T> {
        let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
        assert!(self.unavailable && !ci, "{}", self.text);
        say(&format!("skipped: {}", self.text));
        None
    }
}

/// Returns None, after a printed notice with this text, for a program or right that this machine lacks; in CI
/// that fails the test instead.
pub(crate) fn skip_or_fail<T>(text: &str) -> Option<T> {
    Failure { text: text.to_owned(), unavailable: true }.skip_or_fail()
}

/// Prints a line past the test runner's capture: a build that takes minutes must not look like a hang.
pub(super) fn say(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}
