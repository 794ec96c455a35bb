//! Prometheus text format 0.0.4, and OpenMetrics as others write it, from what prometheus-client encodes.
//!
//! The two forms differ in headers only: 0.0.4 names a counter with its `_total`, knows neither `# UNIT` nor `# EOF`,
//! and has no exemplars (which nothing here writes). In both, help texts end with a full stop, whoever wrote them, and
//! the bounds of buckets are [Go's](super::number).
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use super::{Format, number};

/// What stands before a bucket's bound. The quote cannot be one within another label's value, where it is escaped.
const BOUND: &str = "le=\"";

/// Rewrites what the encoder of prometheus-client wrote. One pass over the lines.
pub(super) fn write(encoded: &str, format: Format) -> String {
    let mut out = String::with_capacity(encoded.len());
    // Its `# HELP` comes before what tells that a family is one of counters.
    let mut lines = encoded.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(comment) = line.strip_prefix("# ") else {
            sample(&mut out, line, format);
            continue;
        };
        if format == Format::Text && (comment == "EOF" || comment.starts_with("UNIT ")) {
            continue;
        }
        match header(comment) {
            Some((keyword, name, rest)) => {
                let type_line = if keyword == "TYPE" { Some(line) } else { lines.peek().copied() };
                let counts = type_line.is_some_and(|line| line.ends_with(" counter"));
                let suffix = if counts && format == Format::Text { "_total" } else { "" };
                let stop = if keyword == "HELP" && !rest.ends_with('.') { "." } else { "" };
                out.extend(["# ", keyword, " ", name, suffix, " ", rest, stop, "\n"]);
            }
            None => out.extend([line, "\n"]),
        }
    }
    out
}

/// Splits `HELP name rest` and `TYPE name rest`.
fn header(comment: &str) -> Option<(&str, &str, &str)> {
    let mut parts = comment.splitn(3, ' ');
    let keyword = parts.next().filter(|keyword| matches!(*keyword, "HELP" | "TYPE"))?;
    Some((keyword, parts.next()?, parts.next()?))
}

fn sample(out: &mut String, line: &str, format: Format) {
    let bound = bound_of(line).and_then(|(before, bound, after)| Some((before, bound.parse().ok()?, after)));
    match bound {
        Some((before, bound, after)) => out.extend([before, &number::bound(bound, format), after, "\n"]),
        None => out.extend([line, "\n"]),
    }
}

/// Splits a line around the bound of its bucket, if it is one.
fn bound_of(line: &str) -> Option<(&str, &str, &str)> {
    let name = &line[..line.find('{')?];
    if !name.ends_with("_bucket") {
        return None;
    }
    let labels = &line[name.len()..];
    let (at, _) =
        labels.match_indices(BOUND).find(|(at, _)| matches!(labels.as_bytes()[at - 1], b'{' | b','))?;
    let start = name.len() + at + BOUND.len();
    let end = start + line[start..].find('"')?;
    Some((&line[..start], &line[start..end], &line[end..]))
}

#[cfg(test)]
mod tests {
    use crate::metrics::{Format, Registry};
    use prometheus_client::metrics::counter::Counter;
    use prometheus_client::metrics::family::Family;
    use prometheus_client::metrics::gauge::Gauge;
    use prometheus_client::metrics::histogram::Histogram;

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
}
