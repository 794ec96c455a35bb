//! Schedules of `CronJob`s: five fields, or a name such as `@hourly`.
//!
//! Accepts the same texts as the parser of kube-controller-manager, with its errors. The crates for cron have
//! other rules for steps and for days, and other errors.

use jiff::civil::{Date, Weekday};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan as _};

use super::custom::go_duration;
use super::quoted;

/// A schedule without its time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// The times that match five fields.
    Fields(Fields),
    /// A fixed interval, of whole seconds.
    Every(SignedDuration),
}

/// The accepted values of each field, as bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fields {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
}

/// The range of a field, and the names of its values from the first on.
struct Bounds {
    min: u32,
    max: u32,
    names: &'static [&'static str],
}

/// Set if a field starts with a star: then both the day of the month and the weekday must match.
const STAR: u64 = 1 << 63;

/// Number of years after which a schedule without a match is given up.
const YEARS: i16 = 5;

const MINUTES: Bounds = Bounds { min: 0, max: 59, names: &[] };
const HOURS: Bounds = Bounds { min: 0, max: 23, names: &[] };
const DAYS: Bounds = Bounds { min: 1, max: 31, names: &[] };
const MONTHS: Bounds = Bounds {
    min: 1,
    max: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};
const WEEKDAYS: Bounds = Bounds { min: 0, max: 6, names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"] };

// === impl Schedule ===

impl Schedule {
    /// Parses a schedule.
    ///
    /// # Errors
    ///
    /// Returns the text of the real parser.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(name) = text.strip_prefix('@') {
            return Self::named(name, text);
        }
        let fields: Vec<_> = text.split_whitespace().collect();
        let [minutes, hours, days, months, weekdays] = fields[..] else {
            let found = fields.len();
            return Err(format!("expected exactly 5 fields, found {found}: [{}]", fields.join(" ")));
        };
        Ok(Self::Fields(Fields {
            minutes: field(minutes, &MINUTES)?,
            hours: field(hours, &HOURS)?,
            days: field(days, &DAYS)?,
            months: field(months, &MONTHS)?,
            weekdays: field(weekdays, &WEEKDAYS)?,
        }))
    }

    fn named(name: &str, text: &str) -> Result<Self, String> {
        if let Some(every) = name.strip_prefix("every ") {
            let nanoseconds = go_duration(every).ok_or_else(|| {
                format!("failed to parse duration {text}: time: invalid duration {}", quoted(every))
            })?;
            let seconds = i64::try_from(nanoseconds / 1_000_000_000).unwrap_or(i64::MAX);
            return Ok(Self::Every(SignedDuration::from_secs(seconds.max(1))));
        }
        Self::parse(match name {
            "yearly" | "annually" => "0 0 1 1 *",
            "monthly" => "0 0 1 * *",
            "weekly" => "0 0 * * 0",
            "daily" | "midnight" => "0 0 * * *",
            "hourly" => "0 * * * *",
            _ => return Err(format!("unrecognized descriptor: {text}")),
        })
    }

    /// Returns the first matching time after `time`; `None` if there is none within five years.
    pub fn next(&self, time: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        match self {
            Self::Fields(fields) => fields.next(time, zone),
            Self::Every(interval) => {
                let whole = Timestamp::from_second(time.as_second()).ok()?;
                whole.checked_add(*interval).ok()
            }
        }
    }
}

// === impl Fields ===

impl Fields {
    fn next(&self, time: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let start = zone.to_datetime(time);
        let mut day = start.date();
        let last_year = day.year().saturating_add(YEARS);
        while day.year() <= last_year {
            if !has(self.months, i64::from(day.month())) {
                day = day.first_of_month().checked_add(1.month()).ok()?;
                continue;
            }
            if self.has_day(day)
                && let Some(found) = self.next_of_day(day, time, zone)
            {
                return Some(found);
            }
            day = day.tomorrow().ok()?;
        }
        None
    }

    fn has_day(&self, day: Date) -> bool {
        let of_month = has(self.days, i64::from(day.day()));
        let of_week = has(self.weekdays, i64::from(day.weekday().since(Weekday::Sunday)));
        if (self.days | self.weekdays) & STAR != 0 { of_month && of_week } else { of_month || of_week }
    }

    /// Returns the first match of a day after `time`. Local times that a change of the clocks skips have
    /// none.
    fn next_of_day(&self, day: Date, time: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let times = (0..24).filter(|hour| has(self.hours, i64::from(*hour))).flat_map(|hour| {
            (0..60).filter(|minute| has(self.minutes, i64::from(*minute))).map(move |minute| (hour, minute))
        });
        let instants = times.flat_map(|(hour, minute)| {
            let local = day.at(hour, minute, 0, 0);
            let found = zone.to_ambiguous_timestamp(local);
            let both = [found.earlier(), found.later()];
            both.into_iter().flatten().filter(move |instant| zone.to_datetime(*instant) == local)
        });
        instants.filter(|instant| *instant > time).min()
    }
}

fn has(bits: u64, value: i64) -> bool {
    u32::try_from(value).ok().and_then(|value| bits.checked_shr(value)).is_some_and(|bits| bits & 1 == 1)
}

/// Parses a field: ranges, separated by commas.
fn field(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let ranges = text.split(',').filter(|range| !range.is_empty());
    ranges.map(|range| bits(range, bounds)).try_fold(0, |all, bits| Ok(all | bits?))
}

/// Parses a range such as `*`, `5`, `1-5` or `*/10`.
fn bits(text: &str, bounds: &Bounds) -> Result<u64, String> {
    let (range, step) = match text.split('/').collect::<Vec<_>>()[..] {
        [range] => (range, None),
        [range, step] => (range, Some(step)),
        _ => (text.split('/').next().unwrap_or_default(), Some("")),
    };
    let ends: Vec<_> = range.split('-').collect();
    let first = ends.first().copied().unwrap_or_default();
    let star = matches!(first, "*" | "?");
    let (start, mut end) = match ends[..] {
        _ if star => (bounds.min, bounds.max),
        [only] => {
            let value = value(only, bounds)?;
            (value, value)
        }
        [start, end] => (value(start, bounds)?, value(end, bounds)?),
        _ => {
            value(first, bounds)?;
            return Err(format!("too many hyphens: {text}"));
        }
    };
    if text.matches('/').count() > 1 {
        return Err(format!("too many slashes: {text}"));
    }
    let step_of = step.map_or(Ok(1), number)?;
    // `N/step` means `N-max/step`.
    if step.is_some() && ends.len() == 1 {
        end = bounds.max;
    }
    let (min, max) = (bounds.min, bounds.max);
    if start < min {
        return Err(format!("beginning of range ({start}) below minimum ({min}): {text}"));
    }
    if end > max {
        return Err(format!("end of range ({end}) above maximum ({max}): {text}"));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {text}"));
    }
    if step_of == 0 {
        return Err(format!("step of range should be a positive number: {text}"));
    }
    let step = usize::try_from(step_of).unwrap_or(usize::MAX);
    let chosen = (start..=end).step_by(step).fold(0, |bits, value| bits | 1 << value);
    Ok(if star && step == 1 { chosen | STAR } else { chosen })
}

fn value(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let named = bounds.names.iter().position(|name| name.eq_ignore_ascii_case(text));
    match named.and_then(|position| u32::try_from(position).ok()) {
        Some(position) => Ok(bounds.min + position),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, String> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let why = format!("strconv.Atoi: parsing {}: invalid syntax", quoted(text));
        return Err(format!("failed to parse int from {text}: {why}"));
    }
    let Ok(value) = text.parse::<i64>() else {
        let why = format!("strconv.Atoi: parsing {}: value out of range", quoted(text));
        return Err(format!("failed to parse int from {text}: {why}"));
    };
    if value < 0 {
        return Err(format!("negative number ({value}) not allowed: {text}"));
    }
    Ok(u32::try_from(value).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(schedule: &str, zone: &str, start: &str, count: usize) -> Vec<String> {
        let schedule = Schedule::parse(schedule).expect("a schedule");
        let zone = TimeZone::get(zone).expect("a time zone");
        let mut time: Timestamp = start.parse().expect("a time");
        let mut found = Vec::new();
        for _ in 0..count {
            time = schedule.next(time, &zone).expect("a next time");
            found.push(time.to_string());
        }
        found
    }

    #[test]
    fn the_next_time_matches_every_field() {
        let start = "2026-01-30T10:07:30Z";
        assert_eq!(times("*/15 * * * *", "UTC", start, 2), ["2026-01-30T10:15:00Z", "2026-01-30T10:30:00Z"]);
        assert_eq!(times("0 0 31 * *", "UTC", start, 2), ["2026-01-31T00:00:00Z", "2026-03-31T00:00:00Z"]);
        // A Monday, or the 13th.
        assert_eq!(times("0 9 13 2 mon", "UTC", start, 2), ["2026-02-02T09:00:00Z", "2026-02-09T09:00:00Z"]);
        assert_eq!(times("@weekly", "UTC", start, 1), ["2026-02-01T00:00:00Z"]);
        assert_eq!(times("@every 1h30m", "UTC", start, 1), ["2026-01-30T11:37:30Z"]);
        let never = Schedule::parse("0 0 31 2 *").expect("a schedule");
        assert_eq!(never.next(start.parse().expect("a time"), &TimeZone::UTC), None);
    }

    #[test]
    fn a_time_that_a_change_of_the_clocks_skips_is_left_out() {
        // Clocks go from 02:00 to 03:00 on 2026-03-29, and from 03:00 to 02:00 on 2026-10-25.
        let spring = times("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 1);
        assert_eq!(spring, ["2026-03-30T00:30:00Z"]);
        let autumn = times("0 3 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 1);
        assert_eq!(autumn, ["2026-10-25T02:00:00Z"]);
        // 02:30 comes twice.
        let twice = times("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
        assert_eq!(twice, ["2026-10-25T00:30:00Z", "2026-10-25T01:30:00Z"]);
    }

    #[test]
    fn errors_have_the_texts_of_the_real_parser() {
        let cases = [
            ("* * *", "expected exactly 5 fields, found 3: [* * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("@never", "unrecognized descriptor: @never"),
        ];
        for (schedule, expected) in cases {
            assert_eq!(Schedule::parse(schedule), Err(expected.to_owned()));
        }
    }
}
