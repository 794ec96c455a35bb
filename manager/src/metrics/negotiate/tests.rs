use super::*;

#[test]
fn weight_order_and_version_choose_the_form() {
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,\
                      application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,\
                      */*;q=0.2";
    let cases = [
        (None, Format::Text),
        (Some(""), Format::Text),
        (Some("*/*"), Format::Text),
        (Some("text/html"), Format::Text),
        (Some(prometheus), Format::OpenMetrics),
        (Some("Application/OpenMetrics-Text"), Format::OpenMetrics),
        (Some("application/openmetrics-text; version=\"1.0.0\" ; charset=utf-8"), Format::OpenMetrics),
        // Only another version, or a weight of zero.
        (Some("application/openmetrics-text;version=0.0.1"), Format::Text),
        (Some("application/openmetrics-text;q=0, text/plain;q=0.1"), Format::Text),
        (Some("application/openmetrics-text;q=0"), Format::Text),
        (Some("text/plain;version=0.0.4, application/openmetrics-text;q=0.9"), Format::Text),
        (Some("text/plain;q=0.1, application/openmetrics-text;q=0.2"), Format::OpenMetrics),
        (Some("application/openmetrics-text, text/plain"), Format::OpenMetrics),
        // Malformed ranges are ignored.
        (Some("application/openmetrics-text;q=much"), Format::Text),
        (Some("application/openmetrics-text;q=NaN"), Format::Text),
        (Some("application/openmetrics-textual"), Format::Text),
        (Some(";;;,,=;q"), Format::Text),
    ];
    for (accept, expected) in cases {
        assert_eq!(Format::negotiate(accept), expected, "{accept:?}");
    }
}
