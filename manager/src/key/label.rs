//! Names as Kubernetes takes them nearly everywhere: one label of a DNS name (RFC 1123).

/// Returns whether a text is one DNS label: 1 to 63 lower-case letters, digits and hyphens, none of these at its ends.
pub(crate) fn is_dns_label(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !text.is_empty()
        && text.len() <= 63
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
