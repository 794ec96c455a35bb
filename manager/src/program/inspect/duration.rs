//! Durations for people, with two significant parts.

use std::fmt;
use std::time::Duration;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// Displays a duration for people: `12ms`, `3.4s`, `56s`, `7m08s`, `9h10m` or `11d12h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShortDuration(pub Duration);

/// Returns a number of seconds as the text of a [`ShortDuration`]; `-` for an unknown value.
pub(super) fn short(seconds: Option<f64>) -> String {
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.map_or_else(|| "-".to_owned(), |duration| ShortDuration(duration).to_string())
}

impl fmt::Display for ShortDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (seconds, millis) = (self.0.as_secs(), self.0.subsec_millis());
        match seconds {
            0 => write!(f, "{millis}ms"),
            1..10 => write!(f, "{seconds}.{}s", millis / 100),
            10..MINUTE => write!(f, "{seconds}s"),
            MINUTE..HOUR => write!(f, "{}m{:02}s", seconds / MINUTE, seconds % MINUTE),
            HOUR..DAY => write!(f, "{}h{:02}m", seconds / HOUR, seconds % HOUR / MINUTE),
            DAY.. => write!(f, "{}d{:02}h", seconds / DAY, seconds % DAY / HOUR),
        }
    }
}

#[cfg(test)]
mod tests;
