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
pub struct Admitted;

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
mod tests {
    use super::*;

    fn admits(uri: &str, hosts: &[&str]) -> bool {
        let mut request = Request::get(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        is_loopback(&request.body(()).unwrap())
    }

    #[test]
    fn loopback_is_answered_by_name_and_by_address_at_any_port() {
        for host in ["localhost", "LocalHost:8082", "127.0.0.1", "127.0.0.1:40001", "127.9.9.9", "[::1]:8082"]
        {
            assert!(admits("/debug/leader", &[host]), "{host}");
        }
    }

    #[test]
    fn a_name_that_merely_resolves_to_loopback_is_refused() {
        let foreign = [
            "",
            "evil.example",
            "evil.example:8082",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "localhost@evil.example",
            "evil@localhost",
            "0.0.0.0:8082",
            "10.0.0.1",
            "2130706433",
            "0x7f.1",
            "[::ffff:127.0.0.1]",
            "[::]",
            "localhost:8082:1",
            "localhost/evil.example",
        ];
        for host in foreign {
            assert!(!admits("/debug/leader", &[host]), "{host}");
        }
    }

    #[test]
    fn a_request_names_one_host_and_the_same_kind_twice() {
        assert!(!admits("/", &[]), "none");
        assert!(!admits("/", &["localhost", "localhost"]), "two headers");
        assert!(!admits("http://evil.example/", &["localhost"]), "the line decides");
        assert!(!admits("http://localhost/", &["evil.example"]), "the header does not hide");
        assert!(admits("http://127.0.0.1:1/", &["localhost"]));
    }

    #[test]
    fn a_page_is_of_this_machine_if_its_origin_says_so() {
        let is_loopback = |origin| is_loopback_origin(&HeaderValue::from_static(origin));
        for origin in ["http://localhost:3000", "http://127.0.0.1:8082", "https://[::1]"] {
            assert!(is_loopback(origin), "{origin}");
        }
        for origin in
            ["null", "", "http://evil.example", "http://localhost.evil.example", "localhost", "file://"]
        {
            assert!(!is_loopback(origin), "{origin}");
        }
    }
}
