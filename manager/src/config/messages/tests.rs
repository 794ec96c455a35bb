use super::*;

#[test]
fn a_misspelt_name_is_recognised_and_an_unknown_name_is_not() {
    let names = ["leaseDuration", "renewDeadline", "enabled"];
    assert_eq!(closest("leaseDuraton", &names), Some("leaseDuration"));
    assert_eq!(closest("leaseduration", &names), Some("leaseDuration"));
    assert_eq!(closest("ReneDeadlnie", &names), Some("renewDeadline"));
    assert_eq!(closest("burst", &names), None);
    assert_eq!(closest("", &names), None);
}

#[test]
fn names_that_are_not_alphanumeric_are_quoted_in_paths() {
    assert_eq!(child("", "controllers"), "controllers");
    assert_eq!(child("controllers", "*"), r#"controllers["*"]"#);
    assert_eq!(child("controllers", "slow-web"), r#"controllers["slow-web"]"#);
    assert_eq!(child("shop.prices", "a\nb"), r#"shop.prices["a\nb"]"#);
}
