//! Which API server a test runs on: the embedded one, or the real programs.
//!
//! The tests in `tests/real.txt` always run on the real programs, all others on the embedded server. With
//! `MAINSTAY_SERVER=real` all tests run on the real programs.

/// The tests that need the real programs: lines `test: reason`.
const REAL: &str = include_str!("../../real.txt");

/// The environment variable that selects the server of all tests.
const VARIABLE: &str = "MAINSTAY_SERVER";

/// The API server of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Server {
    Embedded,
    Real,
}

// === impl Server ===

impl Server {
    /// Returns the server of the test that calls this.
    ///
    /// # Panics
    /// If the variable has another value than `embedded` or `real`.
    pub(super) fn of_this_test() -> Self {
        match std::env::var(VARIABLE).as_deref() {
            Ok("real") => Self::Real,
            Ok("embedded" | "") | Err(_) => {
                if is_listed() {
                    Self::Real
                } else {
                    Self::Embedded
                }
            }
            Ok(other) => panic!("{VARIABLE} is {other:?}, but has to be `embedded` or `real`"),
        }
    }

    /// Returns the real server, for a cluster that the embedded one cannot provide.
    ///
    /// # Panics
    /// If the test is not in the list.
    pub(super) fn only_real() -> Self {
        assert!(is_listed(), "{:?} has to be in tests/real.txt", std::thread::current().name());
        Self::Real
    }
}

/// Whether the list has the test that calls this. The test runner gives each thread the name of its test.
fn is_listed() -> bool {
    let thread = std::thread::current();
    let is_this = |line: &str| line.split_once(": ").is_some_and(|(test, _)| thread.name() == Some(test));
    REAL.lines().any(is_this)
}
