//! The preferred format of a scraper, from its `Accept` header.
//!
//! The range of the highest weight wins, as in RFC 9110, and among equal weights the first. Ranges of other
//! versions are ignored. Prometheus names OpenMetrics 1.0.0, 0.0.1 and the text format, with descending
//! weights.

use super::Format;

/// Returns the metrics format of the best media range in an `Accept` header; `None` if no range with a weight
/// above zero names a supported format.
pub(super) fn preferred(accept: &str) -> Option<Format> {
    let acceptable = accept.split(',').filter_map(range).filter(|(_, weight)| *weight > 0.0);
    // Of equal weights the first wins.
    let best = acceptable.reduce(|best, next| if next.1 > best.1 { next } else { best });
    best.map(|(format, _)| format)
}

/// Parses one media range of an `Accept` header into metrics format and weight; `None` if it is malformed or
/// names an unsupported format.
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
