use super::*;

#[test]
fn every_warning_of_a_header_is_read() {
    let check = |header: &str, expected: &[&str]| assert_eq!(texts(header), expected, "{header}");
    check(r#"299 - "unknown field \"spec.bogus\"""#, &[r#"unknown field "spec.bogus""#]);
    check(
        r#"299 - "a, b", 299 - "c\\d" "Wed, 21 Oct 2015 07:28:00 GMT",299 x:1 "e""#,
        &["a, b", r"c\d", "e"],
    );
    check(r#"110 - "stale", 299 - "real""#, &["real"]);
    check(r#"299 - """#, &[]);
}

#[test]
fn a_syntax_error_ends_the_header() {
    for header in [
        "",
        "299",
        "299 -",
        "299 - text",
        r#"299 - "open"#,
        r#"29 - "x""#,
        r#"abc - "x""#,
        r#"299 - "x" y"#,
        r#"299 - "x\"#,
    ] {
        assert!(texts(header).is_empty(), "{header}");
    }
    assert_eq!(texts(r#"299 - "first", nonsense"#), ["first"]);
}

#[test]
fn a_text_is_one_printable_line_of_bounded_length() {
    assert_eq!(printable("a\nb\u{1b}[31m\u{202e}c"), "a\\u{a}b\\u{1b}[31m\\u{202e}c");
    let long = printable(&"é".repeat(MAX_TEXT + 9));
    assert_eq!(long.chars().count(), MAX_TEXT + 1);
    assert!(long.ends_with('…'));
}
