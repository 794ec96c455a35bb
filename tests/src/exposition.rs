//! Reads metrics as scrapers do: a strict parser of both text formats, and Prometheus's own parser in
//! promtool.
//!
//! Sources: <https://prometheus.io/docs/instrumenting/exposition_formats/>,
//! <https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md>.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, bail, ensure};
use mainstay::metrics::Format;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Command;

/// The name of the label with the upper bound of a histogram bucket.
const BOUND: &str = "le";

/// The name of the label with the name of a further cluster: the only label that some series of a family may
/// lack.
const OF_CLUSTER: &str = "of_cluster";

/// One metric family as it was written in the text of a metrics endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Family {
    /// The type of the metric family: `counter`, `gauge` or `histogram`.
    pub kind: String,
    /// The help text of the metric family.
    pub help: String,
    /// The names of the labels of the family's series, without the bounds of buckets.
    pub labels: BTreeSet<String>,
    /// The values of the family by series, as they were written.
    pub series: BTreeMap<String, f64>,
}

/// The metric families by name; a counter's name has no `_total`, in both formats.
pub type Families = BTreeMap<String, Family>;

/// The labels of one series with their values, in the order of their names.
type Labels = BTreeMap<String, String>;

/// The buckets, sum and count of one histogram, with the same labels beside the bound.
#[derive(Default)]
struct Histogram {
    buckets: Vec<(String, f64)>,
    sum: Option<f64>,
    count: Option<f64>,
}

/// Requests `/metrics` from a server on loopback, and returns content type and text.
pub async fn scrape(address: SocketAddr, accept: &str) -> anyhow::Result<(String, String)> {
    ensure!(address.ip().is_loopback(), "{address} is not on loopback");
    let mut stream = TcpStream::connect(address).await?;
    let request =
        format!("GET /metrics HTTP/1.1\r\nHost: {address}\r\nAccept: {accept}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
    ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let content_type = head.lines().find_map(|line| line.strip_prefix("content-type: "));
    Ok((content_type.context("no content type")?.to_owned(), body.to_owned()))
}

/// Parses metrics text, and refuses everything that the format does not allow.
pub fn parse(text: &str, format: Format) -> anyhow::Result<Families> {
    let body = match format {
        Format::Text => text,
        Format::OpenMetrics => text.strip_suffix("# EOF\n").context("does not end with # EOF")?,
    };
    ensure!(body.is_empty() || body.ends_with('\n'), "the last line has no end");
    let mut families = Families::new();
    let mut lines = body.lines().enumerate().peekable();
    while let Some((number, line)) = lines.next() {
        let at = || format!("line {}: {line}", number + 1);
        let help = line.strip_prefix("# HELP ").with_context(|| format!("{}: expected # HELP", at()))?;
        let (name, help) = help.split_once(' ').with_context(at)?;
        ensure!(is_name(name), "{}: no name", at());
        ensure!(help.ends_with('.') && !help.contains(['"', '\\']), "{}: no help", at());
        let kind = lines.next().and_then(|(_, line)| line.strip_prefix("# TYPE ")?.strip_prefix(name));
        let kind =
            kind.and_then(|kind| kind.strip_prefix(' ')).with_context(|| format!("{}: no type", at()))?;
        ensure!(matches!(kind, "counter" | "gauge" | "histogram"), "{}: type {kind}", at());
        let bare = match (format, kind) {
            (Format::Text, "counter") => name.strip_suffix("_total").with_context(at)?,
            _ => name,
        };
        ensure!(!bare.ends_with("_total"), "{}: ends with _total", at());
        let mut family = Family { kind: kind.to_owned(), help: help.to_owned(), ..Family::default() };
        let mut samples = Vec::new();
        while let Some((number, line)) = lines.next_if(|(_, line)| !line.starts_with('#')) {
            let at = || format!("line {}: {line}", number + 1);
            let (series, value) = line.rsplit_once(' ').with_context(at)?;
            let value: f64 = value.parse().with_context(at)?;
            ensure!(family.series.insert(series.to_owned(), value).is_none(), "{}: twice", at());
            samples.push((read_series(series).with_context(at)?, value));
        }
        check(bare, &family, &samples).with_context(|| format!("family {bare}"))?;
        let is_counted = |name: &&String| *name != BOUND || family.kind != "histogram";
        let names = |((_, labels), _): &((String, Labels), f64)| -> BTreeSet<String> {
            labels.keys().filter(is_counted).cloned().collect()
        };
        let sets: BTreeSet<_> = samples.iter().map(names).collect();
        let others = |set: &BTreeSet<String>| -> BTreeSet<String> {
            set.iter().filter(|name| *name != OF_CLUSTER).cloned().collect()
        };
        let alike = sets.iter().map(others).collect::<BTreeSet<_>>().len() <= 1;
        ensure!(alike, "family {bare}: series with different labels: {sets:?}");
        family.labels = sets.into_iter().flatten().collect();
        ensure!(families.insert(bare.to_owned(), family).is_none(), "family {bare} twice");
    }
    Ok(families)
}

/// Runs promtool on metrics text, in a folder of the test's own. Returns `None` if promtool is not installed;
/// in CI that fails the test.
pub async fn promtool(text: &str, format: Format, folder: &Path) -> Option<anyhow::Result<()>> {
    let ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
    if let Err(error) = Command::new("promtool").arg("--version").output().await {
        assert!(!ci, "promtool cannot be started: {error}");
        eprintln!("skipped: promtool, of the Debian package prometheus, cannot be started: {error}");
        return None;
    }
    Some(match format {
        Format::Text => check_metrics(text, folder).await,
        Format::OpenMetrics => create_blocks(text, folder).await,
    })
}

async fn check_metrics(text: &str, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let file = folder.join("metrics.txt");
    std::fs::write(&file, text)?;
    let mut command = Command::new("promtool");
    let output = command.args(["check", "metrics"]).stdin(std::fs::File::open(file)?).output().await?;
    let warnings = String::from_utf8_lossy(&output.stderr);
    // A warning about style fails the test too.
    ensure!(output.status.success() && warnings.is_empty(), "promtool: {warnings}");
    Ok(())
}

/// Runs the one promtool command that reads OpenMetrics; it needs a timestamp for each value.
async fn create_blocks(text: &str, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let (file, blocks) = (folder.join("openmetrics.txt"), folder.join("blocks"));
    let timed =
        |line: &str| if line.starts_with('#') { format!("{line}\n") } else { format!("{line} 1.0\n") };
    std::fs::write(&file, text.lines().map(timed).collect::<String>())?;
    let mut command = Command::new("promtool");
    let output =
        command.args(["tsdb", "create-blocks-from", "openmetrics"]).args([file, blocks]).output().await?;
    ensure!(output.status.success(), "promtool: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

/// Checks the series of one metric family against its type.
fn check(name: &str, family: &Family, samples: &[((String, Labels), f64)]) -> anyhow::Result<()> {
    let mut histograms: BTreeMap<Labels, Histogram> = BTreeMap::new();
    for ((series, labels), value) in samples {
        let suffix = series.strip_prefix(name).with_context(|| format!("{series} is another's"))?;
        match (&*family.kind, suffix) {
            ("counter", "_total") => ensure!(*value >= 0.0, "{series} is {value}"),
            ("gauge", "") => {}
            ("histogram", _) => {
                let mut labels = labels.clone();
                let bound = labels.remove(BOUND);
                let histogram = histograms.entry(labels).or_default();
                match (suffix, bound) {
                    ("_bucket", Some(bound)) => histogram.buckets.push((bound, *value)),
                    ("_sum", None) => histogram.sum = Some(*value),
                    ("_count", None) => histogram.count = Some(*value),
                    _ => bail!("{series} of a histogram"),
                }
            }
            (kind, _) => bail!("{series} of a {kind}"),
        }
    }
    for (labels, Histogram { buckets, sum, count }) in histograms {
        let last = buckets.last().map(|(bound, count)| (bound.as_str(), *count));
        ensure!(last == count.map(|count| ("+Inf", count)), "{labels:?}: +Inf is not the count");
        ensure!(sum.is_some(), "{labels:?}: no sum");
        let mut before = (f64::NEG_INFINITY, 0.0);
        for (bound, count) in buckets {
            let bound = (bound.parse().with_context(|| format!("bound {bound}"))?, count);
            ensure!(bound.0 > before.0 && bound.1 >= before.1, "{labels:?}: {bound:?} after {before:?}");
            before = bound;
        }
    }
    Ok(())
}

/// Parses the text of a series, such as `name{label="value",...}`, into name and labels.
fn read_series(series: &str) -> anyhow::Result<(String, Labels)> {
    let (name, mut rest) = match series.split_once('{') {
        Some((name, rest)) => (name, rest.strip_suffix('}').context("no }")?),
        None => (series, ""),
    };
    ensure!(is_name(name), "{name} is no name");
    let mut labels = Labels::new();
    while !rest.is_empty() {
        let (label, after) = rest.split_once("=\"").context("no value")?;
        ensure!(is_name(label) && !label.contains(':'), "label {label:?}");
        let (value, after) = read_value(after)?;
        ensure!(labels.insert(label.to_owned(), value).is_none(), "label {label} twice");
        rest = match after.strip_prefix(',') {
            Some(more) if !more.is_empty() => more,
            None if after.is_empty() => after,
            _ => bail!("{after:?} after label {label}"),
        };
    }
    Ok((name.to_owned(), labels))
}

/// Parses a label value up to its closing quote. Returns the value and the text after the quote.
fn read_value(text: &str) -> anyhow::Result<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match chars.next() {
                Some((_, c @ ('\\' | '"'))) => value.push(c),
                Some((_, 'n')) => value.push('\n'),
                other => bail!("\\ before {other:?}"),
            },
            c => value.push(c),
        }
    }
    bail!("no closing quote")
}

fn is_name(name: &str) -> bool {
    let first = name.chars().next();
    first.is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, '_' | ':'))
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'))
}

#[cfg(test)]
mod tests;
