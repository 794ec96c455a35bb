use super::*;

#[test]
fn durations_parse_and_print_alike() {
    for (text, milliseconds) in
        [("0s", 0), ("5ms", 5), ("30s", 30_000), ("2m", 120_000), ("1h30m", 5_400_000), ("1m1s500ms", 61_500)]
    {
        let duration = Duration::from(std::time::Duration::from_millis(milliseconds));
        assert_eq!(text.parse(), Ok(duration), "{text}");
        assert_eq!(duration.to_string(), text);
    }
    assert_eq!("1000s".parse(), Ok(Duration::from_secs(1000)));
    assert_eq!("10h0m".parse::<Duration>(), "10h".parse());
    assert_eq!("1.5h".parse::<Duration>(), "90m".parse());
    let fine = Duration::from(std::time::Duration::from_nanos(1_500_001));
    assert_eq!(fine.to_string().parse(), Ok(fine), "a duration set in code may have nanoseconds");
}

#[test]
fn other_texts_are_refused_as_durations() {
    for text in ["", "5", "s", "-1s", "+1s", "1 s", " 1s", "1s ", "1d", "1S", "1h1h", "1s1h", "1sm", "1m\n"] {
        let expected = text.parse::<Duration>().unwrap_err();
        assert!(expected.starts_with(DURATION_FORM), "{text:?}: {expected}");
    }
    assert!("99999999999999999999h".parse::<Duration>().is_err());
}

#[test]
fn sizes_parse_and_print_alike() {
    for (text, bytes) in [("1Ki", 1024), ("8Mi", 8 << 20), ("1Gi", 1 << 30), ("1536Ki", 1536 << 10)] {
        assert_eq!(text.parse(), Ok(Size::from_bytes(bytes)), "{text}");
        assert_eq!(Size::from_bytes(bytes).to_string(), text);
    }
    for text in ["8", "8M", "8MB", "8mi", "0.5Gi", "-8Mi", "Mi", "8 Mi", "", "100000Gi"] {
        assert!(text.parse::<Size>().is_err(), "{text:?}");
    }
}
