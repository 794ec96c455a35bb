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
mod tests {
    use super::*;

    #[test]
    fn weight_order_and_version_choose_the_form() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                          application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        let cases = [
            (None, Format::Text),
            (Some(""), Format::Text),
            (Some("*/*"), Format::Text),
            (Some("text/html"), Format::Text),
            (Some(prometheus), Format::OpenMetrics),
            (Some("Application/OpenMetrics-Text"), Format::OpenMetrics),
            (Some("application/openmetrics-text; version=\"1.0.0\" ; charset=utf-8"), Format::OpenMetrics),
            // Asked for another version only, or not at all.
            (Some("application/openmetrics-text;version=0.0.1"), Format::Text),
            (Some("application/openmetrics-text;q=0, text/plain;q=0.1"), Format::Text),
            (Some("application/openmetrics-text;q=0"), Format::Text),
            (Some("text/plain;version=0.0.4, application/openmetrics-text;q=0.9"), Format::Text),
            (Some("text/plain;q=0.1, application/openmetrics-text;q=0.2"), Format::OpenMetrics),
            (Some("application/openmetrics-text, text/plain"), Format::OpenMetrics),
            // What cannot be read asks for nothing.
            (Some("application/openmetrics-text;q=much"), Format::Text),
            (Some("application/openmetrics-text;q=NaN"), Format::Text),
            (Some("application/openmetrics-textual"), Format::Text),
            (Some(";;;,,=;q"), Format::Text),
        ];
        for (accept, expected) in cases {
            assert_eq!(Format::negotiate(accept), expected, "{accept:?}");
        }
    }
}
