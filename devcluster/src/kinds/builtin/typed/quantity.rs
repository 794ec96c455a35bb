//! Quantities such as `500m` and `1.5Gi`, and their canonical form.

/// The message for a malformed quantity.
pub(super) const FORMAT: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
const SUFFIX: &str = "unable to parse quantity's suffix";

/// One unit in billionths, the smallest part that a quantity has.
const UNIT: i128 = 1_000_000_000;
/// A number that has reached this value gets no further digits.
const DIGITS: i128 = 1_000_000_000_000_000_000_000_000_000_000;
/// The largest binary quantity, `i64::MAX` units. Larger ones are reduced to it.
const MAX: i128 = i64::MAX as i128 * UNIT;

#[derive(Clone, Copy, PartialEq)]
enum Notation {
    Decimal,
    Exponent,
    Binary,
}

/// Returns the canonical form of a quantity.
///
/// # Errors
///
/// Returns the message of the server if the text is not a quantity.
pub fn canonical(text: &str) -> Result<String, &'static str> {
    let (value, notation) = parse(text)?;
    if is_kept(text) {
        return Ok(text.to_owned());
    }
    Ok(show(value, notation))
}

/// Rounds a quantity up to thousandths, the smallest part in resource lists. `None` if it needs no rounding
/// or is malformed.
pub(in crate::kinds::builtin) fn at_least_milli(text: &str) -> Option<String> {
    const MILLI: i128 = UNIT / 1000;
    let (value, notation) = parse(text).ok()?;
    (value % MILLI != 0).then(|| show(div_up(value, MILLI) * MILLI, notation))
}

/// Returns whether a quantity is a whole number; false if it is malformed.
pub(in crate::kinds::builtin) fn is_whole(text: &str) -> bool {
    parse(text).is_ok_and(|(value, _)| value % UNIT == 0)
}

/// Compares two quantities; `None` if one of them is malformed.
pub(in crate::kinds::builtin) fn compare(a: &str, b: &str) -> Option<std::cmp::Ordering> {
    Some(parse(a).ok()?.0.cmp(&parse(b).ok()?.0))
}

/// Returns whether Go keeps the text as it is. Go's check is rough, so such a text may have a sign or zeros.
fn is_kept(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.trim_start_matches('0');
    if whole.is_empty() {
        return false;
    }
    let Ok((base, exponent, _)) = scale(suffix) else { return false };
    let digits = i32::try_from(whole.len() + fraction.len()).unwrap_or(i32::MAX);
    if base == 2 {
        let odd = whole.parse::<i64>().is_ok_and(|value| value & 7 != 0);
        return fraction.is_empty() && digits <= 14 - exponent * 3 / 10 && odd;
    }
    let exponent = exponent - i32::try_from(fraction.len()).unwrap_or(i32::MAX);
    let thousands = format!("{whole}{fraction}").ends_with("000");
    digits <= 18 && exponent >= -9 && exponent % 3 == 0 && !thousands
}

fn show(value: i128, notation: Notation) -> String {
    if value == 0 {
        return "0".to_owned();
    }
    let small = value.abs() < 1024 * UNIT;
    match notation {
        Notation::Binary if !small => {
            // Rounds away from zero to whole units.
            let mut whole = div_up(value, UNIT);
            let mut power = 0;
            while whole % 1024 == 0 && power < 6 {
                whole /= 1024;
                power += 1;
            }
            let suffix = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(power).copied().unwrap_or_default();
            format!("{whole}{suffix}")
        }
        _ => {
            let mut number = value;
            let mut power = 0_usize;
            while number % 1000 == 0 && power < 9 {
                number /= 1000;
                power += 1;
            }
            let exponent = [-9, -6, -3, 0, 3, 6, 9, 12, 15, 18].get(power).copied().unwrap_or_default();
            match (notation, exponent) {
                (Notation::Exponent, 0) => number.to_string(),
                (Notation::Exponent, _) => format!("{number}e{exponent}"),
                _ => {
                    let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"].get(power).copied();
                    format!("{number}{}", suffix.unwrap_or_default())
                }
            }
        }
    }
}

/// Returns the value in billionths, and the notation.
fn parse(text: &str) -> Result<(i128, Notation), &'static str> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
        return Err(FORMAT);
    }
    let (base, exponent, notation) = scale(suffix)?;
    let mut value: i128 = 0;
    let mut places = 0_i32;
    for (digits, is_fraction) in [(whole, false), (fraction, true)] {
        for digit in digits.bytes() {
            // Further digits are above every limit or below the smallest part, so only their count matters.
            if value < DIGITS {
                value = value * 10 + i128::from(digit - b'0');
                places += i32::from(is_fraction);
            } else if !is_fraction {
                places -= 1;
            }
        }
    }
    let mut scaled = value;
    let (up, down) = if base == 10 { (9 + exponent - places, 0) } else { (9 - places, exponent) };
    for _ in 0..down {
        scaled = scaled.saturating_mul(2);
    }
    for _ in 0..up.min(60) {
        scaled = scaled.saturating_mul(10);
    }
    for _ in 0..(-up).min(60) {
        scaled = div_up(scaled, 10);
    }
    let value = if base == 2 { scaled.min(MAX) } else { scaled };
    Ok((if text.starts_with('-') { -value } else { value }, notation))
}

fn scale(suffix: &str) -> Result<(u32, i32, Notation), &'static str> {
    Ok(match suffix {
        "n" => (10, -9, Notation::Decimal),
        "u" => (10, -6, Notation::Decimal),
        "m" => (10, -3, Notation::Decimal),
        "" => (10, 0, Notation::Decimal),
        "k" => (10, 3, Notation::Decimal),
        "M" => (10, 6, Notation::Decimal),
        "G" => (10, 9, Notation::Decimal),
        "T" => (10, 12, Notation::Decimal),
        "P" => (10, 15, Notation::Decimal),
        "E" => (10, 18, Notation::Decimal),
        "Ki" => (2, 10, Notation::Binary),
        "Mi" => (2, 20, Notation::Binary),
        "Gi" => (2, 30, Notation::Binary),
        "Ti" => (2, 40, Notation::Binary),
        "Pi" => (2, 50, Notation::Binary),
        "Ei" => (2, 60, Notation::Binary),
        _ => {
            let known = suffix.bytes().all(|b| b"eEinumkKMGTP+-0123456789".contains(&b));
            let exponent = suffix.strip_prefix(['e', 'E']).and_then(|digits| digits.parse().ok());
            match exponent {
                Some(exponent) if (-1000..=1000).contains(&exponent) => (10, exponent, Notation::Exponent),
                _ => return Err(if known { SUFFIX } else { FORMAT }),
            }
        }
    })
}

fn div_up(value: i128, by: i128) -> i128 {
    let whole = value / by;
    if value % by == 0 { whole } else { whole + value.signum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quantity_has_one_canonical_form() {
        for (text, expected) in [
            ("0.5", "500m"),
            ("1.50", "1500m"),
            ("1024Ki", "1Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1000Mi", "1000Mi"),
            ("1e3", "1e3"),
            ("1000", "1k"),
            ("12E", "12E"),
            ("12Ei", "9223372036854775807"),
            ("+5", "+5"),
            ("-0.1n", "-1n"),
            ("1.000", "1"),
            ("512Mi", "512Mi"),
            ("2048Mi", "2Gi"),
            ("00.10", "100m"),
            (".5", "500m"),
            ("5.", "5."),
        ] {
            assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn malformed_quantities_are_refused() {
        for text in ["", "x", "1x", "1.2.3", "-", "1ee", "1 "] {
            assert!(canonical(text).is_err(), "{text}");
        }
    }
}
