//! The runs of a schedule, as a function of the time.

use cronexpr::{FallbackTimezoneOption, ParseOptions, parse_crontab_with};
use jiff::{SignedDuration, Timestamp};

/// Most missed runs that are counted. More of them are a mistake, such as a wrong clock, and none is started.
const MOST_MISSED: usize = 100;

/// The runs of a schedule that matter at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    /// The newest run that is due and has not been started.
    pub(super) due: Option<Timestamp>,
    /// The first run whose starting deadline has passed, if none is due.
    pub(super) missed: Option<Timestamp>,
    /// The first run in the future.
    pub(super) next: Option<Timestamp>,
}

/// A schedule without runs: the reason and the message of a condition.
pub(super) type Problem = (&'static str, String);

/// Returns the runs of `schedule` at `now`, after the run at `last`: five fields of crontab, in UTC unless a
/// time zone follows them. A run may start `deadline` seconds late, or at any later time without it.
pub(super) fn runs(
    schedule: &str,
    last: Timestamp,
    deadline: Option<i64>,
    now: Timestamp,
) -> Result<Runs, Problem> {
    let invalid = |error: cronexpr::Error| {
        // Its last line is the reason, below a mark at the place of the mistake.
        let text = error.to_string();
        let why = text.lines().last().unwrap_or_default().trim_start_matches([' ', '^']);
        ("InvalidSchedule", format!("schedule {schedule:?}: {why}"))
    };
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    let crontab = parse_crontab_with(schedule, options).map_err(invalid)?;
    let after = |time: Timestamp| crontab.find_next(time).map(|next| next.timestamp()).map_err(invalid);

    let earliest = deadline.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
    let earliest = earliest.map_or(last, |earliest| earliest.max(last));
    let missed = Some(after(last)?).filter(|first| *first <= earliest);
    let (mut due, mut next) = (None, after(earliest)?);
    for _ in 0..=MOST_MISSED {
        if next > now {
            let missed = missed.filter(|_| due.is_none());
            return Ok(Runs { due, missed, next: Some(next) });
        }
        (due, next) = (Some(next), after(next)?);
    }
    let message = format!("more than {MOST_MISSED} runs were missed; set startingDeadlineSeconds");
    Err(("TooManyMissedRuns", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: &str = "2026-03-01T10:00:00Z";

    fn at(time: &str) -> Timestamp {
        time.parse().unwrap()
    }

    /// Returns the due, missed and next run of each hour after 10:00.
    fn hourly(deadline: Option<i64>, now: &str) -> [Option<String>; 3] {
        let Runs { due, missed, next } = runs("0 * * * *", at(LAST), deadline, at(now)).unwrap();
        [due, missed, next].map(|time| time.map(|time| time.to_string()))
    }

    fn problem(schedule: &str, now: &str) -> Problem {
        runs(schedule, at(LAST), None, at(now)).unwrap_err()
    }

    #[test]
    fn a_run_is_due_at_its_time_and_of_several_missed_ones_the_newest() {
        let day = |time: &str| Some(format!("2026-03-01T{time}:00:00Z"));
        assert_eq!(hourly(None, "2026-03-01T10:59:59Z"), [None, None, day("11")]);
        assert_eq!(hourly(None, "2026-03-01T11:00:00Z"), [day("11"), None, day("12")]);
        assert_eq!(hourly(None, "2026-03-01T15:30:00Z"), [day("15"), None, day("16")]);
        // A clock behind that of the API server.
        assert_eq!(hourly(None, "2026-03-01T09:30:00Z"), [None, None, day("11")]);
    }

    #[test]
    fn a_run_starts_within_its_deadline_and_is_missed_after_it() {
        let day = |time: &str| Some(format!("2026-03-01T{time}:00:00Z"));
        assert_eq!(hourly(Some(60), "2026-03-01T11:00:59Z"), [day("11"), None, day("12")]);
        assert_eq!(hourly(Some(60), "2026-03-01T11:01:00Z"), [None, day("11"), day("12")]);
        assert_eq!(hourly(Some(60), "2026-03-01T12:00:30Z"), [day("12"), None, day("13")]);
        assert_eq!(hourly(Some(0), "2026-03-01T11:00:00Z"), [None, day("11"), day("12")]);
        assert_eq!(hourly(Some(i64::MAX), "2026-03-01T11:30:00Z"), [day("11"), None, day("12")]);
    }

    #[test]
    fn a_hundred_missed_runs_are_counted_and_no_more() {
        let last = runs("* * * * *", at(LAST), None, at("2026-03-01T11:40:00Z")).unwrap();
        assert_eq!(last.due, Some(at("2026-03-01T11:40:00Z")));
        let (reason, message) = problem("* * * * *", "2026-03-01T11:41:00Z");
        assert_eq!(reason, "TooManyMissedRuns");
        assert_eq!(message, "more than 100 runs were missed; set startingDeadlineSeconds");
        let with_deadline = runs("* * * * *", at(LAST), Some(600), at("2027-03-01T11:41:00Z")).unwrap();
        assert_eq!(with_deadline.due, Some(at("2027-03-01T11:41:00Z")));
    }

    #[test]
    fn a_time_zone_may_follow_the_fields() {
        let tokyo = runs("30 9 * * MON-FRI Asia/Tokyo", at(LAST), None, at(LAST)).unwrap();
        assert_eq!(tokyo.next, Some(at("2026-03-02T00:30:00Z")));
    }

    #[test]
    fn a_wrong_schedule_is_named_with_the_reason() {
        for (wrong, why) in [
            ("", "cannot be empty"),
            ("61 * * * *", "value must be in range 0..=59; found 61"),
            ("* * *", "missing months"),
            ("@fortnightly", "malformed expression"),
            ("0 0 31 2 *", "failed to find next timestamp in four years"),
        ] {
            let (reason, message) = problem(wrong, LAST);
            assert_eq!(reason, "InvalidSchedule");
            assert!(message.starts_with(&format!("schedule {wrong:?}: {why}")), "{message}");
        }
    }
}
