//! The two forms of names in Kubernetes: a DNS label and a DNS subdomain (RFC 1123).

/// Returns whether a text is one DNS label: 1 to 63 lower-case letters, digits and hyphens, without a hyphen
/// at either end.
pub(crate) fn is_dns_label(text: &str) -> bool {
    text.len() <= 63 && is_label(text)
}

/// Returns whether a text is a DNS subdomain as the API server defines it: labels separated by dots, at most
/// 253 characters in total.
pub(crate) fn is_dns_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_label)
}

fn is_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty() && text.chars().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}
