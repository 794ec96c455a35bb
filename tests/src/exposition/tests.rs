use super::*;

const GOOD: &str = "# HELP runs_total Runs.\n# TYPE runs_total counter\nruns_total{of=\"a\\\"b\"} 2\n\
        # HELP seconds Time.\n# TYPE seconds histogram\nseconds_sum 1.5\nseconds_count 2\n\
        seconds_bucket{le=\"1\"} 1\nseconds_bucket{le=\"+Inf\"} 2\n";

#[test]
fn valid_metrics_are_parsed_and_invalid_ones_are_refused() {
    let families = parse(GOOD, Format::Text).unwrap();
    assert_eq!(families.keys().collect::<Vec<_>>(), ["runs", "seconds"]);
    assert_eq!(families["runs"].labels, BTreeSet::from(["of".to_owned()]));
    assert!(families["seconds"].labels.is_empty(), "a bound is no label of the family");
    let openmetrics = GOOD.replace("P runs_total", "P runs").replace("E runs_total", "E runs") + "# EOF\n";
    assert_eq!(parse(&openmetrics, Format::OpenMetrics).unwrap(), families);
    parse(&openmetrics, Format::Text).unwrap_err();
    parse(GOOD, Format::OpenMetrics).unwrap_err();

    let spoilt = [
        ("Runs.", "Runs"),
        ("# TYPE runs_total counter\n", ""),
        ("runs_total counter", "runs_total info"),
        ("runs_total{", "other_total{"),
        ("} 2", "} two"),
        ("} 2", "} -1"),
        ("a\\\"b", "a\"b"),
        ("a\\\"b", "a\\tb"),
        ("of=", "1of="),
        ("runs_total{of=\"a\\\"b\"} 2\n", "runs_total{of=\"a\"} 2\nruns_total{of=\"a\"} 2\n"),
        ("# HELP seconds", "# HELP runs_total Runs.\n# TYPE runs_total counter\n# HELP seconds"),
        ("runs_total{", "runs_total{more=\"b\"} 1\nruns_total{"),
        ("seconds_count 2", "seconds_count 3"),
        ("seconds_sum 1.5\n", ""),
        ("{le=\"1\"} 1", "{le=\"1\"} 3"),
        ("le=\"1\"", "le=\"one\""),
        ("seconds_bucket{le=\"+Inf\"} 2\n", ""),
    ];
    for (good, bad) in spoilt {
        let text = GOOD.replacen(good, bad, 1);
        assert_ne!(text, GOOD, "{good}");
        assert!(parse(&text, Format::Text).is_err(), "{good} -> {bad}");
    }
}
