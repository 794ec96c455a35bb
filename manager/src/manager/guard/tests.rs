use super::*;

#[test]
fn only_a_single_bearer_token_is_read() {
    let read = |lines: &[&str]| {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(AUTHORIZATION, line.parse().unwrap());
        }
        bearer(&headers).map(ToOwned::to_owned)
    };
    assert_eq!(read(&["Bearer abc"]).as_deref(), Some("abc"));
    assert_eq!(read(&["bearer  abc "]).as_deref(), Some("abc"));
    assert_eq!(read(&[]), None);
    for other in ["", "abc", "Bearer", "Bearer  ", "Basic abc"] {
        assert_eq!(read(&[other]), None, "{other}");
    }
    assert_eq!(read(&["Bearer abc", "Bearer abc"]), None);
}
