use super::{duration_nanoseconds, find};

#[test]
fn formats_accept_valid_and_refuse_invalid_strings() {
    for (format, valid, invalid) in [
        ("uri", "http://example.com/a", "not a uri"),
        ("email", "a@example.com", "a.example.com"),
        ("hostname", "db.example.com", "-bad-"),
        ("ipv4", "10.0.0.1", "10.0.0.256"),
        ("ipv6", "2001:db8::1", "10.0.0.1"),
        ("cidr", "10.0.0.0/8", "10.0.0.0/33"),
        ("mac", "01:23:45:67:89:ab", "01:23:45:67:89"),
        ("uuid", "f81d4fae-7dec-11d0-A765-00a0c91e6bf6", "f81d4fae-7dec"),
        ("uuid4", "b3a1d1e1-3f0c-4b1a-9d0e-1a2b3c4d5e6f", "b3a1d1e1-3f0c-1b1a-9d0e-1a2b3c4d5e6f"),
        ("isbn10", "0321751043", "0321751044"),
        ("isbn13", "978-0321751041", "978-0321751042"),
        ("creditcard", "4111-1111-1111-1111", "4111-1111-1111-1112"),
        ("ssn", "111-22-3333", "111-22-333"),
        ("hexcolor", "#FFFFFF", "#FFFF"),
        ("rgbcolor", "rgb(255, 0,12)", "rgb(256,0,0)"),
        ("byte", "Zm9vYmFy", "Zm9"),
        ("date", "2024-02-29", "2023-02-29"),
        ("date-time", "2014-12-15T19:30:20.000Z", "2014-12-15 19:30:20"),
        ("duration", "1h30m", "soon"),
        ("k8s-short-name", "web-1", "Web"),
        ("bsonobjectid", "507f1f77bcf86cd799439011", "507f"),
    ] {
        let matches = find(format).unwrap();
        assert!(matches(valid), "{format} {valid}");
        assert!(!matches(invalid), "{format} {invalid}");
    }
    assert!(find("int32").is_none());
}

#[test]
fn durations_parse_as_in_go_or_leniently() {
    for (text, nanoseconds) in [
        ("1h30m", Some(5_400_000_000_000)),
        ("-1.5s", Some(-1_500_000_000)),
        ("0", Some(0)),
        ("3 days", Some(259_200_000_000_000)),
        ("1 week", Some(604_800_000_000_000)),
        ("", None),
        ("five", None),
    ] {
        assert_eq!(duration_nanoseconds(text), nanoseconds, "{text}");
    }
}
