use super::*;

#[test]
fn each_unit_ends_where_the_next_begins() {
    for (seconds, expected) in [
        (0.0, "0ms"),
        (0.9999, "999ms"),
        (1.0, "1.0s"),
        (9.99, "9.9s"),
        (10.0, "10s"),
        (59.9, "59s"),
        (60.0, "1m00s"),
        (3_599.0, "59m59s"),
        (3_600.0, "1h00m"),
        (86_399.0, "23h59m"),
        (86_400.0, "1d00h"),
        (900_000.0, "10d10h"),
    ] {
        assert_eq!(short(Some(seconds)), expected);
    }
    assert_eq!((short(None), short(Some(-1.0)), short(Some(f64::NAN))), ("-".into(), "-".into(), "-".into()));
}
