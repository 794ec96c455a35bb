//! The spelling of durations and sizes in the file: `1m30s`, `8Mi`.
//!
//! A number without a unit is refused in both: other programs read 5 as seconds, milliseconds or nanoseconds.

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use jiff::fmt::friendly::{Designator, Spacing, SpanParser, SpanPrinter};

use super::text::as_text;

/// A regular expression that every duration matches; some texts that match are not durations, such as a
/// number with an unknown unit.
const DURATION_PATTERN: &str = r"^([0-9]+(\.[0-9]+)?[a-zµ]+)+$";
/// A regular expression that matches exactly the valid sizes, such as `8Mi`.
const SIZE_PATTERN: &str = "^[0-9]{1,5}(Ki|Mi|Gi)$";
const DURATION_FORM: &str = "a duration such as 30s, 5ms, 2m or 1h30m";
const SIZE_FORM: &str = "a size such as 512Ki, 8Mi or 1Gi";
/// The units of a size, each with its number of bytes, largest first.
const SIZE_UNITS: [(&str, u64); 3] = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
/// The most digits of a size: 99999Gi is far above any memory, and does not overflow.
const SIZE_DIGITS: usize = 5;

/// A time span with units, such as `30s` or `1h30m`; derefs to [`std::time::Duration`].
///
/// ```
/// use mainstay::config::Duration;
///
/// let period: Duration = "1m30s".parse()?;
/// assert_eq!(period.as_secs(), 90);
/// assert!("90".parse::<Duration>().unwrap_err().ends_with("with a unit: 90s or 90ms"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(std::time::Duration);

/// A number of bytes with a unit, such as `8Mi`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

as_text!(Duration, DURATION_PATTERN);
as_text!(Size, SIZE_PATTERN);

// === impl Duration ===

impl Duration {
    /// Makes a duration of this many whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(std::time::Duration::from_secs(seconds))
    }
}

impl Deref for Duration {
    type Target = std::time::Duration;

    fn deref(&self) -> &std::time::Duration {
        &self.0
    }
}

impl From<std::time::Duration> for Duration {
    fn from(duration: std::time::Duration) -> Self {
        Self(duration)
    }
}

impl FromStr for Duration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // jiff also accepts spaces, signs and commas; one spelling is enough for a file.
        let plain = text.starts_with(|c: char| c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_digit() || c.is_ascii_lowercase() || matches!(c, '.' | 'µ'));
        match SpanParser::new().parse_unsigned_duration(text) {
            Ok(duration) if plain => Ok(Self(duration)),
            _ if text.parse::<u64>().is_ok() => {
                Err(format!("{DURATION_FORM}, with a unit: {text}s or {text}ms"))
            }
            _ => Err(format!("{DURATION_FORM} (units h, m, s, ms)")),
        }
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let printer = SpanPrinter::new().designator(Designator::Compact).spacing(Spacing::None);
        f.write_str(&printer.unsigned_duration_to_string(&self.0))
    }
}

// === impl Size ===

impl Size {
    /// Makes a size of this many bytes. The file can spell only whole kibibytes.
    pub const fn from_bytes(bytes: u64) -> Self {
        Self(bytes)
    }

    /// Returns the size as a number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, unit) = text.split_at(end);
        let factor = SIZE_UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| factor);
        let number = digits.parse::<u64>().ok().filter(|_| digits.len() <= SIZE_DIGITS);
        match (number, factor) {
            (Some(number), Some(factor)) => Ok(Self(number * factor)),
            _ => Err(format!("{SIZE_FORM} (units Ki, Mi, Gi)")),
        }
    }
}

/// Displays a size in the largest unit that divides it.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fits = |factor: u64| self.0 >= factor && self.0.is_multiple_of(factor);
        match SIZE_UNITS.iter().find(|(_, factor)| fits(*factor)) {
            Some((unit, factor)) => write!(f, "{}{unit}", self.0 / factor),
            None => write!(f, "{}", self.0),
        }
    }
}

#[cfg(test)]
mod tests;
