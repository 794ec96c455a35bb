//! Prometheus text format 0.0.4, and OpenMetrics as others write it, from what prometheus-client encodes.
//!
//! 0.0.4 names a counter with its `_total` and an info with its `_info`, which it takes for a gauge; it knows neither
//! `# UNIT` nor `# EOF` nor exemplars. In both forms help texts end with a full stop, whoever wrote them, the bounds of
//! buckets are [Go's](super::number), and a family whose name was written already is left out: readers would refuse all.
//! Source: <https://prometheus.io/docs/instrumenting/exposition_formats/>.

use std::collections::HashSet;

use super::{Format, number};

/// What stands before a bucket's bound. The quote cannot be one within another label's value, where it is escaped.
const BOUND: &str = "le=\"";

/// What stands before an exemplar, outside of any label's value.
const EXEMPLAR: &str = " # {";

/// What was written.
pub(super) struct Written<'a> {
    pub(super) text: String,
    /// Families that were left out, since one of their name came before.
    pub(super) twice: Vec<&'a str>,
}

/// Rewrites what the encoder of prometheus-client wrote. One pass over the lines.
pub(super) fn write(encoded: &str, format: Format) -> Written<'_> {
    let mut out = String::with_capacity(encoded.len());
    let (mut names, mut twice) = (HashSet::new(), Vec::new());
    let mut left_out = false;
    // Its `# HELP`, with which a family begins, comes before what tells that it is one of counters.
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
                twice.push(name);
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
    Written { text: out, twice }
}

/// Splits `HELP name rest` and `TYPE name rest`.
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
                // What follows is escaped.
                b'\\' => drop(bytes.next()),
                _ => {}
            }
        }
        quoted
    };
    let exemplar = line.match_indices(EXEMPLAR).find(|(at, _)| !is_quoted(*at));
    exemplar.map_or(line, |(at, _)| &line[..at])
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
mod tests;
