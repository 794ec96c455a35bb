//! Numbers as Go writes them.
//!
//! A bucket's bound is a label, and labels are compared as text: `le="1e-8"` beside another replica's `le="1e-08"`
//! would be two series of one histogram. Every scraper before Prometheus 3 takes them as they come.

use super::Format;

/// Returns what `client_golang` writes for a bucket's bound: `strconv.FormatFloat(bound, 'g', -1, 64)`, and in
/// OpenMetrics never without a point or an exponent.
pub(super) fn bound(bound: f64, format: Format) -> String {
    if bound.is_infinite() {
        return if bound > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    // The shortest digits that mean this number, as Go's.
    let shortest = format!("{bound:e}");
    let Some((digits, exponent)) = shortest.split_once('e') else { return shortest };
    // What Rust writes behind the `e` is a number; 0 would change nothing below.
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Go's limits for the shortest form.
    if (-4..6).contains(&exponent) {
        let plain = format!("{bound}");
        let point = if format == Format::OpenMetrics && !plain.contains(['.', 'N']) { ".0" } else { "" };
        return plain + point;
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}

#[cfg(test)]
mod tests;
