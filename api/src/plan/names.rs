//! Validation of names and other strings, with the rules of the API server and the protocols.
//!
//! The CRD has the same rules as regular expressions (`crd::patterns`), so that the API server refuses
//! invalid values; the functions here check objects that were stored under an older CRD. A test compares
//! both.

/// Longest label of a DNS name, and longest value of a label of an object, in bytes.
const MAX_LABEL: usize = 63;
/// Longest DNS name and longest name of an object, in bytes.
const MAX_NAME: usize = 253;

/// Returns whether this is a DNS-1123 label, such as the name of a Service, of a port or of a dependency.
pub(super) fn is_label(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    text.len() <= MAX_LABEL && is_framed(text, |byte| inner(byte) && byte != b'-', inner)
}

/// Returns whether this is a DNS-1123 subdomain, such as the name of most objects or the group of a kind.
pub(super) fn is_subdomain(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    // The API server does not bound the length of a single label of a subdomain.
    let is_part = |part: &str| is_framed(part, |byte| inner(byte) && byte != b'-', inner);
    text.len() <= MAX_NAME && text.split('.').all(is_part)
}

/// Returns whether this is an API version: `group/version`, or `version` for the core group.
pub(super) fn is_api_version(text: &str) -> bool {
    let is_version =
        |version: &str| is_label(version) && version.starts_with(|first: char| first.is_ascii_lowercase());
    is_qualified(text, is_version)
}

/// Returns whether `text` is a valid name of a Kubernetes kind, such as `Job`.
pub(super) fn is_kind(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    text.len() <= MAX_LABEL
        && text.starts_with(|first: char| first.is_ascii_alphabetic())
        && is_framed(text, |byte| byte.is_ascii_alphanumeric(), inner)
}

/// Returns whether this can be the name of an object in a path of the API server.
pub(super) fn is_path_segment(text: &str) -> bool {
    (1..=MAX_NAME).contains(&text.len()) && !text.contains(['/', '%']) && text != "." && text != ".."
}

/// Returns whether this is a key of a `ConfigMap`, which is also a file name.
pub(super) fn is_config_map_key(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(inner) && text != "." && !text.starts_with("..")
}

/// Returns whether this is the key of a label, with or without a domain.
pub(super) fn is_label_key(text: &str) -> bool {
    is_qualified(text, |name| !name.is_empty() && is_label_value(name))
}

/// Returns whether this is the value of a label, which may be empty.
pub(super) fn is_label_value(text: &str) -> bool {
    text.is_empty() || text.len() <= MAX_LABEL && is_name(text)
}

/// Returns whether this is the type of a condition, with or without a domain. The caller checks the length.
pub(super) fn is_condition_type(text: &str) -> bool {
    is_qualified(text, is_name)
}

/// Returns whether this is a token of RFC 9110, such as the name of a header.
pub(super) fn is_token(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(inner)
}

/// Returns whether this is the value of a header: printable ASCII, with spaces and tabs except at the ends.
pub(super) fn is_header_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_graphic() || byte == b' ' || byte == b'\t';
    text.is_empty() || is_framed(text, |byte| byte.is_ascii_graphic(), inner)
}

/// Returns whether this is an absolute path with an optional query, percent-encoded, without fragment (RFC
/// 3986).
pub(super) fn is_path(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&byte);
    let mut bytes = text.bytes();
    let hex = |bytes: &mut std::str::Bytes<'_>| bytes.next().is_some_and(|b| b.is_ascii_hexdigit());
    while let Some(byte) = bytes.next() {
        let encoded = byte == b'%' && hex(&mut bytes) && hex(&mut bytes);
        if !encoded && !plain(byte) {
            return false;
        }
    }
    text.starts_with('/')
}

/// Returns whether `text` is a name, or a domain and a name separated by a slash. `is_name` checks the name.
fn is_qualified(text: &str, is_name: impl Fn(&str) -> bool) -> bool {
    match text.split_once('/') {
        Some((domain, name)) => is_subdomain(domain) && is_name(name),
        None => is_name(text),
    }
}

fn is_name(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    is_framed(text, |byte| byte.is_ascii_alphanumeric(), inner)
}

/// Returns whether a text is not empty, has bytes accepted by `end` at both ends, and consists only of bytes
/// accepted by `inner`.
fn is_framed(text: &str, end: impl Fn(u8) -> bool, inner: impl Fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    ends.is_some_and(|(first, last)| end(*first) && end(*last)) && bytes.iter().all(|byte| inner(*byte))
}

#[cfg(test)]
mod tests;
