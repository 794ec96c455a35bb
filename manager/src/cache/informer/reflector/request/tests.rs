use super::*;

#[test]
fn a_selector_is_escaped_in_the_query() {
    assert_eq!(escaped("app in (a, b),x!=é").to_string(), "app%20in%20%28a%2C%20b%29%2Cx%21%3D%C3%A9");
}

#[test]
fn a_huge_retry_after_is_capped() {
    let status = read_status(429, b"");
    let failure = Failure::from_status(&status, Some(Duration::from_secs(u64::MAX)));
    assert!(matches!(failure, Failure::RetryAfter(MAX_RETRY_AFTER, _)), "{failure:?}");
}
