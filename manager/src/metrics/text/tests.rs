use crate::metrics::{Format, Registry};
use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::CounterWithExemplar;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;

#[test]
fn counters_carry_their_suffix_in_the_headers_of_the_old_format_only() {
    let registry = Registry::new();
    let counter = Counter::<u64>::default();
    counter.inc();
    registry.register("demo_runs", "Runs so far", counter);
    registry.register("demo_depth", "Keys waiting", Gauge::<i64>::default());
    assert_eq!(
        registry.encode(Format::Text).unwrap(),
        "# HELP demo_runs_total Runs so far.\n# TYPE demo_runs_total counter\ndemo_runs_total 1\n\
             # HELP demo_depth Keys waiting.\n# TYPE demo_depth gauge\ndemo_depth 0\n",
    );
    assert_eq!(
        registry.encode(Format::OpenMetrics).unwrap(),
        "# HELP demo_runs Runs so far.\n# TYPE demo_runs counter\ndemo_runs_total 1\n\
             # HELP demo_depth Keys waiting.\n# TYPE demo_depth gauge\ndemo_depth 0\n# EOF\n",
    );
}

#[test]
fn bounds_are_rewritten_and_values_of_other_labels_are_not() {
    let registry = Registry::new();
    let family = Family::<[(&'static str, &'static str); 2], Histogram>::new_with_constructor(|| {
        Histogram::new([1e-8, 1.0])
    });
    family.get_or_create(&[("le_x", "1.0"), ("of", "a,le=\"1.0\" le=")]).observe(0.5);
    registry.register("demo_seconds", "Time taken", family);
    let text = registry.encode(Format::Text).unwrap();
    let others = r#"le_x="1.0",of="a,le=\"1.0\" le=""#;
    let expected = [
        format!("demo_seconds_bucket{{le=\"1e-08\",{others}}} 0"),
        format!("demo_seconds_bucket{{le=\"1\",{others}}} 1"),
        format!("demo_seconds_bucket{{le=\"+Inf\",{others}}} 1"),
    ];
    assert!(text.ends_with(&format!("{}\n", expected.join("\n"))), "{text}");
    let text = registry.encode(Format::OpenMetrics).unwrap();
    let expected = expected.join("\n").replace("le=\"1\",", "le=\"1.0\",");
    assert!(text.ends_with(&format!("{expected}\n# EOF\n")), "{text}");
}

/// A metric of unknown type.
#[derive(Debug)]
struct Unknown;

impl EncodeMetric for Unknown {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> std::fmt::Result {
        encoder.encode_gauge(&7_i64)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}

#[test]
fn types_that_the_old_format_lacks_are_written_as_ones_that_it_has() {
    let registry = Registry::new();
    registry.register("demo", "Which it is", Info::new([("of", "a # {b=\"c\"} 1")]));
    registry.register("demo_what", "Who knows", Unknown);
    let counter = CounterWithExemplar::<[(&'static str, &'static str); 1]>::default();
    counter.inc_by(3, Some([("trace", "t\"1")]), None);
    registry.register("demo_runs", "Runs so far", counter);
    assert_eq!(
        registry.encode(Format::Text).unwrap(),
        "# HELP demo_info Which it is.\n# TYPE demo_info gauge\ndemo_info{of=\"a # {b=\\\"c\\\"} 1\"} 1\n\
             # HELP demo_what Who knows.\n# TYPE demo_what untyped\ndemo_what 7\n\
             # HELP demo_runs_total Runs so far.\n# TYPE demo_runs_total counter\ndemo_runs_total 3\n",
    );
    let openmetrics = registry.encode(Format::OpenMetrics).unwrap();
    for kept in ["# TYPE demo info\n", "# TYPE demo_what unknown\n", "demo_runs_total 3 # {trace="] {
        assert!(openmetrics.contains(kept), "{kept}: {openmetrics}");
    }
}
