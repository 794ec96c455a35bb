use super::*;

fn rule(text: &str) -> AllowRule {
    text.parse().unwrap()
}

#[test]
fn a_network_allows_its_addresses_in_every_spelling() {
    let network = rule("10.8.0.0/16");
    assert!(network.allows_address("10.8.255.1".parse().unwrap()));
    assert!(network.allows_address("::ffff:10.8.0.1".parse().unwrap()));
    assert!(!network.allows_address("10.9.0.0".parse().unwrap()));
    assert!(!network.allows_host("10.8.0.1"));
    assert!(rule("0.0.0.0/0").allows_address("192.0.2.1".parse().unwrap()));
    assert!(!rule("0.0.0.0/0").allows_address("2001:db8::1".parse().unwrap()));
    assert!(rule("2001:db8::/32").allows_address("2001:db8:1::1".parse().unwrap()));
    assert!(!rule("192.0.2.1").allows_address("192.0.2.2".parse().unwrap()));
    for mapped in ["::ffff:10.8.0.0/112", "::ffff:10.8.0.1", "::ffff:0:0/96"] {
        assert!(rule(mapped).allows_address("10.8.0.1".parse().unwrap()), "{mapped}");
        assert!(!rule(mapped).allows_address("2001:db8::1".parse().unwrap()), "{mapped}");
    }
}

#[test]
fn a_domain_allows_names_below_it_and_not_names_with_the_same_ending() {
    let domain = rule(".Example.com");
    assert!(domain.allows_host("db.example.com"));
    assert!(domain.allows_host("a.DB.example.com."));
    assert!(!domain.allows_host("example.com"));
    assert!(!domain.allows_host(".example.com"));
    assert!(!domain.allows_host("badexample.com"));
    assert!(rule("db.example.com").allows_host("DB.example.com"));
    assert!(!rule("db.example.com").allows_host("a.db.example.com"));
}

#[test]
fn ambiguous_entries_are_refused() {
    for text in [
        "",
        ".",
        "*.example.com",
        "10.8.0.1/16",
        "10.0.0.0/33",
        "::/129",
        "::ffff:0:0/95",
        "::ffff:10.8.0.0/90",
        "0x7f.1",
        "127.1",
        "a b",
        "db:5432",
        "/8",
    ] {
        assert!(text.parse::<AllowRule>().is_err(), "{text}");
    }
    assert_eq!("10.8.0.1/16".parse::<AllowRule>(), Err("the network's own address, 10.8.0.0/16".to_owned()));
}
