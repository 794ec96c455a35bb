//! Regular expressions for the CRD.
//!
//! The plan checks the same rules in code, without a regex engine ([`names`](crate::plan)); a test compares
//! both.

/// A label of a DNS name; underscores are common in DNS.
macro_rules! dns_label {
    () => {
        "[0-9A-Za-z_]([-0-9A-Za-z_]{0,61}[0-9A-Za-z_])?"
    };
}

/// A number of an IPv4 address, without leading zeros.
macro_rules! octet {
    () => {
        "(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    };
}

/// Hexadecimal groups with at least two colons; with one colon it could be a host and a port.
macro_rules! ipv6 {
    () => {
        "[0-9A-Fa-f.]*:[0-9A-Fa-f.]*:[0-9A-Fa-f:.]*"
    };
}

/// A DNS-1123 subdomain. The pattern does not check the length, which is at most 253.
macro_rules! subdomain {
    () => {
        "[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
    };
}

/// A name that can be looked up in DNS.
pub(crate) const DNS_NAME: &str = concat!("^", dns_label!(), "([.]", dns_label!(), ")*[.]?$");
/// A name whose last label is a number, which some resolvers parse as an IPv4 address.
pub(crate) const NUMERIC: &str = "(^|[.])([0-9]+|0[xX][0-9A-Fa-f]*)[.]?$";
/// An IPv4 address of four decimal numbers.
pub(crate) const IPV4: &str = concat!("^", octet!(), "([.]", octet!(), "){3}[.]?$");
/// A string that can only be an IPv6 address; the plan checks whether it is a valid one.
pub(crate) const IPV6: &str = concat!(r"^(\[", ipv6!(), r"\]|", ipv6!(), ")$");
/// A DNS-1123 label. The pattern does not check the length, which is at most 63.
pub(crate) const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS-1123 subdomain. The pattern does not check the length, which is at most 253.
pub(crate) const SUBDOMAIN: &str = concat!("^", subdomain!(), "$");
/// An absolute path with query, percent-encoded (RFC 3986).
pub(crate) const PATH: &str = "^/([-0-9A-Za-z._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*$";
/// A token of RFC 9110.
pub(crate) const TOKEN: &str = "^[-0-9A-Za-z!#$%&'*+.^_`|~]+$";
/// Printable ASCII, with spaces and tabs inside.
pub(crate) const HEADER_VALUE: &str = "^([!-~]([ -~\t]*[!-~])?)?$";
/// Printable ASCII without spaces.
pub(crate) const GRAPHIC: &str = "^[!-~]*$";
/// A key of a `ConfigMap`, which is also a file name.
pub(crate) const CONFIG_MAP_KEY: &str = "^[-._0-9A-Za-z]+$";
/// An API version: `group/version`, or `version` for the core group.
pub(crate) const API_VERSION: &str = concat!("^(", subdomain!(), "/)?[a-z]([-a-z0-9]{0,61}[a-z0-9])?$");
/// A kind.
pub(crate) const KIND: &str = "^[A-Za-z]([-0-9A-Za-z]{0,61}[0-9A-Za-z])?$";
/// The name of an object in a path of the API server.
pub(crate) const PATH_SEGMENT: &str = "^[^/%]+$";
/// TYPE or TYPE=STATUS; the type may have a domain, as a label key may.
pub(crate) const CONDITION: &str =
    concat!("^(", subdomain!(), "/)?[0-9A-Za-z]([-0-9A-Za-z_.]*[0-9A-Za-z])?(=(True|False|Unknown))?$");
