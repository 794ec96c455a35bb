//! Rewrites the output of prometheus-client as Prometheus text format 0.0.4, or as the OpenMetrics that
//! others write.
//!
//! In 0.0.4 the name of a counter family ends with `_total` and that of an info family with `_info`, and
//! info families have the type gauge; `# UNIT`, `# EOF` and exemplars do not exist. In both formats every
//! help text ends with a full stop, bucket bounds have [Go's format](super::number), and a family is left out
//! if its name was already written, as scrapers would refuse the whole text. Source:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::collections::HashSet;

use super::{Format, number};

/// The text before the bound in the line of a histogram bucket. It does not occur within a label's value,
/// where a quote is escaped.
const BOUND: &str = "le=\"";

/// The text before the exemplar in a line of a metric, if it is outside of a label's value.
const EXEMPLAR: &str = " # {";

/// The text of the metrics after [`rewrite`], and the families that were left out of it.
pub(super) struct Rewritten<'a> {
    pub(super) text: String,
    /// Names of metric families that were left out of the text because the name was already written.
    pub(super) duplicates: Vec<&'a str>,
}

/// Rewrites the metrics text of prometheus-client into the given format, in one pass over its lines, and
/// leaves out families with a name that was already written.
pub(super) fn rewrite(encoded: &str, format: Format) -> Rewritten<'_> {
    let mut out = String::with_capacity(encoded.len());
    let (mut names, mut duplicates) = (HashSet::new(), Vec::new());
    let mut left_out = false;
    // A family begins with `# HELP`, but the suffix of its name depends on the `# TYPE` that follows.
    let mut lines = encoded.lines().peekable();
    while let Some(line) = lines.next() {
        let Some(comment) = line.strip_prefix("# ") else {
            if !left_out {
                sample(&mut out, line, format);
            }
            continue;
        };
        if comment == "EOF" || comment.starts_with("UNIT ") {
            if format == Format::OpenMetrics && (comment == "EOF" || !left_out) {
                out.extend([line, "\n"]);
            }
            continue;
        }
        let Some((keyword, name, rest)) = header(comment) else {
            out.extend([line, "\n"]);
            continue;
        };
        let type_line = if keyword == "TYPE" { Some(line) } else { lines.peek().copied() };
        let kind = type_line.and_then(|line| line.rsplit_once(' ')).map_or("", |(_, kind)| kind);
        let suffix = match (format, kind) {
            (Format::Text, "counter") => "_total",
            (Format::Text, "info") => "_info",
            _ => "",
        };
        if keyword == "HELP" {
            left_out = !names.insert([name, suffix].concat());
            if left_out {
                duplicates.push(name);
            }
        }
        if left_out {
            continue;
        }
        let rest = match (format, keyword, rest) {
            (Format::Text, "TYPE", "info") => "gauge",
            (Format::Text, "TYPE", "unknown") => "untyped",
            _ => rest,
        };
        let stop = if keyword == "HELP" && !rest.ends_with('.') { "." } else { "" };
        out.extend(["# ", keyword, " ", name, suffix, " ", rest, stop, "\n"]);
    }
    Rewritten { text: out, duplicates }
}

/// Splits a comment line `HELP name rest` or `TYPE name rest` into its three parts; `None` for other
/// comments.
fn header(comment: &str) -> Option<(&str, &str, &str)> {
    let mut parts = comment.splitn(3, ' ');
    let keyword = parts.next().filter(|keyword| matches!(*keyword, "HELP" | "TYPE"))?;
    Some((keyword, parts.next()?, parts.next()?))
}

fn sample(out: &mut String, line: &str, format: Format) {
    let line = if format == Format::Text { without_exemplar(line) } else { line };
    let bound = bound_of(line).and_then(|(before, bound, after)| Some((before, bound.parse().ok()?, after)));
    match bound {
        Some((before, bound, after)) => out.extend([before, &number::bound(bound, format), after, "\n"]),
        None => out.extend([line, "\n"]),
    }
}

fn without_exemplar(line: &str) -> &str {
    let is_quoted = |at: usize| {
        let mut quoted = false;
        let mut bytes = line.as_bytes()[..at].iter();
        while let Some(byte) = bytes.next() {
            match byte {
                b'"' => quoted = !quoted,
                // Skip the escaped byte.
                b'\\' => drop(bytes.next()),
                _ => {}
            }
        }
        quoted
    };
    let exemplar = line.match_indices(EXEMPLAR).find(|(at, _)| !is_quoted(*at));
    exemplar.map_or(line, |(at, _)| &line[..at])
}

/// Splits the text line of a histogram bucket around its bound; `None` for other lines.
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
mod tests;
