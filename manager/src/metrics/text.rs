//! Prometheus text format 0.0.4 from OpenMetrics text.
//!
//! The two differ in headers only: 0.0.4 names a counter with its `_total`, knows neither `# UNIT` nor `# EOF`, and
//! has no exemplars (which nothing here writes).
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

/// Rewrites what the encoder of prometheus-client wrote. One pass over the lines.
pub(super) fn from_openmetrics(openmetrics: &str) -> String {
    let counters: Vec<&str> = openmetrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let mut out = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        match header(line) {
            Some((keyword, name, rest)) if counters.contains(&name) => {
                out.extend(["# ", keyword, " ", name, "_total ", rest]);
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// Splits `# HELP name rest` and `# TYPE name rest`.
fn header(line: &str) -> Option<(&str, &str, &str)> {
    let mut parts = line.strip_prefix("# ")?.splitn(3, ' ');
    let keyword = parts.next().filter(|keyword| matches!(*keyword, "HELP" | "TYPE"))?;
    Some((keyword, parts.next()?, parts.next()?))
}

#[cfg(test)]
mod tests {
    use crate::metrics::{Format, Registry};
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::gauge::Gauge;

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
}
