//! A network: all addresses that begin with the same bits.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// What a network looks like, for messages.
pub(super) const FORM: &str = "a network such as 10.8.0.0/16 or 2001:db8::/32, or an IP address";
/// What every network matches; more than is one, which the parser refuses.
pub(super) const PATTERN: &str = "^[0-9A-Fa-f:.]+(/[0-9]{1,3})?$";

/// How many bits stand before an IPv4 address that is written as an IPv6 one.
const MAPPED_BITS: u8 = 96;

/// All addresses that begin with the same bits. One address alone is a network of its whole length.
///
/// ```
/// use mainstay::config::Network;
///
/// let network: Network = "10.8.0.0/16".parse()?;
/// assert!(network.contains("::ffff:10.8.3.4".parse().unwrap()));
/// assert_eq!("10.8.0.1".parse::<Network>()?.to_string(), "10.8.0.1/32");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network {
    /// Its bits beyond the prefix are zero.
    address: IpAddr,
    /// How many leading bits count; at most 32 or 128.
    prefix: u8,
}

// === impl Network ===

impl Network {
    /// Returns whether an address is in the network. An IPv4 address in IPv6 form is the IPv4 address.
    pub fn contains(&self, candidate: IpAddr) -> bool {
        let prefix = u32::from(self.prefix);
        match (self.address, candidate.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(candidate)) => {
                (network.to_bits() ^ candidate.to_bits()).checked_shr(32 - prefix).unwrap_or(0) == 0
            }
            (IpAddr::V6(network), IpAddr::V6(candidate)) => {
                (network.to_bits() ^ candidate.to_bits()).checked_shr(128 - prefix).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((address, prefix)) = text.split_once('/') else {
            // As `contains` compares: an IPv4 address in IPv6 form is the IPv4 address.
            let address = text.parse::<IpAddr>().map_err(|_| FORM.to_owned())?.to_canonical();
            return Ok(Self { address, prefix: if address.is_ipv4() { 32 } else { 128 } });
        };
        let (Ok(address), Ok(prefix)) = (address.parse::<IpAddr>(), prefix.parse::<u8>()) else {
            return Err(FORM.to_owned());
        };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if prefix > bits {
            return Err(format!("a prefix of at most {bits} bits"));
        }
        let first = match address {
            IpAddr::V4(v4) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V4((v4.to_bits() & mask).into())
            }
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
                IpAddr::V6((v6.to_bits() & mask).into())
            }
        };
        if first != address {
            return Err(format!("the network's own address, {first}/{prefix}"));
        }
        let IpAddr::V4(v4) = address.to_canonical() else { return Ok(Self { address, prefix }) };
        match (address, prefix.checked_sub(MAPPED_BITS)) {
            (IpAddr::V4(_), _) => Ok(Self { address, prefix }),
            (IpAddr::V6(_), Some(prefix)) => Ok(Self { address: IpAddr::V4(v4), prefix }),
            // It would match nothing: addresses of that form are compared as IPv4.
            (IpAddr::V6(_), None) => {
                Err("a network of IPv4 addresses in IPv4 form, such as 10.8.0.0/16".to_owned())
            }
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}
