//! What a scraper likes best, from its `Accept` header.
//!
//! Ranges count by their weight and then by their order, as RFC 9110 has it, and only for versions that we write.
//! Prometheus itself names OpenMetrics 1.0.0, 0.0.1 and the text format, with falling weights.

use super::Format;

/// Returns the form of the best range that names one; `None` if none does, or none with a weight above zero.
pub(super) fn preferred(accept: &str) -> Option<Format> {
    let mut best = None;
    for (format, weight) in accept.split(',').filter_map(range) {
        // The first of equals holds.
        if weight > 0.0 && best.is_none_or(|(_, highest)| weight > highest) {
            best = Some((format, weight));
        }
    }
    best.map(|(format, _)| format)
}

/// Reads one range. `None` if it asks for what we do not write, or cannot be read.
fn range(text: &str) -> Option<(Format, f32)> {
    let mut parts = text.split(';').map(str::trim);
    let (format, versions) = match parts.next()?.to_ascii_lowercase().as_str() {
        "application/openmetrics-text" => (Format::OpenMetrics, "1.0.0"),
        "text/plain" => (Format::Text, "0.0.4"),
        "text/*" | "*/*" => (Format::Text, ""),
        _ => return None,
    };
    let mut weight = 1.0;
    for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
        let value = value.trim().trim_matches('"');
        match name.trim().to_ascii_lowercase().as_str() {
            "q" => weight = value.parse().ok().filter(|weight| (0.0..=1.0).contains(weight))?,
            "version" if value != versions => return None,
            _ => {}
        }
    }
    Some((format, weight))
}

#[cfg(test)]
mod tests;
