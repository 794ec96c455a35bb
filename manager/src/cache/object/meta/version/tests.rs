use super::*;

#[test]
fn numbers_compare_as_numbers_and_the_rest_only_for_equality() {
    let version = ResourceVersion::new;
    assert!(version("10").is_newer_than(&version("9")));
    assert_eq!(version("abc").compare(&version("abd")), None);
    assert_eq!(version("abc").compare(&version("abc")), Some(Ordering::Equal));
    assert_eq!(version("007").compare(&version("7")), None, "leading zeros are kept");
    assert_eq!(version("007").to_string(), "007");
    assert_eq!(version("99999999999999999999").to_string(), "99999999999999999999");
}
