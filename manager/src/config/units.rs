//! How the file spells time and size: `1m30s`, `8Mi`.
//!
//! Durations are those of Kubernetes' [GEP-2257](https://gateway-api.sigs.k8s.io/geps/gep-2257/): whole numbers
//! with the units h, m, s and ms, at most four of them. Sizes are the binary quantities Ki, Mi and Gi. A number
//! without a unit is refused in both, because 5 has been read as seconds, milliseconds and nanoseconds before.

use std::time::Duration;

/// What a duration looks like, for messages.
pub(super) const DURATION_FORM: &str = "a duration such as 30s, 5ms, 2m or 1h30m";
/// What a size looks like, for messages.
pub(super) const SIZE_FORM: &str = "a size such as 512Ki, 8Mi or 1Gi";

/// What [`parse_duration`] takes, as a regular expression.
pub(super) const DURATION_PATTERN: &str = "^([0-9]{1,5}(h|ms|m|s)){1,4}$";
/// What [`parse_size`] takes, as a regular expression.
pub(super) const SIZE_PATTERN: &str = "^[0-9]{1,5}(Ki|Mi|Gi)$";

/// Units of a duration in milliseconds, largest first so that formatting takes them in order.
const DURATION_UNITS: [(&str, u64); 4] = [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];
/// Units of a size in bytes, largest first.
const SIZE_UNITS: [(&str, u64); 3] = [("Gi", 1 << 30), ("Mi", 1 << 20), ("Ki", 1 << 10)];
/// GEP-2257's bounds: five digits to a number, four numbers to a duration.
const MAX_DIGITS: usize = 5;
const MAX_PARTS: usize = 4;

/// Reads a duration; `None` if the text is not one.
pub(super) fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut milliseconds: u64 = 0;
    for _ in 0..MAX_PARTS {
        let (number, after) = leading_number(rest)?;
        let unit_end = after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len());
        let (unit, next) = after.split_at_checked(unit_end)?;
        let (_, factor) = DURATION_UNITS.iter().find(|(name, _)| *name == unit)?;
        milliseconds = milliseconds.checked_add(number.checked_mul(*factor)?)?;
        rest = next;
        if rest.is_empty() {
            return Some(Duration::from_millis(milliseconds));
        }
    }
    None
}

/// Writes a duration as [`parse_duration`] reads it; a part below one millisecond is lost.
pub(super) fn format_duration(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (unit, factor) in DURATION_UNITS {
        if rest >= factor {
            text.extend([&(rest / factor).to_string(), unit]);
            rest %= factor;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Reads a size in bytes; `None` if the text is not one.
pub(super) fn parse_size(text: &str) -> Option<u64> {
    let (number, unit) = leading_number(text)?;
    let (_, factor) = SIZE_UNITS.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

/// Writes a size in the largest unit that divides it.
pub(super) fn format_size(bytes: u64) -> String {
    SIZE_UNITS
        .iter()
        .find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor))
        .map_or_else(|| bytes.to_string(), |(unit, factor)| format!("{}{unit}", bytes / factor))
}

fn leading_number(text: &str) -> Option<(u64, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    if digits.is_empty() || digits.len() > MAX_DIGITS {
        return None;
    }
    Some((digits.parse().ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_write_alike() {
        for (text, milliseconds) in [
            ("0s", 0),
            ("5ms", 5),
            ("30s", 30_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("1m1s500ms", 61_500),
        ] {
            let duration = Duration::from_millis(milliseconds);
            assert_eq!(parse_duration(text), Some(duration), "{text}");
            assert_eq!(format_duration(duration), text);
        }
        assert_eq!(parse_duration("1000s"), Some(Duration::from_secs(1000)));
        assert_eq!(parse_duration("10h0m"), parse_duration("10h"));
    }

    #[test]
    fn what_is_not_a_duration_is_refused() {
        for text in [
            "",
            "5",
            "s",
            "1.5h",
            "-1s",
            "+1s",
            "1 s",
            " 1s",
            "1s ",
            "1d",
            "5us",
            "1S",
            "100000s",
            "1h1h1h1h1h",
            "1sm",
            "1m\n",
        ] {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }

    #[test]
    fn sizes_read_and_write_alike() {
        for (text, bytes) in [("1Ki", 1024), ("8Mi", 8 << 20), ("1Gi", 1 << 30), ("1536Ki", 1536 << 10)] {
            assert_eq!(parse_size(text), Some(bytes), "{text}");
            assert_eq!(format_size(bytes), text);
        }
        for text in ["8", "8M", "8MB", "8mi", "0.5Gi", "-8Mi", "Mi", "8 Mi", ""] {
            assert_eq!(parse_size(text), None, "{text:?}");
        }
    }
}
