//! Times in the two layouts of Kubernetes, with the error messages of Go's parser.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;

use crate::kinds::errors::quoted;

const SECONDS: &str = "2006-01-02T15:04:05Z07:00";
const MICROS: &str = "2006-01-02T15:04:05.000000Z07:00";

/// Converts a time to the form of `Time`: whole seconds in UTC.
pub(super) fn seconds(text: &str) -> Result<String, String> {
    let time = parse(text, SECONDS)?;
    Ok(format_seconds(time))
}

/// Converts a time to the form of `MicroTime`: microseconds in UTC.
pub(super) fn micros(text: &str) -> Result<String, String> {
    let time = parse(text, MICROS)?;
    Ok(format_micros(time))
}

/// Formats a time in the form of `Time`.
pub(in crate::kinds::builtin) fn format_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Formats a time in the form of `MicroTime`.
pub(in crate::kinds::builtin) fn format_micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

struct Input<'a> {
    text: &'a str,
    rest: &'a str,
    layout: &'static str,
}

impl<'a> Input<'a> {
    fn failed(&self, element: &str) -> String {
        format!(
            "parsing time {} as {}: cannot parse {} as {}",
            quoted(self.text),
            quoted(self.layout),
            quoted(self.rest),
            quoted(element)
        )
    }

    fn out_of_range(&self, part: &str) -> String {
        format!("parsing time {}: {part} out of range", quoted(self.text))
    }

    fn literal(&mut self, literal: &str) -> Result<(), String> {
        self.rest = self.rest.strip_prefix(literal).ok_or_else(|| self.failed(literal))?;
        Ok(())
    }

    fn number(&mut self, digits: usize, element: &str) -> Result<i16, String> {
        let (number, rest) = self
            .rest
            .split_at_checked(digits)
            .filter(|(number, _)| number.bytes().all(|b| b.is_ascii_digit()))
            .ok_or_else(|| self.failed(element))?;
        let number = number.parse().map_err(|_| self.failed(element))?;
        self.rest = rest;
        Ok(number)
    }

    /// Parses the digits after a decimal point. Returns nanoseconds; 0 if there is no fraction.
    fn fraction(&mut self) -> Result<i32, String> {
        let digits = |rest: &'a str| {
            let tail = rest.strip_prefix('.')?;
            let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
            (end > 0).then(|| tail.split_at(end))
        };
        let (number, rest) = match digits(self.rest) {
            Some((number, _)) if self.layout == MICROS => {
                let (number, _) = number.split_at_checked(6).ok_or_else(|| self.failed(".000000"))?;
                (number, self.rest.get(7..).unwrap_or_default())
            }
            Some(found) => found,
            None if self.layout == MICROS => return Err(self.failed(".000000")),
            None => return Ok(0),
        };
        self.rest = rest;
        let nanos = format!("{number:0<9}");
        Ok(nanos.get(..9).and_then(|nanos| nanos.parse().ok()).unwrap_or_default())
    }

    /// Parses `Z` or an offset from UTC. Returns seconds.
    fn zone(&mut self) -> Result<i32, String> {
        let whole = self.rest;
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Ok(0);
        }
        let sign = match self.rest.chars().next() {
            Some('+') => 1,
            Some('-') => -1,
            _ => return Err(self.failed("Z07:00")),
        };
        self.rest = self.rest.get(1..).unwrap_or_default();
        let parts = self.number(2, "").and_then(|h| self.literal(":").map(|()| h));
        let parts = parts.and_then(|h| self.number(2, "").map(|m| (h, m)));
        let Ok((hours, minutes)) = parts else {
            self.rest = whole;
            return Err(self.failed("Z07:00"));
        };
        if hours > 24 {
            return Err(self.out_of_range("time zone offset hour"));
        }
        if minutes > 60 {
            return Err(self.out_of_range("time zone offset minute"));
        }
        Ok(sign * (i32::from(hours) * 3600 + i32::from(minutes) * 60))
    }
}

fn parse(text: &str, layout: &'static str) -> Result<Timestamp, String> {
    let mut input = Input { text, rest: text, layout };
    let year = input.number(4, "2006")?;
    input.literal("-")?;
    let month = ranged(input.number(2, "01")?, 1, 12).ok_or_else(|| input.out_of_range("month"))?;
    input.literal("-")?;
    let day = input.number(2, "02")?;
    input.literal("T")?;
    let hour = ranged(input.number(2, "15")?, 0, 23).ok_or_else(|| input.out_of_range("hour"))?;
    input.literal(":")?;
    let minute = ranged(input.number(2, "04")?, 0, 59).ok_or_else(|| input.out_of_range("minute"))?;
    input.literal(":")?;
    let second = ranged(input.number(2, "05")?, 0, 59).ok_or_else(|| input.out_of_range("second"))?;
    let nanos = input.fraction()?;
    let zone = input.zone()?;
    if !input.rest.is_empty() {
        return Err(format!("parsing time {}: extra text: {}", quoted(text), quoted(input.rest)));
    }
    let day = ranged(day, 1, 31).ok_or_else(|| input.out_of_range("day"))?;
    DateTime::new(year, month, day, hour, minute, second, nanos)
        .and_then(|time| Offset::from_seconds(zone)?.to_timestamp(time))
        .map_err(|_| input.out_of_range("day"))
}

fn ranged(value: i16, min: i8, max: i8) -> Option<i8> {
    i8::try_from(value).ok().filter(|value| (min..=max).contains(value))
}
