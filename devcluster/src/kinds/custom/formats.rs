//! The string formats that the server checks.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use base64::Engine as _;
use regex::Regex;

use crate::kinds::names;

/// Returns the check of a format; `None` if the server does not recognize the format.
pub(super) fn find(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name.replace('-', "").as_str() {
        "bsonobjectid" => |text| text.len() == 24 && text.bytes().all(|byte| byte.is_ascii_hexdigit()),
        "uri" => is_request_uri,
        "email" => is_email,
        "hostname" => is_hostname,
        "ipv4" => is_ipv4,
        "ipv6" => |text| text.contains(':') && text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => is_cidr,
        "mac" => is_mac,
        "uuid" => |text| is_uuid(text, None),
        "uuid3" => |text| is_uuid(text, Some('3')),
        "uuid4" => |text| is_uuid(text, Some('4')),
        "uuid5" => |text| is_uuid(text, Some('5')),
        "isbn" => |text| is_isbn10(text) || is_isbn13(text),
        "isbn10" => is_isbn10,
        "isbn13" => is_isbn13,
        "creditcard" => is_credit_card,
        "ssn" => |text| SSN.is_match(text),
        "hexcolor" => |text| HEX_COLOR.is_match(text),
        "rgbcolor" => |text| text.strip_suffix(')').is_some_and(|text| RGB_COLOR.is_match(text)),
        "byte" => is_base64,
        "password" => |_| true,
        "date" => is_date,
        "duration" => |text| duration_nanoseconds(text).is_some(),
        "datetime" => is_date_time,
        "k8sshortname" => |text| names::dns1123_label(text).is_empty(),
        "k8slongname" => |text| names::dns1123_subdomain(text).is_empty(),
        _ => return None,
    })
}

#[expect(clippy::expect_used, reason = "the expressions are constants, and a test uses each of them")]
fn known(regex: Result<Regex, regex::Error>) -> Regex {
    regex.expect("a valid expression")
}

/// Defines a static regular expression.
macro_rules! regex {
    ($name:ident, $pattern:expr) => {
        static $name: LazyLock<Regex> = LazyLock::new(|| known(Regex::new($pattern)));
    };
}

regex!(SSN, r"^[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}$");
regex!(HEX_COLOR, r"^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
regex!(RGB_COLOR, r"^rgb\(( *(0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5]) *(,|$)){3}$");
regex!(TIME, r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
regex!(DURATION_PART, r"([0-9]+)[\t\n\f\r ]*([A-Za-zµ]+)");
regex!(HOSTNAME, {
    concat!(
        r"^([a-zA-Z0-9\p{S}\p{L}]((-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?)",
        r"|([a-zA-Z0-9\p{S}\p{L}](([a-zA-Z0-9\-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?)(\.)){1,}",
        r"([a-zA-Z\p{L}]){2,63})$",
    )
});
regex!(EMAIL, r"^[^\s@<>,;:()\[\]]+@[^\s@<>,;:()]+$");
regex!(CREDIT_CARD, {
    "^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}\
     |3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})$"
});

fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|byte| byte.is_ascii_control() || byte == b' ') {
        return false;
    }
    let Some((scheme, _)) = text.split_once(':') else { return text.starts_with('/') };
    text.starts_with('/')
        || (scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.')))
}

fn is_email(text: &str) -> bool {
    let address = match (text.rfind('<'), text.strip_suffix('>')) {
        (Some(start), Some(text)) => text.get(start + 1..).unwrap_or_default(),
        _ => text.trim(),
    };
    EMAIL.is_match(address)
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && HOSTNAME.is_match(text) && text.split('.').all(|label| label.len() <= 63)
}

/// Returns whether the text is an IPv4 address. Leading zeros are accepted, as in Go's lenient parser.
fn is_ipv4(text: &str) -> bool {
    let mut parts = text.split('.');
    let octet = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_digit())
            && part.trim_start_matches('0').len() <= 3
            && part.parse::<u16>().is_ok_and(|octet| octet <= 255)
    };
    (parts.clone().count() == 4 && parts.all(octet))
        || (text.contains('.') && text.contains(':') && text.parse::<Ipv6Addr>().is_ok())
}

fn is_cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else { return false };
    let bits_valid = bits.bytes().all(|byte| byte.is_ascii_digit());
    let Ok(bits) = bits.parse::<u32>() else { return false };
    let max = if is_ipv4(address) && !address.contains(':') {
        Ipv4Addr::BITS
    } else if address.parse::<Ipv6Addr>().is_ok() {
        Ipv6Addr::BITS
    } else {
        return false;
    };
    bits_valid && bits <= max
}

fn is_mac(text: &str) -> bool {
    let groups = |separator: char, digits: usize, counts: [usize; 3]| {
        counts.contains(&text.split(separator).count())
            && text
                .split(separator)
                .all(|group| group.len() == digits && group.bytes().all(|byte| byte.is_ascii_hexdigit()))
    };
    groups(':', 2, [6, 8, 20]) || groups('-', 2, [6, 8, 20]) || groups('.', 4, [3, 4, 10])
}

/// Returns whether the text is a UUID. Each hyphen is optional.
fn is_uuid(text: &str, version: Option<char>) -> bool {
    let mut rest = text;
    for (length, last) in [(8, false), (4, false), (4, false), (4, false), (12, true)] {
        let Some((group, after)) = rest.split_at_checked(length) else { return false };
        if !group.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return false;
        }
        rest = if last { after } else { after.strip_prefix('-').unwrap_or(after) };
    }
    let digits: Vec<char> = text.chars().filter(|c| *c != '-').collect();
    let variant = digits.get(16).map(char::to_ascii_lowercase);
    rest.is_empty()
        && version.is_none_or(|version| digits.get(12) == Some(&version))
        && (matches!(version, None | Some('3')) || matches!(variant, Some('8' | '9' | 'a' | 'b')))
}

fn digits_only(text: &str) -> Vec<u8> {
    text.bytes().filter(|byte| !matches!(byte, b' ' | b'\n' | b'-')).collect()
}

fn is_isbn10(text: &str) -> bool {
    let digits = digits_only(text);
    let Some((last, first)) = digits.split_last() else { return false };
    if first.len() != 9 || !first.iter().all(u8::is_ascii_digit) {
        return false;
    }
    let sum: u32 = (1..).zip(first).map(|(place, digit)| place * u32::from(digit - b'0')).sum();
    let check = match last {
        b'X' => 10,
        digit if digit.is_ascii_digit() => u32::from(digit - b'0'),
        _ => return false,
    };
    (sum + 10 * check).is_multiple_of(11)
}

fn is_isbn13(text: &str) -> bool {
    let digits = digits_only(text);
    let sum: u32 = [1, 3].into_iter().cycle().zip(&digits).map(|(f, digit)| f * u32::from(digit & 15)).sum();
    digits.len() == 13 && digits.iter().all(u8::is_ascii_digit) && sum.is_multiple_of(10)
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(place, digit)| match u32::from(digit & 15) * if place % 2 == 1 { 2 } else { 1 } {
            10.. => u32::from(digit & 15) * 2 - 9,
            sum => sum,
        })
        .sum();
    CREDIT_CARD.is_match(&digits) && sum.is_multiple_of(10)
}

fn is_base64(text: &str) -> bool {
    !text.is_empty() && base64::engine::general_purpose::STANDARD.decode(text).is_ok()
}

/// Returns whether the text is a date such as `2006-01-02`.
pub(super) fn is_date(text: &str) -> bool {
    text.len() == 10 && text.is_ascii() && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut parts = lower.split('t');
    let (Some(date), Some(time)) = (parts.next(), parts.next()) else { return false };
    let Some(found) = TIME.captures(time).filter(|_| is_date(date)) else { return false };
    let at_most = |group: usize, max: &str| found.get(group).is_some_and(|part| part.as_str() <= max);
    at_most(1, "23") && at_most(2, "59") && at_most(3, "59")
}

/// Returns a duration such as `1h30m` or `3 days` in nanoseconds; `None` if it is malformed.
pub(super) fn duration_nanoseconds(text: &str) -> Option<i128> {
    if let Some(exact) = go_duration(text) {
        return Some(exact);
    }
    let mut sum = None;
    for part in DURATION_PART.captures_iter(text) {
        let (Some(count), Some(unit)) = (part.get(1), part.get(2)) else { continue };
        let count: i64 = count.as_str().parse().ok()?;
        let unit = unit.as_str().to_lowercase();
        for (names, prefix, nanoseconds) in LENIENT_UNITS {
            if names.contains(&unit.as_str()) || unit.starts_with(prefix) {
                *sum.get_or_insert(0) += i128::from(count) * i128::from(*nanoseconds);
            }
        }
    }
    sum
}

const LENIENT_UNITS: &[(&[&str], &str, i64)] = &[
    (&["ns"], "nano", 1),
    (&["us", "µs"], "micro", 1_000),
    (&["ms"], "milli", 1_000_000),
    (&["s"], "sec", 1_000_000_000),
    (&["m"], "min", 60_000_000_000),
    (&["h", "hr"], "hour", 3_600_000_000_000),
    (&["d"], "day", 86_400_000_000_000),
    (&["w", "wk"], "week", 604_800_000_000_000),
];

/// Returns a duration in nanoseconds, parsed like Go's `time.ParseDuration`; `None` if it is malformed.
pub(in crate::kinds) fn go_duration(text: &str) -> Option<i128> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if unsigned == "0" {
        return Some(0);
    }
    let mut rest = unsigned;
    let mut sum: i128 = 0;
    while !rest.is_empty() {
        let number_end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(number_end)?;
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(unit_end)?;
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || number.matches('.').count() > 1 {
            return None;
        }
        let digits = fraction.get(..fraction.len().min(18))?;
        let scale = 10_i128.pow(u32::try_from(digits.len()).ok()?);
        let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
        let part: i64 = if digits.is_empty() { 0 } else { digits.parse().ok()? };
        sum = sum.checked_add(i128::from(whole) * unit + i128::from(part) * unit / scale)?;
        rest = after;
    }
    let signed = if text.starts_with('-') { -sum } else { sum };
    (!unsigned.is_empty() && i64::try_from(signed).is_ok()).then_some(signed)
}

#[cfg(test)]
mod tests;
