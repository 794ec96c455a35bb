use super::*;

#[test]
fn bounds_are_written_as_by_go() {
    // Each from `strconv.FormatFloat(x, 'g', -1, 64)`.
    let cases = [
        (0.0, "0", "0.0"),
        (1.0, "1", "1.0"),
        (0.005, "0.005", "0.005"),
        (1.25, "1.25", "1.25"),
        (60.0, "60", "60.0"),
        (0.0001, "0.0001", "0.0001"),
        (1e-8, "1e-08", "1e-08"),
        (9.999_999_999_999_999e-6, "9.999999999999999e-06", "9.999999999999999e-06"),
        (262_144.0, "262144", "262144.0"),
        (1_048_576.0, "1.048576e+06", "1.048576e+06"),
        (1e100, "1e+100", "1e+100"),
        (-2.5, "-2.5", "-2.5"),
        (f64::INFINITY, "+Inf", "+Inf"),
    ];
    for (number, text, openmetrics) in cases {
        assert_eq!(bound(number, Format::Text), text);
        assert_eq!(bound(number, Format::OpenMetrics), openmetrics);
    }
}
