//! Figures that a test prints for people and scripts, and the switch for the long form of tests.

use std::io::Write as _;
use std::time::Duration;

/// Prints one measured figure on a line of its own, past the test runner's capture.
pub fn figure(name: &str, value: f64, unit: &str) {
    // An error means that the reader has closed the pipe.
    drop(writeln!(std::io::stdout(), "figure {name} {value:.3} {unit}"));
}

/// Prints a measured duration in seconds as a figure.
pub fn figure_of_time(name: &str, took: Duration) {
    figure(name, took.as_secs_f64(), "s");
}

/// Returns a percentile of these sorted values: the smallest value that at least `percent` percent of them do
/// not exceed; NaN without values.
pub fn percentile(sorted: &[f64], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or(f64::NAN)
}

/// Returns whether the full form of long tests is requested, by `MAINSTAY_LONG=1`.
pub fn long_form() -> bool {
    std::env::var_os("MAINSTAY_LONG").is_some_and(|value| value == "1")
}
