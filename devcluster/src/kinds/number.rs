//! JSON numbers in the types of the server: 64-bit integers, and floats for all other numbers.

use serde_json::Number;

use super::go;

/// A JSON number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Num {
    /// A whole number without fraction or exponent, in the range of `i64`.
    Int(i64),
    /// Any other number.
    Float(f64),
}

impl From<&Number> for Num {
    fn from(number: &Number) -> Self {
        number.as_i64().map_or_else(|| Self::Float(number.as_f64().unwrap_or(f64::MAX)), Self::Int)
    }
}

impl Num {
    /// Returns the number as a float. Large integers lose digits.
    pub(super) fn as_float(self) -> f64 {
        match self {
            Self::Int(int) => int_to_float(int),
            Self::Float(float) => float,
        }
    }

    /// Returns whether the number is whole. A float such as `3.0` is whole if it has at most 53 bits.
    pub(super) fn is_integer(self) -> bool {
        match self {
            Self::Int(_) => true,
            Self::Float(float) => float_is_integer(float),
        }
    }

    /// Returns the number in the form of Go's `%v`.
    pub(super) fn text(self) -> String {
        match self {
            Self::Int(int) => int.to_string(),
            Self::Float(float) => go::float(float),
        }
    }
}

/// Returns whether a float is a whole number of at most 53 bits, apart from rounding errors.
pub(super) fn float_is_integer(float: f64) -> bool {
    const MAX_SAFE: f64 = 9_007_199_254_740_991.0;
    if !float.is_finite() || !(-MAX_SAFE..=MAX_SAFE).contains(&float) {
        return false;
    }
    let whole = float.trunc();
    let difference = (float - whole).abs();
    let sum = float.abs() + whole.abs();
    if float.to_bits() == whole.to_bits() || difference == 0.0 {
        true
    } else if float == 0.0 || whole == 0.0 || difference < f64::MIN_POSITIVE {
        difference < f64::EPSILON * f64::MIN_POSITIVE
    } else {
        difference / sum.min(f64::MAX) < 1e-9
    }
}

/// Converts an integer to a float. Large integers lose digits, as in Go.
#[expect(
    clippy::cast_precision_loss,
    reason = "bounds of schemas are floats, so integers are compared as such"
)]
pub(super) fn int_to_float(int: i64) -> f64 {
    int as f64
}

/// Converts a float to an integer without its fraction, as in Go. Saturates at the range of `i64`.
#[expect(
    clippy::cast_possible_truncation,
    reason = "saturates, and only bounds of schemas pass through here"
)]
pub(super) fn float_to_int(float: f64) -> i64 {
    float as i64
}

#[cfg(test)]
mod tests {
    use super::{float_is_integer, go};

    #[test]
    fn floats_are_written_as_go_does() {
        for (float, text) in
            [(1.5, "1.5"), (3.0, "3"), (123_456.0, "123456"), (1e8, "1e+08"), (1e-5, "1e-05")]
        {
            assert_eq!(go::float(float), text);
        }
    }

    #[test]
    fn whole_floats_are_integers() {
        for (float, whole) in
            [(3.0, true), (-7.0, true), (0.0, true), (1.5, false), (0.1, false), (1e16, false)]
        {
            assert_eq!(float_is_integer(float), whole, "{float}");
        }
    }
}
