//! Ranges of addresses that must not be dialled for a tenant, in every form of an address.
//!
//! Addresses are compared as numbers, after the IPv4 address is extracted from each IPv6 form that can
//! contain one. A list that compares text, or misses one form, can be bypassed (Kyverno#16419: by an
//! IPv4-mapped address).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Maximum number of IPv4 addresses that one IPv6 address can contain.
const EMBEDDED: usize = 4;

/// The class of an IP address in a special range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    /// The address is a loopback address: the machine or Pod of the manager itself.
    Loopback,
    /// The address is never dialled; with a description of its range.
    Never(&'static str),
}

/// Returns each address that a connection to this IP address may end at: the address itself, and IPv4
/// addresses inside it, which translators and tunnels use. A rule that denies applies to all of them, a rule
/// that admits only to the first.
pub(super) fn meanings(ip: IpAddr) -> impl Iterator<Item = IpAddr> {
    let ip = ip.to_canonical();
    let inside = match ip {
        IpAddr::V4(_) => [None; EMBEDDED],
        IpAddr::V6(v6) => embedded(v6),
    };
    std::iter::once(ip).chain(inside.into_iter().flatten().map(IpAddr::V4))
}

/// Returns the special class of an IP address and of the IPv4 addresses inside it; the strictest of several,
/// `None` if ordinary.
pub(super) fn special(ip: IpAddr) -> Option<Special> {
    // Before the loop: the IPv4 address inside `::1` is an unspecified one.
    if ip.to_canonical().is_loopback() {
        return Some(Special::Loopback);
    }
    meanings(ip).filter_map(special_itself).min_by_key(|special| *special == Special::Loopback)
}

fn special_itself(ip: IpAddr) -> Option<Special> {
    match ip {
        IpAddr::V4(v4) => special_v4(v4),
        IpAddr::V6(v6) => special_v6(v6),
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
        // All of the first /32 are AWS services for the local machine: metadata, and credentials of Pods.
        [0xfd00, 0x0ec2, ..]
        | [0xfd00, 0x0042, 0, 0, 0, 0, 0, 0x0042]
        | [0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254] => never("an address of a metadata service"),
        _ if ip.is_unspecified() => never("the unspecified address"),
        _ if ip.is_loopback() => Some(Special::Loopback),
        _ if ip.is_unicast_link_local() => never("a link-local address"),
        _ if ip.is_multicast() => never("a multicast address"),
        _ => None,
    }
}

/// Returns the IPv4 addresses that translators and tunnels extract from an IPv6 address.
fn embedded(ip: Ipv6Addr) -> [Option<Ipv4Addr>; EMBEDDED] {
    let o = ip.octets();
    let v4 = |i: usize| Ipv4Addr::new(o[i], o[i + 1], o[i + 2], o[i + 3]);
    // ISATAP (RFC 5214), below any prefix.
    let isatap = matches!(ip.segments(), [.., 0 | 0x200, 0x5efe, _, _]).then(|| v4(12));
    match ip.segments() {
        // IPv4-compatible, deprecated (RFC 4291), IPv4-translated (RFC 2765), and NAT64 by its well-known
        // prefix (RFC 6052).
        [0, 0, 0, 0, 0 | 0xffff, 0, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => [Some(v4(12)), None, None, None],
        // NAT64 (RFC 8215): operators choose a prefix of 48, 56, 64 or 96 bits in this /48, which is not
        // known here. So each position of RFC 6052 counts if only zeros follow it; octet 8 is skipped.
        [0x64, 0xff9b, 1, ..] => {
            let at = |octets: [usize; 4], after: usize| {
                let ip = octets.map(|i| o[i]);
                (o[8] == 0 && ip != [0; 4] && o[after..].iter().all(|octet| *octet == 0)).then(|| ip.into())
            };
            let last = o[12..].iter().any(|octet| *octet != 0).then(|| v4(12));
            [at([6, 7, 9, 10], 11), at([7, 9, 10, 11], 12), at([9, 10, 11, 12], 13), last]
        }
        // 6to4 (RFC 3056).
        [0x2002, ..] => [Some(v4(2)), isatap, None, None],
        // Teredo (RFC 4380): the server as it is, the client inverted.
        [0x2001, 0, ..] => [Some(v4(4)), Some(Ipv4Addr::from_bits(!v4(12).to_bits())), isatap, None],
        _ => [isatap, None, None, None],
    }
}

#[cfg(test)]
mod tests;
