use super::*;

#[test]
fn every_form_of_a_forbidden_address_is_found() {
    let cases = [
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::127.0.0.1", "loopback"),
        ("64:ff9b::127.0.0.1", "loopback"),
        ("2002:7f00:1::", "loopback"),
        ("::ffff:0:127.0.0.1", "loopback"),
        ("64:ff9b:1::127.0.0.1", "loopback"),
        ("64:ff9b:1:7f00:0:100::", "loopback"),
        ("64:ff9b:1:7f:0:1::", "loopback"),
        ("64:ff9b:1:0:7f:0:100:0", "loopback"),
        ("64:ff9b:1:ab7f:0:1::", "loopback"),
        ("2001:db8::5efe:127.0.0.1", "loopback"),
        ("fd12::200:5efe:127.0.0.1", "loopback"),
        ("2002:a00:1::5efe:127.0.0.1", "loopback"),
        ("2001:0:7f00:1::", "loopback"),
        ("2001:0:808:808::80ff:fffe", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("0.1.2.3", "unspecified"),
        ("::", "unspecified"),
        ("::ffff:0.0.0.0", "unspecified"),
        ("169.254.1.1", "link-local"),
        ("fe80::1", "link-local"),
        ("febf::1", "link-local"),
        ("::ffff:169.254.1.1", "link-local"),
        ("169.254.169.254", "metadata"),
        ("64:ff9b::169.254.169.254", "metadata"),
        ("2002:a9fe:a9fe::1", "metadata"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("fd00:ec2::23", "metadata"),
        ("64:ff9b:1:a9:fe:a9fe::", "metadata"),
        ("192.0.0.192", "metadata"),
        ("fd20:ce::254", "metadata"),
        ("fd00:42::42", "metadata"),
        ("224.0.0.1", "multicast"),
        ("239.1.1.1", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "broadcast"),
        ("240.0.0.1", "reserved"),
        ("::ffff:255.255.255.255", "broadcast"),
    ];
    let what = |special| match special {
        Special::Loopback => "loopback",
        Special::Never(what) => what,
    };
    for (ip, expected) in cases {
        let ip = ip.parse().unwrap();
        let found: Vec<_> = meanings(ip).filter_map(special_itself).map(what).collect();
        assert!(found.iter().any(|what| what.contains(expected)), "{ip}: {found:?}, expected {expected}");
        assert!(special(ip).is_some_and(|worst| found.contains(&what(worst))), "{ip}");
    }
}

#[test]
fn the_strictest_of_several_classes_counts() {
    for ip in ["2001:0:7f00:1::5601:5601", "64:ff9b:1:7f:0:1::"] {
        assert!(matches!(special(ip.parse().unwrap()), Some(Special::Never(_))), "{ip}");
    }
    assert_eq!(special("2002:7f00:1::".parse().unwrap()), Some(Special::Loopback));
}

#[test]
fn ordinary_addresses_are_ordinary() {
    for ip in [
        "10.0.0.1",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "8.8.8.8",
        "::ffff:10.0.0.1",
        "2001:db8::1",
        "fd12::1",
        "fd00:42::43",
        "64:ff9b::8.8.8.8",
        "64:ff9b:1::8.8.8.8",
        "64:ff9b:1:808:8:800::",
        "2002:a00:1::1",
        "2001:db8::5efe:10.0.0.1",
        "128.0.0.1",
        "fec0::1",
    ] {
        assert_eq!(special(ip.parse().unwrap()), None, "{ip}");
    }
}
