//! One entry of `probePolicy.allow`: a network, a host or a domain, and the namespaces with objects that may
//! use it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use mainstay::config::as_text;
use mainstay::config::{is_dns_name, is_namespace};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::network::{self, Network};

/// The accepted forms of an entry of `probePolicy.allow`, for error messages.
const FORM: &str = "a network such as 10.8.0.0/16, an IP address, a host such as db.example.com, \
                    or a domain such as .example.com";
/// Pattern of an entry of `probePolicy.allow` for the JSON schema: matches every valid entry. The parser
/// refuses other texts that match.
const PATTERN: &str = r"^(\.?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+(/[0-9]{1,3})?)$";

/// A rule for targets that the mode `AllowList` of the probe policy allows besides Services.
///
/// Addresses are compared as numbers, never as text; names without regard to case.
///
/// ```
/// use mainstay_controllers::settings::AllowRule;
///
/// let network: AllowRule = "10.8.0.0/16".parse()?;
/// assert!(network.allows_address("10.8.3.4".parse().unwrap()));
/// let domain: AllowRule = ".example.com".parse()?;
/// assert!(domain.allows_host("db.example.com") && !domain.allows_host("example.com"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum AllowRule {
    /// Probes may connect to every address of this network.
    Network(Network),
    /// Probes may connect to this one host, in lower case.
    Host(String),
    /// Probes may connect to every host below this domain, in lower case, without the leading dot.
    Domain(String),
}

as_text!(AllowRule, PATTERN);

/// An entry of `probePolicy.allow`: the text of a rule, or a mapping that also names namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllowEntry {
    /// The addresses or hosts that the entry allows probes to connect to.
    pub to: AllowRule,
    /// The namespaces with objects that may use the entry. Empty: every namespace that does not enforce the
    /// Pod Security level baseline or restricted.
    pub namespaces: Vec<String>,
}

// === impl AllowEntry ===

impl AllowEntry {
    /// Returns whether probes for objects of a namespace may use the entry. `restricted`: the namespace
    /// enforces the Pod Security level baseline or restricted, so the entry has to name it.
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

/// An entry of `probePolicy.allow` that names namespaces, as the configuration file spells it.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mapping {
    to: AllowRule,
    namespaces: Vec<String>,
}

impl<'de> Deserialize<'de> for AllowEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entry;

        impl<'de> Visitor<'de> for Entry {
            type Value = AllowEntry;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(FORM)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<AllowEntry, E> {
                let rule = text.parse::<AllowRule>();
                rule.map(AllowEntry::from).map_err(|expected| E::custom(format!("expected {expected}")))
            }

            fn visit_map<A: MapAccess<'de>>(self, keys: A) -> Result<AllowEntry, A::Error> {
                let Mapping { to, namespaces } = Mapping::deserialize(MapAccessDeserializer::new(keys))?;
                if namespaces.is_empty() {
                    // An entry for all namespaces is written as plain text.
                    return Err(A::Error::custom("expected at least one namespace"));
                }
                match namespaces.iter().find(|name| !is_namespace(name)) {
                    Some(name) => {
                        Err(A::Error::custom(format!("expected names of namespaces, which {name:?} is not")))
                    }
                    None => Ok(AllowEntry { to, namespaces }),
                }
            }
        }

        deserializer.deserialize_any(Entry)
    }
}

impl Serialize for AllowEntry {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { to, namespaces } = self.clone();
        if namespaces.is_empty() {
            to.serialize(serializer)
        } else {
            Mapping { to, namespaces }.serialize(serializer)
        }
    }
}

impl JsonSchema for AllowEntry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AllowEntry".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let namespace = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";
        json_schema!({
            "type": ["string", "object"],
            "pattern": PATTERN,
            "properties": {
                "to": {"type": "string", "pattern": PATTERN},
                "namespaces": {
                    "type": "array",
                    "items": {"type": "string", "pattern": namespace},
                    "minItems": 1,
                    "uniqueItems": true,
                },
            },
            "required": ["to", "namespaces"],
            "additionalProperties": false,
        })
    }
}

// === impl AllowRule ===

impl AllowRule {
    /// Returns whether the rule allows probes of an IP address. An IPv4 address in IPv6 form counts as the
    /// IPv4 address.
    pub fn allows_address(&self, candidate: IpAddr) -> bool {
        matches!(self, Self::Network(network) if network.contains(candidate))
    }

    /// Returns whether the rule allows probes of a host name; a dot at its end is ignored.
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
        // A last label that begins with a digit could be an unusual form of an IPv4 address, such as `127.1`.
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

#[cfg(test)]
mod tests;
