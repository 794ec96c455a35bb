use super::*;

#[test]
fn a_name_has_one_page() {
    let pages = OwnPages::default();
    let nothing = |_: &[&str]| Ok(Value::Null);
    assert!(pages.add("prices", nothing));
    assert!(!pages.add("prices", nothing), "another page has this name");
    for name in RESERVED {
        assert!(!pages.add(name, nothing), "{name} is a page of the manager");
    }
    assert_eq!(pages.names(), ["prices"]);
}
