//! Addresses to connect to, parsed so strictly that they are unambiguous.
//!
//! Tenants write these addresses, so the host to which a probe connects must be the host that the policy
//! checked. Forms that parsers interpret differently (octal, hexadecimal or integer IPv4, IPv6 without
//! brackets, zone ids) are refused. Names are lower-cased and lose a trailing dot, so that two spellings of
//! one host compare equal.
//!
//! # Invariants
//! 1. A parsed address has a non-empty host and a port in 1..=65535.
//! 2. No resolver parses a [`Host::Name`] as an IPv4 address: its last label is not a number.
//! 3. The displayed form of an address parses to the same address.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::refusal::{At, InvalidSpec};

/// Maximum length of a host name in bytes, without the trailing dot (RFC 1035).
const MAX_NAME: usize = 253;
/// Maximum length in bytes of a label of a host name: the part between two dots (RFC 1035).
const MAX_LABEL: usize = 63;

/// An address to connect to. Parsed from `host:port` or `[IPv6]:port`, and displayed in that form.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    /// The host to connect to.
    pub host: Host,
    /// TCP port to connect to, never 0.
    pub port: u16,
}

/// The host part of an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Host {
    /// A host name in lower case, without a trailing dot.
    Name(String),
    /// An IP address. An IPv4-mapped IPv6 address stays in that form; the probe policy converts it, not the
    /// parser.
    Ip(IpAddr),
}

// === impl Address ===

impl Address {
    /// Parses the address in `text`, such as `postgres:5432`. The error names `field`, the path of the field
    /// with this text.
    ///
    /// # Errors
    /// Fails if the text is not an unambiguous address; the error has the path, the text and the expected
    /// form.
    ///
    /// # Examples
    /// ```
    /// use mainstay_api::Address;
    ///
    /// let address = Address::parse("waitProbe.address", "Postgres.shop.svc.:5432").unwrap();
    /// assert_eq!(address.to_string(), "postgres.shop.svc:5432");
    ///
    /// let error = Address::parse("waitProbe.address", ":5432").unwrap_err();
    /// assert!(error.to_string().starts_with("waitProbe.address \":5432\": the host is empty"));
    /// ```
    pub fn parse(field: &str, text: &str) -> Result<Self, InvalidSpec> {
        parse(text).map_err(|problem| {
            let form = "expected host:port, such as postgres:5432 or [2001:db8::1]:5432";
            At::new(field).problem(text, format!("{problem}; {form}"))
        })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Name(name) => write!(f, "{name}:{}", self.port),
            Host::Ip(ip) => fmt::Display::fmt(&std::net::SocketAddr::new(*ip, self.port), f),
        }
    }
}

// === impl Host ===

impl Host {
    /// Parses a host: a host name or an IPv4 address. The error is the reason that the text is neither.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err("the host is empty, which would mean the controller itself");
        }
        // A trailing dot marks a complete name; it does not change the host.
        let text = text.strip_suffix('.').unwrap_or(text);
        if let Ok(ip) = text.parse::<Ipv4Addr>() {
            return Ok(Self::Ip(IpAddr::V4(ip)));
        }
        let name = text.to_ascii_lowercase();
        if name.len() > MAX_NAME {
            return Err("the host name is longer than 253 characters");
        }
        if !name.split('.').all(is_label) {
            return Err("the host is neither a name nor an address");
        }
        if name.rsplit('.').next().is_some_and(reads_as_number) {
            return Err(
                "the host reads as an IPv4 address in an unusual form; write four decimal numbers without \
                        leading zeros",
            );
        }
        Ok(Self::Name(name))
    }

    /// Parses an IPv6 address without brackets into a host. The error is the reason that the text is not such
    /// an address.
    pub(crate) fn parse_ipv6(text: &str) -> Result<Self, &'static str> {
        if text.contains('%') {
            return Err("a zone id names an interface of the controller's own machine");
        }
        text.parse::<Ipv6Addr>()
            .map(|ip| Self::Ip(IpAddr::V6(ip)))
            .map_err(|_| "the text in brackets is not an IPv6 address")
    }
}

/// Displays the host; an IPv6 address has no brackets.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(ip) => fmt::Display::fmt(ip, f),
        }
    }
}

// === private ===

fn parse(text: &str) -> Result<Address, &'static str> {
    if text.is_empty() {
        return Err("the address is empty");
    }
    if text.contains("://") {
        return Err("an address has no scheme");
    }
    let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (inside, after) = bracketed.split_once(']').ok_or("the closing bracket is missing")?;
        let port = after.strip_prefix(':').ok_or("the port is missing")?;
        (Host::parse_ipv6(inside)?, port)
    } else {
        let (host, port) = text.rsplit_once(':').ok_or("the port is missing")?;
        if host.contains(':') {
            return Err("an IPv6 address needs brackets, else its last group reads as a port");
        }
        (Host::parse(host)?, port)
    };
    Ok(Address { host, port: parse_port(port)? })
}

fn parse_port(text: &str) -> Result<u16, &'static str> {
    if text.is_empty() {
        return Err("the port is missing");
    }
    // Digits only: `u16::from_str` would also take a sign.
    let digits = text.len() <= 5 && text.bytes().all(|byte| byte.is_ascii_digit());
    match digits.then(|| text.parse::<u16>()) {
        Some(Ok(port @ 1..)) => Ok(port),
        _ => Err("the port is not a number from 1 to 65535"),
    }
}

/// Returns whether `label` is a valid label of a DNS name, in lower case. Host names have no underscores, but
/// many names in DNS do, so underscores are valid.
fn is_label(label: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'_';
    (1..=MAX_LABEL).contains(&label.len())
        && label.bytes().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

/// Returns whether a label of a host name is a decimal or hexadecimal number. `inet_aton` and browsers parse
/// a host as an IPv4 address if its last label is a number.
fn reads_as_number(label: &str) -> bool {
    let hexadecimal =
        label.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()));
    hexadecimal || label.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests;
