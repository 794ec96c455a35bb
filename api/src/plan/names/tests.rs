use std::sync::LazyLock;

use proptest::prelude::*;
use regex::Regex;

use super::*;
use crate::address::Host;
use crate::crd::patterns;

/// Name, maximum length, function here and pattern of the CRD for one form.
type Pair = (&'static str, usize, fn(&str) -> bool, &'static str);

const PAIRS: [Pair; 13] = [
    ("label", 63, is_label, patterns::LABEL),
    ("subdomain", 253, is_subdomain, patterns::SUBDOMAIN),
    ("apiVersion", 253, is_api_version, patterns::API_VERSION),
    ("kind", 63, is_kind, patterns::KIND),
    (
        "path segment",
        253,
        |text| text == "." || text == ".." || is_path_segment(text),
        patterns::PATH_SEGMENT,
    ),
    // A separate rule of the CRD refuses two dots at the start.
    (
        "key of a ConfigMap",
        253,
        |text| !text.is_empty() && is_config_map_key(&format!("x{text}")),
        patterns::CONFIG_MAP_KEY,
    ),
    ("path", 1024, is_path, patterns::PATH),
    ("token", 128, is_token, patterns::TOKEN),
    ("header value", 1024, is_header_value, patterns::HEADER_VALUE),
    ("graphic", 253, |text| text.bytes().all(|b| b.is_ascii_graphic()), patterns::GRAPHIC),
    ("condition", 330, |text| super::super::checks::condition(text).is_some(), patterns::CONDITION),
    // Patterns for labels would cost too much in the CRD; these are apimachinery's, with the shortest length
    // bound.
    ("key of a label", 63, is_label_key, LABEL_KEY),
    ("value of a label", 63, is_label_value, LABEL_VALUE),
];

/// <https://github.com/kubernetes/apimachinery/blob/v0.34.0/pkg/util/validation/validation.go>
const LABEL_KEY: &str = concat!(
    "^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?",
    "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
);
const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";

static COMPILED: LazyLock<Vec<Regex>> =
    LazyLock::new(|| PAIRS.iter().map(|(.., pattern)| Regex::new(pattern).unwrap()).collect());
static HOSTS: LazyLock<[Regex; 4]> = LazyLock::new(|| {
    [patterns::DNS_NAME, patterns::NUMERIC, patterns::IPV4, patterns::IPV6]
        .map(|pattern| Regex::new(pattern).unwrap())
});

/// Strings of the characters that the forms use, so that many are almost valid.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        "[a-c0-2A-C._/=%?# \t:-]{0,12}",
        "[a-c.-]{0,4}(/|=|=True|=False|=Unknown|=true)?[a-cA-C1.-]{0,4}",
        "(v|V|1)[0-9a-z-]{0,64}",
        "/[a-z%0-9G\\[\\]{}|?#&]{0,8}",
        "/[ -~]{1,4}",
        "[a-c/]{0,1}[ -~\t\u{7f}\u{e9}]{1,2}[a-c]{0,1}",
        ".{0,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(5000))]
    #[test]
    fn the_crd_and_the_plan_accept_the_same_strings(text in texts()) {
        for ((name, max, is_form, _), pattern) in PAIRS.iter().zip(&*COMPILED) {
            let admitted = text.len() <= *max && pattern.is_match(&text);
            prop_assert_eq!(is_form(&text) && text.len() <= *max, admitted, "{} {:?}", name, text);
        }
    }

    #[test]
    fn the_crd_and_the_plan_accept_the_same_hosts(
        text in prop_oneof![
            "[a-c0-9x._:-]{0,14}",
            "[0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,3}[.][0-9]{1,3}[.]?",
            "([a-c-]{1,64}[.]){0,2}(0x)?[0-9a-f]{0,3}[.]?",
            "[^a]{0,5}",
        ]
    ) {
        let [name, numeric, ipv4, ipv6] = HOSTS.each_ref().map(|pattern| pattern.is_match(&text));
        prop_assert_eq!(Host::parse(&text).is_ok(), ipv4 || name && !numeric, "{:?}", text);
        // The pattern of the CRD matches every IPv6 address, and other strings too.
        if text.parse::<std::net::Ipv6Addr>().is_ok() {
            prop_assert!(ipv6, "{:?}", text);
        }
    }
}

#[test]
fn forms_with_more_than_one_rule_are_checked() {
    for (text, expected) in [(".", false), ("..", false), ("..data", false), (".x", true), ("ca.crt", true)] {
        assert_eq!(is_config_map_key(text), expected, "{text}");
    }
    for (text, expected) in [(".", false), ("..", false), ("...", true), ("a:b", true), ("a/b", false)] {
        assert_eq!(is_path_segment(text), expected, "{text}");
    }
    for (text, expected) in
        [("app", true), ("example.com/app", true), ("/app", false), ("a/b/c", false), ("", false)]
    {
        assert_eq!(is_label_key(text), expected, "{text}");
    }
    assert!(!is_label(&"a".repeat(64)) && is_label(&"a".repeat(63)));
    assert!(is_label_value("") && !is_label_value("-") && !is_label_value(&"a".repeat(64)));
}
