//! The address that a server listens on: an IP address with a port, or none.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use super::text::as_text;

/// A regular expression that the text of every bind address matches.
const PATTERN: &str =
    r"^(|0|[0-9]{1,3}(\.[0-9]{1,3}){3}:[0-9]{1,5}|\[[0-9A-Fa-f:.]+(%[0-9]+)?\]:[0-9]{1,5})$";

/// The address that a server listens on.
///
/// ```
/// use mainstay::config::BindAddress;
///
/// let address: BindAddress = "127.0.0.1:8082".parse()?;
/// assert_eq!(address.socket().map(|socket| socket.port()), Some(8082));
/// assert_eq!("".parse(), Ok(BindAddress::Off));
/// // Go's spelling for all addresses is refused; the error has the right one.
/// assert!(":8082".parse::<BindAddress>().unwrap_err().ends_with("for all addresses write 0.0.0.0:8082"));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindAddress {
    /// The server is off: written as `""` or `"0"`.
    Off,
    /// An IP address with a port; for port 0 the operating system chooses one.
    Tcp(SocketAddr),
}

as_text!(BindAddress, PATTERN);

// === impl BindAddress ===

impl BindAddress {
    /// Returns the address that the server binds, or `None` if the server is off.
    pub fn socket(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::Tcp(address) => Some(address),
        }
    }

    /// Returns whether two servers with these addresses cannot listen at the same time.
    pub(super) fn collides(self, other: Self) -> bool {
        let (Self::Tcp(one), Self::Tcp(two)) = (self, other) else { return false };
        let overlap = one.ip() == two.ip() || one.ip().is_unspecified() || two.ip().is_unspecified();
        one.port() == two.port() && one.port() != 0 && overlap
    }
}

impl FromStr for BindAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if matches!(text, "" | "0") {
            return Ok(Self::Off);
        }
        text.parse().map(Self::Tcp).map_err(|_| {
            let hint = match text.rsplit_once(':') {
                Some(("", port)) => format!("; for all addresses write 0.0.0.0:{port}"),
                Some(("localhost", port)) => format!("; write 127.0.0.1:{port}"),
                _ => String::new(),
            };
            format!("an IP address with a port such as 127.0.0.1:8080 or [::1]:8080, or \"\" for off{hint}")
        })
    }
}

impl fmt::Display for BindAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => Ok(()),
            Self::Tcp(address) => write!(f, "{address}"),
        }
    }
}
