//! A network: all addresses with the same prefix.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::{IpNet, Ipv4Net};
use mainstay::config::as_text;

/// The accepted forms of a network in the configuration, for error messages.
pub(super) const FORM: &str = "a network such as 10.8.0.0/16 or 2001:db8::/32, or an IP address";
/// Pattern of a network for the JSON schema: matches every valid network. The parser refuses other texts that
/// match.
const PATTERN: &str = "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$";

/// Number of bits before the IPv4 address in an IPv4 address in IPv6 form (`::ffff:0:0/96`).
const MAPPED_BITS: u8 = 96;

/// A network: all IP addresses with the same prefix. A single address is a network with a prefix of full
/// length.
///
/// ```
/// use mainstay_controllers::settings::Network;
///
/// let network: Network = "10.8.0.0/16".parse()?;
/// assert!(network.contains("::ffff:10.8.3.4".parse().unwrap()));
/// assert_eq!("10.8.0.1".parse::<Network>()?.to_string(), "10.8.0.1/32");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network(IpNet);

as_text!(Network, PATTERN);

// === impl Network ===

impl Network {
    /// Returns whether an IP address is in the network. An IPv4 address in IPv6 form counts as the IPv4
    /// address.
    pub fn contains(&self, candidate: IpAddr) -> bool {
        self.0.contains(&candidate.to_canonical())
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((address, prefix)) = text.split_once('/') else {
            // Like `contains`: an IPv4 address in IPv6 form counts as the IPv4 address.
            let address = text.parse::<IpAddr>().map_err(|_| FORM.to_owned())?.to_canonical();
            return Ok(Self(address.into()));
        };
        let (Ok(address), Ok(prefix)) = (address.parse::<IpAddr>(), prefix.parse::<u8>()) else {
            return Err(FORM.to_owned());
        };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let network = IpNet::new(address, prefix).map_err(|_| format!("a prefix of at most {bits} bits"))?;
        if network.network() != address {
            return Err(format!("the network's own address, {}", network.trunc()));
        }
        match (address, address.to_canonical()) {
            (IpAddr::V6(_), IpAddr::V4(mapped)) => {
                let short =
                    prefix.checked_sub(MAPPED_BITS).and_then(|prefix| Ipv4Net::new(mapped, prefix).ok());
                // A shorter prefix would match no address, because `contains` compares such addresses as
                // IPv4.
                let expected = "a network of IPv4 addresses in IPv4 form, such as 10.8.0.0/16";
                short.map(|network| Self(network.into())).ok_or_else(|| expected.to_owned())
            }
            _ => Ok(Self(network)),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
