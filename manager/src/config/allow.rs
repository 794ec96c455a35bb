//! One entry of `probePolicy.allow`: a network, a host, or all hosts below a domain, and whose objects may name it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::network::{self, Network};
use crate::key::is_dns_label;

/// What an entry looks like, for messages.
pub(super) const FORM: &str = "a network such as 10.8.0.0/16, an IP address, a host such as db.example.com, or a domain such as .example.com";

/// What every entry matches; more than a name does, which the parser refuses.
pub(super) const PATTERN: &str =
    r"^(\.?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+(/[0-9]{1,3})?)$";
/// What [`is_dns_name`] accepts, but for its length.
pub(super) const DNS_NAME_PATTERN: &str =
    r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$";

/// Something that mode `AllowList` allows beside Services.
///
/// Addresses are compared as numbers, never as text; names without regard to case.
///
/// ```
/// use mainstay::config::AllowRule;
///
/// let network: AllowRule = "10.8.0.0/16".parse()?;
/// assert!(network.allows_address("10.8.3.4".parse().unwrap()));
/// let domain: AllowRule = ".example.com".parse()?;
/// assert!(domain.allows_host("db.example.com") && !domain.allows_host("example.com"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AllowRule {
    /// Every address of a network.
    Network(Network),
    /// One host, lower-case.
    Host(String),
    /// Every host below a domain, lower-case, without the leading dot.
    Domain(String),
}

/// An entry of `probePolicy.allow`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllowEntry {
    /// What may be named.
    pub to: AllowRule,
    /// By objects of which namespaces. Empty: of every one that does not enforce a Pod Security level below privileged.
    pub namespaces: Vec<String>,
}

// === impl AllowEntry ===

impl AllowEntry {
    /// Returns whether objects of a namespace may use the entry. `restricted` says that the namespace enforces the Pod
    /// Security level baseline or restricted: it has to be named then.
    pub fn serves(&self, namespace: &str, restricted: bool) -> bool {
        if self.namespaces.is_empty() {
            !restricted
        } else {
            self.namespaces.iter().any(|name| name == namespace)
        }
    }
}

impl From<AllowRule> for AllowEntry {
    fn from(to: AllowRule) -> Self {
        Self { to, namespaces: Vec::new() }
    }
}

// === impl AllowRule ===

impl AllowRule {
    /// Returns whether the rule allows an address. An IPv4 address in IPv6 form is the IPv4 address.
    pub fn allows_address(&self, candidate: IpAddr) -> bool {
        matches!(self, Self::Network(network) if network.contains(candidate))
    }

    /// Returns whether the rule allows a host by its name; a dot at its end does not matter.
    pub fn allows_host(&self, candidate: &str) -> bool {
        let candidate = candidate.strip_suffix('.').unwrap_or(candidate).to_ascii_lowercase();
        match self {
            Self::Network(_) => false,
            Self::Host(host) => candidate == *host,
            Self::Domain(domain) => candidate
                .strip_suffix(domain.as_str())
                .is_some_and(|below| below.len() > 1 && below.ends_with('.')),
        }
    }
}

impl FromStr for AllowRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains('/') || text.parse::<IpAddr>().is_ok() {
            return match text.parse() {
                Err(expected) if expected == network::FORM => Err(FORM.to_owned()),
                network => network.map(Self::Network),
            };
        }
        let (name, domain) = text.strip_prefix('.').map_or((text, false), |domain| (domain, true));
        // A last label of digits would be an IPv4 address in one of its odd spellings.
        let numeric =
            name.rsplit('.').next().is_some_and(|last| last.starts_with(|c: char| c.is_ascii_digit()));
        if !is_dns_name(&name.to_ascii_lowercase()) || numeric {
            return Err(FORM.to_owned());
        }
        let name = name.to_ascii_lowercase();
        Ok(if domain { Self::Domain(name) } else { Self::Host(name) })
    }
}

impl fmt::Display for AllowRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(network) => network.fmt(f),
            Self::Host(host) => f.write_str(host),
            Self::Domain(domain) => write!(f, ".{domain}"),
        }
    }
}

/// Returns whether a text is a DNS name as Kubernetes takes them: lower-case labels, joined by dots.
pub(super) fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}

#[cfg(test)]
mod tests {
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
    fn a_domain_allows_what_is_below_it_and_not_what_ends_alike() {
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
    fn entries_that_could_mean_something_else_are_refused() {
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
        assert_eq!(
            "10.8.0.1/16".parse::<AllowRule>(),
            Err("the network's own address, 10.8.0.0/16".to_owned())
        );
    }
}
