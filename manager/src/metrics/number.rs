//! Bucket bounds in Go's number format.
//!
//! A bound is the value of a label, and labels are compared as text: `le="1e-8"` and `le="1e-08"` would be
//! two series of one histogram. Prometheus before version 3 does not normalize them.

use super::Format;

/// Returns the upper bound of a histogram bucket as `client_golang` writes it: `strconv.FormatFloat(bound,
/// 'g', -1, 64)`, and in OpenMetrics always with a point or an exponent.
pub(super) fn bound(bound: f64, format: Format) -> String {
    if bound.is_infinite() {
        return if bound > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    // The shortest digits that parse to this number, as in Go.
    let shortest = format!("{bound:e}");
    let Some((digits, exponent)) = shortest.split_once('e') else { return shortest };
    // Rust always writes a number after the `e`, so the default is never used.
    let exponent: i32 = exponent.parse().unwrap_or(0);
    // Go's range of exponents for the plain form.
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
