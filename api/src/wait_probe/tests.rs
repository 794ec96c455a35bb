use serde_json::{Value, json};

use super::*;

fn timeout(value: &Value) -> Result<Duration, String> {
    let probe: WaitProbe = serde_json::from_value(json!({"timeout": value})).unwrap();
    probe.timing().map(|timing| timing.timeout).map_err(|error| error.to_string())
}

#[test]
fn integers_are_nanoseconds_and_zero_is_the_default() {
    assert_eq!(timeout(&json!(3_000_000_000_i64)), Ok(Duration::from_secs(3)));
    assert_eq!(timeout(&json!(1_000_000)), Ok(MIN_TIMEOUT));
    assert_eq!(timeout(&json!(300_000_000_000_i64)), Ok(MAX_TIMEOUT));
    assert_eq!(timeout(&json!(0)), Ok(DEFAULT_TIMEOUT));
    assert_eq!(timeout(&json!(null)), Ok(DEFAULT_TIMEOUT));
    assert_eq!(WaitProbe::default().timing().unwrap().timeout, DEFAULT_TIMEOUT);
}

#[test]
fn an_implausible_integer_is_refused_with_a_string_to_write_instead() {
    let expected = "waitProbe.timeout 3: integers are nanoseconds, and 1 ms to 300 s is accepted; write a \
                    string, such as \"3s\"";
    assert_eq!(timeout(&json!(3)), Err(expected.to_owned()));
    assert!(timeout(&json!(5000)).unwrap_err().contains("such as \"5000ms\""));
    for value in [-1, i64::MIN, i64::MAX, 999_999, 300_000_000_001] {
        assert!(timeout(&json!(value)).is_err(), "{value}");
    }
}

#[test]
fn strings_follow_gep_2257() {
    let good = [("3s", 3000), ("500ms", 500), ("1m30s", 90_000), ("0s", 3000), ("0h5m0s0ms", 300_000)];
    for (text, milliseconds) in good {
        assert_eq!(timeout(&json!(text)), Ok(Duration::from_millis(milliseconds)), "{text}");
    }
    let bad = [
        "",
        "3",
        "s",
        "-3s",
        "+3s",
        "1.5s",
        "3 s",
        "3us",
        "123456ms",
        "1s1s1s1s1s",
        "6m",
        "99999h",
        "3ſ",
        "三s",
    ];
    for text in bad {
        let error = timeout(&json!(text)).unwrap_err();
        assert!(
            error.contains("waitProbe.timeout") && error.contains("expected 1ms to 300s"),
            "{text}: {error}"
        );
    }
}

#[test]
fn a_period_outside_its_range_is_refused() {
    let period = |seconds| WaitProbe { period_seconds: Some(seconds), ..WaitProbe::default() }.timing();
    assert_eq!(period(1).unwrap().period, Duration::from_secs(1));
    assert_eq!(period(3600).unwrap().period, Duration::from_hours(1));
    for seconds in [0, -1, 3601, i32::MIN, i32::MAX] {
        let refused = period(seconds).unwrap_err().to_string();
        assert_eq!(refused, format!("waitProbe.periodSeconds {seconds}: expected 1 to 3600"));
    }
}

#[test]
fn a_probe_without_an_address_is_refused() {
    let error = WaitProbe::default().resolve().unwrap_err().to_string();
    assert!(error.starts_with("waitProbe.address \"\": "), "{error}");
}
