//! Checks that a request names a loopback host.
//!
//! A server on loopback refuses other machines, but not a browser on this one: any web page can make its own
//! host name resolve to 127.0.0.1 and then read the answers (DNS rebinding). Requests of such a page name its
//! host; requests of people and of `kubectl port-forward` name loopback.

use std::net::{Ipv4Addr, Ipv6Addr};

use http::Request;
use http::header::{HOST, HeaderValue};
use http::uri::Authority;

/// Extension that marks a request with a valid token. Such a request may name any host, because a browser
/// sends no token to a rebound host name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Authorized;

/// Returns whether a request names a host in its `Host` header and line, and only loopback hosts. Any port is
/// accepted, because a forwarded port may have any number.
pub(super) fn is_loopback<B>(request: &Request<B>) -> bool {
    let mut headers = request.headers().get_all(HOST).iter();
    let (Some(host), None) = (headers.next(), headers.next()) else { return false };
    let host = host.to_str().ok().and_then(|host| host.parse::<Authority>().ok());
    host.is_some_and(|host| names_loopback(&host))
        // `GET http://host/path`: this host takes precedence over the header (RFC 9112, section 3.2.2).
        && request.uri().authority().is_none_or(names_loopback)
}

/// Returns whether the value of an `Origin` header names a loopback host.
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
