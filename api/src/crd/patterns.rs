//! Regular expressions for the CRD.
//!
//! The plan checks the same rules in code, without a regex engine ([`names`](crate::plan)); a test compares
//! both.

/// Regular expression for one label of a DNS name. It allows underscores, which are common in DNS.
macro_rules! dns_label {
    () => {
        "[0-9A-Za-z_]([-0-9A-Za-z_]{0,61}[0-9A-Za-z_])?"
    };
}

/// Regular expression for one of the four numbers of an IPv4 address, without leading zeros.
macro_rules! octet {
    () => {
        "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    };
}

/// Regular expression for an IPv6 address: hexadecimal groups with at least two colons. With one colon the
/// text could be a host and a port.
macro_rules! ipv6 {
    () => {
        "[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*"
    };
}

/// Regular expression for a DNS-1123 subdomain. It does not check the length, which is at most 253.
macro_rules! subdomain {
    () => {
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    };
}

/// Regular expression for a name that can be looked up in DNS.
pub(crate) const DNS_NAME: &str = concat!("^", dns_label!(), "([.]", dns_label!(), ")*[.]?$");
/// Regular expression for a host name with a number as its last label, which some resolvers parse as an IPv4
/// address.
pub(crate) const NUMERIC: &str = "(^|[.])([0-9]+|0[xX][0-9A-Fa-f]*)[.]?$";
/// Regular expression for an IPv4 address of four decimal numbers.
pub(crate) const IPV4: &str = concat!("^", octet!(), "([.]", octet!(), "){3}[.]?$");
/// Regular expression for a text that can only be an IPv6 address, with or without brackets. It does not
/// check that the address is valid; [`WaitDeployment::plan`](crate::WaitDeployment::plan) does.
pub(crate) const IPV6: &str = concat!(r"^(\[", ipv6!(), r"\]|", ipv6!(), ")$");
/// Regular expression for a DNS-1123 label. It does not check the length, which is at most 63.
pub(crate) const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// Regular expression for a DNS-1123 subdomain. It does not check the length, which is at most 253.
pub(crate) const SUBDOMAIN: &str = concat!("^", subdomain!(), "$");
/// Regular expression for an absolute URL path with an optional query, percent-encoded (RFC 3986).
pub(crate) const PATH: &str = "^/([-0-9A-Za-z._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*$";
/// Regular expression for a token of RFC 9110, such as the name of an HTTP header.
pub(crate) const TOKEN: &str = "^[-0-9A-Za-z!#$%&'*+.^_`|~]+$";
/// Regular expression for the value of an HTTP header: printable ASCII, with spaces and tabs except at the
/// ends; it may be empty.
pub(crate) const HEADER_VALUE: &str = "^([!-~]([ -~\t]*[!-~])?)?$";
/// Regular expression for a text of printable ASCII without spaces, which may be empty.
pub(crate) const GRAPHIC: &str = "^[!-~]*$";
/// Regular expression for a key of a `ConfigMap`, which is also a file name.
pub(crate) const CONFIG_MAP_KEY: &str = "^[-._0-9A-Za-z]+$";
/// Regular expression for an API version: `group/version`, or `version` for the core group.
pub(crate) const API_VERSION: &str = concat!("^(", subdomain!(), "/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$");
/// Regular expression for the name of a Kubernetes kind, such as `Job`.
pub(crate) const KIND: &str = "^[A-Za-z]([-0-9A-Za-z]{0,61}[0-9A-Za-z])?$";
/// Regular expression for an object's name as one segment of an API server path: no slash and no percent
/// sign.
pub(crate) const PATH_SEGMENT: &str = "^[^/%]+$";
/// Regular expression for a condition of an object, as TYPE or TYPE=STATUS; the type may have a domain, as a
/// label key may.
pub(crate) const CONDITION: &str =
    concat!("^(", subdomain!(), "/)?[0-9A-Za-z]([-0-9A-Za-z_.]*[0-9A-Za-z])?(=(True|False|Unknown))?$");
