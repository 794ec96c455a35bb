//! Which names are accepted, their spellings, and the text of each refusal.

use super::super::names::{Kind, Name, check_group};
use super::super::{Done, Refusal};

fn refused<T>(parsed: Done<T>) -> String {
    parsed.map_or_else(|Refusal(problem)| problem, |_| panic!("accepted"))
}

#[test]
fn a_name_has_three_spellings() {
    let name = Name::parse_package("web-shop2").unwrap();
    assert_eq!((name.kebab(), &*name.snake(), &*name.camel()), ("web-shop2", "web_shop2", "WebShop2"));
    for (kind, kebab) in
        [("WebShop", "web-shop"), ("HTTPRoute", "http-route"), ("A", "a"), ("S3Bucket", "s3-bucket")]
    {
        assert_eq!(Kind::parse(kind).unwrap().name.kebab(), kebab);
    }
}

#[test]
fn a_name_that_is_no_label_is_refused() {
    let longest = "a".repeat(55);
    assert!(Name::parse(&longest).is_ok());
    for wrong in [
        "",
        "Shop",
        "web_shop",
        "-shop",
        "shop-",
        "we--b",
        "2shop",
        "a.b",
        "a/b",
        "..",
        "läden",
        &(longest + "a"),
    ] {
        let expected = "expected at most 55 lower-case letters, digits and single dashes, a letter first, \
                        such as web-shop";
        assert_eq!(refused(Name::parse(wrong)), format!("name {wrong:?}: {expected}"));
    }
}

#[test]
fn keywords_and_packages_that_cargo_refuses_are_refused() {
    for keyword in ["match", "async", "gen", "self", "yield"] {
        assert_eq!(refused(Name::parse(keyword)), format!("name {keyword:?}: expected no keyword of Rust"));
    }
    for package in ["test", "core", "std", "alloc", "proc-macro", "build", "con", "com1"] {
        let expected = format!("name {package:?}: cargo refuses a package of this name");
        assert_eq!(refused(Name::parse_package(package)), expected);
        assert!(Name::parse(package).is_ok(), "a module may have this name");
    }
    assert!(Name::parse_package("com").is_ok() && Name::parse_package("com10").is_ok());
}

#[test]
fn a_kind_that_is_none_is_refused_with_its_spelling() {
    let expected = "expected letters and digits, a capital letter first, such as";
    for (kind, hint) in [
        ("web-shop", "WebShop"),
        ("web_shop", "WebShop"),
        ("webShop", "WebShop"),
        ("1a", "WebShop"),
        ("", "WebShop"),
    ] {
        assert_eq!(refused(Kind::parse(kind)), format!("kind {kind:?}: {expected} {hint}"));
    }
    let keyword = "kind \"Type\": its name \"type\": expected no keyword of Rust";
    assert_eq!(refused(Kind::parse("Type")), keyword);
}

#[test]
fn a_group_is_a_domain_that_kubernetes_does_not_protect() {
    assert!(check_group("shop.example.com").is_ok() && check_group("my-k8s.io").is_ok());
    for wrong in ["shop", "Shop.example.com", "a..b", "a_b.c", ""] {
        let expected = "expected a domain in lower case, such as shop.example.com";
        assert_eq!(refused(check_group(wrong)), format!("group {wrong:?}: {expected}"));
    }
    for protected in ["k8s.io", "apps.k8s.io", "x.kubernetes.io"] {
        assert!(refused(check_group(protected)).contains("no domain of Kubernetes"), "{protected}");
    }
}
