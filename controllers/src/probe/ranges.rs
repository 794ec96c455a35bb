//! Addresses that no tenant may have dialled, whatever form they are written in.
//!
//! Compared as numbers after taking IPv4 out of every IPv6 form that carries it: a list that compares text, or forgets
//! one of the forms, is no list (Kyverno#16419 slipped through a mapped address).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is special.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    /// The machine, or the Pod, of the controller itself.
    Loopback,
    /// Never to be dialled; with what it is.
    Never(&'static str),
}

/// Returns the address a connection would really go to: IPv4-mapped IPv6 is IPv4.
pub(super) fn canonical(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}

/// Returns what is special about an address, or about an IPv4 address inside it.
pub(super) fn special(ip: IpAddr) -> Option<Special> {
    match canonical(ip) {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6).or_else(|| embedded(v6).into_iter().flatten().find_map(special_v4)),
    }
}

fn special_v4(ip: Ipv4Addr) -> Option<Special> {
    let [a, ..] = ip.octets();
    let never = |what| Some(Special::Never(what));
    match ip.octets() {
        [100, 100, 100, 200] | [168, 63, 129, 16] | [192, 0, 0, 192] | [169, 254, 169, 254] => {
            never("an address of a metadata service")
        }
        _ if a == 0 => never("the unspecified address"),
        _ if ip.is_loopback() => Some(Special::Loopback),
        _ if ip.is_link_local() => never("a link-local address"),
        _ if ip.is_multicast() => never("a multicast address"),
        _ if a >= 240 => never("a broadcast or reserved address"),
        _ => None,
    }
}

fn special_v6(ip: Ipv6Addr) -> Option<Special> {
    let never = |what| Some(Special::Never(what));
    match ip.segments() {
        [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254] | [0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254] => {
            never("an address of a metadata service")
        }
        _ if ip.is_unspecified() => never("the unspecified address"),
        _ if ip.is_loopback() => Some(Special::Loopback),
        _ if ip.is_unicast_link_local() => never("a link-local address"),
        _ if ip.is_multicast() => never("a multicast address"),
        _ => None,
    }
}

/// Returns the IPv4 addresses that translators and tunnels would read out of an IPv6 address.
fn embedded(ip: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let o = ip.octets();
    let v4 = |i: usize| Ipv4Addr::new(o[i], o[i + 1], o[i + 2], o[i + 3]);
    match ip.segments() {
        // IPv4-compatible, deprecated (RFC 4291), IPv4-translated (RFC 2765), and NAT64 by its well-known prefix (RFC 6052).
        [0, 0, 0, 0, 0 | 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => [Some(v4(12)), None],
        // NAT64 (RFC 8215): within this /48 both usual places are looked at, unless one of them is empty; octet 8 is
        // skipped by RFC 6052.
        [0x64, 0xff9b, 1, ..] => {
            let high =
                o[6..11].iter().any(|octet| *octet != 0).then(|| Ipv4Addr::new(o[6], o[7], o[9], o[10]));
            let low = o[11..].iter().any(|octet| *octet != 0).then(|| v4(12));
            [high, low]
        }
        // 6to4 (RFC 3056).
        [0x2002, ..] => [Some(v4(2)), None],
        // Teredo (RFC 4380): the server in clear, the client inverted.
        [0x2001, 0, ..] => [Some(v4(4)), Some(Ipv4Addr::from_bits(!v4(12).to_bits()))],
        _ => [None, None],
    }
}

#[cfg(test)]
mod tests {
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
            ("192.0.0.192", "metadata"),
            ("fd20:ce::254", "metadata"),
            ("224.0.0.1", "multicast"),
            ("239.1.1.1", "multicast"),
            ("ff02::1", "multicast"),
            ("255.255.255.255", "broadcast"),
            ("240.0.0.1", "reserved"),
            ("::ffff:255.255.255.255", "broadcast"),
        ];
        for (ip, expected) in cases {
            let what = match special(ip.parse().unwrap()) {
                Some(Special::Loopback) => "loopback",
                Some(Special::Never(what)) => what,
                None => "nothing",
            };
            assert!(what.contains(expected), "{ip}: {what}, expected {expected}");
        }
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
            "64:ff9b::8.8.8.8",
            "64:ff9b:1::8.8.8.8",
            "64:ff9b:1:808:8:800::",
            "2002:a00:1::1",
            "128.0.0.1",
            "fec0::1",
        ] {
            assert_eq!(special(ip.parse().unwrap()), None, "{ip}");
        }
    }
}
