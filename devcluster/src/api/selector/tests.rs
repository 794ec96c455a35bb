//! Tests of the syntax and semantics of label selectors.

use serde_json::json;

use super::LabelSelector;

#[test]
fn requirements_match_labels() {
    let labels = json!({"app": "web", "tier": "a", "n": "5"});
    let cases = [
        ("", true),
        ("app", true),
        ("!app", false),
        ("app=web", true),
        ("app == web , tier != b", true),
        ("missing!=x", true),
        ("missing=", false),
        ("tier in (a,b)", true),
        ("tier notin (a, b)", false),
        ("missing notin (a)", true),
        ("n>4,n<6", true),
        ("n>5", false),
        ("app in (in,web)", true),
    ];
    for (text, matches) in cases {
        let selector = LabelSelector::parse(text).unwrap();
        assert_eq!(selector.matches(Some(&labels)), matches, "{text}");
    }
}

#[test]
fn malformed_selectors_have_the_texts_of_the_server() {
    let cases = [
        ("a,,b", "found ',', expected: identifier after ','"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
    ];
    for (text, error) in cases {
        assert_eq!(LabelSelector::parse(text).unwrap_err(), error, "{text}");
    }
}
