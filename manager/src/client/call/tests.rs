use super::*;

#[test]
fn a_field_manager_is_escaped_and_an_invalid_one_refused() {
    assert_eq!(query("mainstay-test", false, "").unwrap(), "fieldManager=mainstay-test");
    assert_eq!(query("a&b=c d%", true, "").unwrap(), "fieldManager=a%26b%3Dc%20d%25&dryRun=All");
    for invalid in ["", "a\nb", &"a".repeat(129)] {
        let error = query(invalid, false, "apply of Pod shop/web").unwrap_err().to_string();
        assert!(error.starts_with("apply of Pod shop/web was not sent: its field manager is"), "{error}");
    }
    assert!(query(&"a".repeat(128), false, "").is_ok());
}
