use super::*;

#[test]
fn a_selector_survives_the_query() {
    assert_eq!(escaped("app in (a, b),x!=é").to_string(), "app%20in%20%28a%2C%20b%29%2Cx%21%3D%C3%A9");
}

#[test]
fn an_absurd_wait_is_cut() {
    let status = read_status(429, b"");
    let failure = Failure::from_status(&status, Some(Duration::from_secs(u64::MAX)));
    assert!(matches!(failure, Failure::Later(LONGEST_WAIT, _)), "{failure:?}");
}
