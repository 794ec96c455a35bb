//! Validation of IP addresses and address ranges.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde_json::Value;

use super::Checks;
use crate::kinds::FieldError;

/// A range of addresses such as `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// The address as written, possibly with bits beyond the prefix.
    address: IpAddr,
    prefix: u32,
}

/// Checks an IP address.
pub(super) fn check_ip(checks: &mut Checks, path: &str, value: &Value) {
    if let Some(error) = ip_error(value.as_str().unwrap_or_default()) {
        checks.add(FieldError::invalid(path, value, error));
    }
}

/// Returns the error of an IP address; `None` if it is valid.
pub(in crate::kinds) fn ip_error(text: &str) -> Option<&'static str> {
    match text.parse::<IpAddr>() {
        Ok(IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            Some("must not be an IPv4-mapped IPv6 address")
        }
        Ok(_) => None,
        Err(_) if zero_padded(text) => Some("must not have leading 0s"),
        Err(_) => Some("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
    }
}

/// Checks an address range.
pub(super) fn check_range(checks: &mut Checks, path: &str, value: &Value) {
    let text = value.as_str().unwrap_or_default();
    let error = match Range::parse(text) {
        Some(range) if range.is_mapped() => "must not have an IPv4-mapped IPv6 address",
        Some(range) if range.address != range.first() => "must not have bits set beyond the prefix length",
        Some(_) => return,
        None if text.split_once('/').is_some_and(|(address, prefix)| padded(address, prefix)) => {
            "must not have leading 0s in IP or prefix length"
        }
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
    };
    checks.add(FieldError::invalid(path, value, error));
}

fn padded(address: &str, prefix: &str) -> bool {
    let trimmed = prefix.trim_start_matches('0');
    let number = if trimmed.is_empty() && !prefix.is_empty() { "0" } else { trimmed };
    let address = trimmed_zeros(address);
    Range::parse(&format!("{address}/{number}")).is_some()
}

/// Returns whether this is an IPv4 address but for zeros in front of its numbers.
pub(super) fn zero_padded(text: &str) -> bool {
    trimmed_zeros(text).parse::<Ipv4Addr>().is_ok()
}

fn trimmed_zeros(text: &str) -> String {
    if text.contains(':') {
        return text.to_owned();
    }
    let trimmed = |number: &str| match number.trim_start_matches('0') {
        "" if !number.is_empty() => "0".to_owned(),
        rest => rest.to_owned(),
    };
    text.split('.').map(trimmed).collect::<Vec<_>>().join(".")
}

// === impl Range ===

impl Range {
    /// Parses a range; `None` if it is malformed.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let digits = prefix.bytes().all(|byte| byte.is_ascii_digit());
        let plain = digits && !(prefix.len() > 1 && prefix.starts_with('0'));
        let prefix: u32 = prefix.parse().ok().filter(|_| plain)?;
        (prefix <= if address.is_ipv4() { 32 } else { 128 }).then_some(Self { address, prefix })
    }

    pub(super) fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Whether another range is a part of this one, and smaller.
    pub(super) fn strictly_contains(&self, other: &Self) -> bool {
        let same_family = self.is_ipv4() == other.is_ipv4();
        same_family
            && self.prefix < other.prefix
            && Self { address: other.first(), prefix: self.prefix }.first() == self.first()
    }

    fn is_mapped(&self) -> bool {
        matches!(self.address, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some())
    }

    /// Returns the first address.
    fn first(&self) -> IpAddr {
        match self.address {
            IpAddr::V4(ip) => {
                let mask = u32::MAX.checked_shl(32 - self.prefix).unwrap_or(0);
                IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
            }
            IpAddr::V6(ip) => {
                let mask = u128::MAX.checked_shl(128 - self.prefix).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
            }
        }
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.first(), self.prefix)
    }
}
