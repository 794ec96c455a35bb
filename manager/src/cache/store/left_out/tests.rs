use super::*;

#[test]
fn a_repeated_refusal_is_logged_once() {
    let left_out = LeftOut::default();
    assert!(left_out.is_news("a", 1) && left_out.is_news("a", 2) && left_out.is_news("b", 1));
    assert!(!left_out.is_news("a", 1), "once per object and reason");
    let logged = (0..2 * LOGGED).filter(|number| left_out.is_news(&number.to_string(), 1)).count();
    assert_eq!(logged, LOGGED - 3, "not more than the limit");
}

#[test]
fn an_object_is_listed_until_it_is_accepted_or_deleted() {
    let left_out = LeftOut::default();
    let in_shop = |name: &str| NamespacedName::namespaced("shop", name);
    for name in ["a", "b", "c"] {
        left_out.add(in_shop(name), 0, "too long".to_owned());
    }
    left_out.add(NamespacedName::namespaced("bank", "d"), 0, "too long".to_owned());
    left_out.remove(&in_shop("a"));
    left_out.add(in_shop("b"), 7, "still too long".to_owned());
    left_out.listed(Some("shop"), 7);
    let named: Vec<_> = left_out.named().into_iter().collect();
    let line = |object: &str, reason: &str| (object.to_owned(), reason.to_owned());
    assert_eq!(named, [line("bank/d", "too long"), line("shop/b", "still too long")]);
    for number in 0..2 * NAMED {
        left_out.add(in_shop(&format!("n{number}")), 0, String::new());
    }
    assert_eq!(left_out.named().len(), NAMED, "not more than the limit");
}
