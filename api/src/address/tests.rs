use super::*;

fn check(text: &str) -> Result<String, String> {
    Address::parse("waitProbe.address", text).map(|address| address.to_string()).map_err(|e| e.expected)
}

#[test]
fn valid_addresses_become_canonical() {
    let cases = [
        ("postgres:5432", "postgres:5432"),
        ("Postgres.Shop.SVC:5432", "postgres.shop.svc:5432"),
        ("postgres.shop.svc.cluster.local.:1", "postgres.shop.svc.cluster.local:1"),
        ("10.0.0.1:65535", "10.0.0.1:65535"),
        ("10.0.0.1.:80", "10.0.0.1:80"),
        ("[::1]:80", "[::1]:80"),
        ("[2001:DB8:0::1]:80", "[2001:db8::1]:80"),
        ("[::ffff:127.0.0.1]:80", "[::ffff:127.0.0.1]:80"),
        ("_db.example_1.internal:80", "_db.example_1.internal:80"),
        ("4you:80", "4you:80"),
        ("1.2.3.4.example:80", "1.2.3.4.example:80"),
    ];
    for (text, canonical) in cases {
        assert_eq!(check(text), Ok(canonical.to_owned()), "{text}");
        assert_eq!(check(canonical), Ok(canonical.to_owned()), "parse {canonical} again");
    }
}

#[test]
fn forms_that_other_parsers_read_as_ipv4_are_refused() {
    for host in [
        "127.1",
        "0177.0.0.1",
        "0x7f.0.0.1",
        "0x7f000001",
        "2130706433",
        "127.0.0.01",
        "1.2.3",
        "1.2.3.4.5",
        "256.1.1.1",
        "0",
        "0x",
        "017700000001",
        "127.0.0.0x1",
        "foo.0x7f",
        "127.1.",
    ] {
        let problem = check(&format!("{host}:80")).unwrap_err();
        assert!(problem.contains("unusual form"), "{host}: {problem}");
    }
}

#[test]
fn other_invalid_addresses_are_refused_with_a_reason() {
    let cases = [
        ("", "the address is empty"),
        (":5432", "the host is empty"),
        (".:5432", "neither a name nor an address"),
        ("postgres..:5432", "neither a name nor an address"),
        ("postgres", "the port is missing"),
        ("postgres:", "the port is missing"),
        ("postgres:0", "not a number from 1 to 65535"),
        ("postgres:65536", "not a number from 1 to 65535"),
        ("postgres:+80", "not a number from 1 to 65535"),
        ("postgres:http", "not a number from 1 to 65535"),
        ("postgres:٣", "not a number from 1 to 65535"),
        ("::1:80", "needs brackets"),
        ("2001:db8::1", "needs brackets"),
        ("[::1]", "the port is missing"),
        ("[::1]80", "the port is missing"),
        ("[::1:80", "closing bracket"),
        ("[]:80", "not an IPv6 address"),
        ("[127.0.0.1]:80", "not an IPv6 address"),
        ("[postgres]:80", "not an IPv6 address"),
        ("[fe80::1%eth0]:80", "zone id"),
        ("tcp://postgres:5432", "scheme"),
        ("user@postgres:80", "neither a name nor an address"),
        ("post gres:80", "neither a name nor an address"),
        ("post\0gres:80", "neither a name nor an address"),
        ("pöstgres:80", "neither a name nor an address"),
        ("-a:80", "neither a name nor an address"),
        ("*.shop:80", "neither a name nor an address"),
    ];
    for (text, expected) in cases {
        let problem = check(text).unwrap_err();
        assert!(problem.contains(expected), "{text:?}: {problem}");
    }
    assert!(check(&format!("{}:80", "a.".repeat(200))).unwrap_err().contains("253"));
}

#[test]
fn the_error_has_path_value_and_expected_form() {
    let error = Address::parse("waitProbe.address", "::1:80").unwrap_err().to_string();
    let expected = "waitProbe.address \"::1:80\": an IPv6 address needs brackets, else its last group reads \
                    as a port; expected host:port, such as postgres:5432 or [2001:db8::1]:5432";
    assert_eq!(error, expected);
}
