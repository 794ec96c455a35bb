//! Whether a request was meant for this machine.
//!
//! The server listens on loopback, which keeps other machines out but not a browser on this one: a page from anywhere
//! may let its own name resolve to 127.0.0.1 and then read what it gets (DNS rebinding). Its requests name that host;
//! those of people and of `kubectl port-forward` name loopback.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::Request;
use http::header::{HOST, HeaderValue};
use http::uri::Authority;

/// Among the extensions of a request whose sender has shown the token of the inspection: a browser sends none to a name that was
/// made to resolve here, so any Host is as good as loopback.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authorized;

/// Returns whether every host that the request names is loopback, and it names one. The port does not matter: a
/// forwarded one may be any.
pub(super) fn is_loopback<B>(request: &Request<B>) -> bool {
    let mut headers = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (headers.next(), headers.next()) else { return false };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    host.is_some_and(|host| names_loopback(&host))
        // `GET http://host/path`: servers are to believe this one rather than the header.
        && request.uri().authority().is_none_or(names_loopback)
}

/// Returns whether a page whose script sends a request is from a loopback host. One that does not say is not.
pub(super) fn is_loopback_origin(origin: &HeaderValue) -> bool {
    let origin = origin.to_str().ok().and_then(|origin| origin.split_once("://"));
    origin.and_then(|(_, host)| host.parse().ok()).is_some_and(|host| names_loopback(&host))
}

fn names_loopback(authority: &Authority) -> bool {
    if authority.as_str().contains('@') {
        return false;
    }
    let host = authority.host();
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback()),
        None => {
            host.eq_ignore_ascii_case("localhost")
                || host.parse().is_ok_and(|address: Ipv4Addr| address.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests;
