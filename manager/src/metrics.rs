//! The registry of metrics and the text that scrapers read.
//!
//! A leaf. The manager owns one [`Registry`] and passes it on; each room registers and owns its own families,
//! so two managers in one process share none. Names and labels are controller-runtime's where it has the same
//! metric; all others start with `mainstay_`. `docs/metrics.md` lists them.

mod build;
mod negotiate;
mod number;
mod process;
mod runtimes;
mod scrape;
mod text;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{EncodeMetric as _, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Metric, Registry as Families};
use tracing::error;

pub(crate) use build::build_info;
pub(crate) use process::Process;
pub(crate) use runtimes::Runtimes;
pub(crate) use scrape::ScrapeCache;

/// Content type of [`Format::OpenMetrics`].
pub const OPENMETRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// Content type of [`Format::Text`].
pub const TEXT_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Suffixes that the text formats append to the names of metric series; no family name may end with one.
const RESERVED_SUFFIXES: [&str; 5] = ["_total", "_bucket", "_sum", "_count", "_created"];

/// All metric families of one manager. Clones share one registry.
///
/// Lock order: `pending` may be locked while `families` is locked, but not the other way round.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// The metric families that a scrape returns. Locked during a scrape, for as long as its collectors take.
    families: Arc<Mutex<Families>>,
    /// Registrations since the last scrape. Locked only briefly, so that a registration does not wait for a
    /// collector.
    pending: Arc<Mutex<Pending>>,
}

/// Registrations of metrics since the last scrape, and the names of all metric families.
#[derive(Default, derive_more::Debug)]
#[debug("Pending {{ names: {:?}, .. }}", self.names)]
struct Pending {
    /// Names of all registered metric families, including those of mainstay's own collectors.
    names: BTreeSet<String>,
    /// Names of metric families that were left out of a scrape as duplicates; each is logged once.
    logged: BTreeSet<String>,
    registrations: Vec<Registration>,
}

/// A function that adds a metric family or a collector to those of a scrape.
type Registration = Box<dyn FnOnce(&mut Families) + Send>;

/// A text format of the metrics in a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The metrics format Prometheus text 0.0.4.
    Text,
    /// The metrics format OpenMetrics text 1.0.
    OpenMetrics,
}

/// A metric family that would make the whole scrape unreadable: its name is invalid or taken, or its help is
/// invalid. A retry with the same name and help fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct FamilyError(String);

// === impl Registry ===

impl Registry {
    /// Makes a registry without metric families.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a metric family. Name counters without `_total`, which the encoder appends; `help` is a
    /// sentence without its full stop.
    ///
    /// A family that [`Registry::try_register`] refuses is logged and left out, as no process should fail for
    /// a metric.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        if let Err(error) = self.try_register(name, help, metric) {
            error!(%error, "a metric is left out of scrapes");
        }
    }

    /// Registers a metric family as [`Registry::register`] does, and returns it.
    ///
    /// ```
    /// use mainstay::metrics::{Format, Registry};
    /// use prometheus_client::metrics::counter::Counter;
    ///
    /// struct Orders {
    ///     shipped: Counter,
    /// }
    ///
    /// impl Orders {
    ///     fn new(registry: &Registry) -> Self {
    ///         Self { shipped: registry.family("shop_orders_shipped", "Orders that left", Counter::default()) }
    ///     }
    /// }
    ///
    /// # let registry = Registry::new();
    /// let orders = Orders::new(&registry);
    /// orders.shipped.inc();
    /// assert!(registry.encode(Format::Text)?.contains("shop_orders_shipped_total 1"));
    /// # Ok::<(), std::fmt::Error>(())
    /// ```
    pub fn family<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.register(name, help, metric.clone());
        metric
    }

    /// Registers a metric family as [`Registry::register`] does, but returns an error if it is refused. A
    /// family without series is not written.
    ///
    /// # Errors
    /// Fails if the name or the help is invalid, or the name is taken.
    ///
    /// ```
    /// use mainstay::metrics::Registry;
    /// use prometheus_client::metrics::counter::Counter;
    ///
    /// let registry = Registry::new();
    /// registry.try_register("cakes_sold", "Cakes sold so far", Counter::<u64>::default())?;
    /// let again = registry.try_register("cakes_sold_total", "Cakes sold so far", Counter::<u64>::default());
    /// assert_eq!(
    ///     again.unwrap_err().to_string(),
    ///     r#"metric name "cakes_sold_total" ends with _total, which the format appends; leave it off"#,
    /// );
    /// # Ok::<(), mainstay::metrics::FamilyError>(())
    /// ```
    pub fn try_register(&self, name: &str, help: &str, metric: impl Metric) -> Result<(), FamilyError> {
        check_name(name)?;
        // The two formats escape these characters differently.
        if help.chars().any(|c| c.is_control() || matches!(c, '"' | '\\')) {
            let expected = "expected one line without quotes and backslashes";
            return Err(FamilyError(format!("help of metric {name:?}: {help:?}; {expected}")));
        }
        let mut pending = self.pending.lock();
        if !pending.names.insert(name.to_owned()) {
            let taken = "is taken; a family is registered once per registry";
            return Err(FamilyError(format!("metric name {name:?} {taken}")));
        }
        let (name, help) = (name.to_owned(), help.to_owned());
        pending.registrations.push(Box::new(move |families| families.register(name, help, metric)));
        Ok(())
    }

    /// Marks the metric family names of a collector as taken.
    pub(crate) fn reserve<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        self.pending.lock().names.extend(names.into_iter().map(str::to_owned));
    }

    /// Registers a collector, which computes its values at each scrape. The families of a collector must
    /// satisfy the rules of [`Registry::try_register`] and are not checked, except that a family is left out
    /// if its name was already written in the same scrape.
    pub fn register_collector(&self, collector: Box<dyn Collector>) {
        let registrations = &mut self.pending.lock().registrations;
        registrations.push(Box::new(move |families| families.register_collector(collector)));
    }

    /// Returns all metric families as text in this format.
    ///
    /// # Errors
    /// Fails only if a collector does.
    pub fn encode(&self, format: Format) -> Result<String, fmt::Error> {
        let mut encoded = String::new();
        let mut families = self.families.lock();
        let registrations = std::mem::take(&mut self.pending.lock().registrations);
        for register in registrations {
            register(&mut families);
        }
        prometheus_client::encoding::text::encode(&mut encoded, &families)?;
        drop(families);
        let text::Rewritten { text, duplicates } = text::rewrite(&encoded, format);
        for name in duplicates {
            if self.pending.lock().logged.insert(name.to_owned()) {
                error!(metric = name, "a metric is left out of scrapes: its name is taken");
            }
        }
        Ok(text)
    }
}

// === impl Format ===

impl Format {
    /// Returns the metrics format that an `Accept` header prefers; OpenMetrics only if the header names it.
    pub fn negotiate(accept: Option<&str>) -> Self {
        accept.and_then(negotiate::preferred).unwrap_or(Self::Text)
    }

    /// Returns the `Content-Type` of this metrics format.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => TEXT_CONTENT_TYPE,
            Self::OpenMetrics => OPENMETRICS_CONTENT_TYPE,
        }
    }
}

/// Writes the value of a counter or a gauge that a collector has read.
fn encode_value(encoder: MetricEncoder<'_>, metric_type: MetricType, value: f64) -> fmt::Result {
    match metric_type {
        MetricType::Counter => ConstCounter::new(value).encode(encoder),
        _ => ConstGauge::new(value).encode(encoder),
    }
}

fn check_name(name: &str) -> Result<(), FamilyError> {
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'));
    if !is_name || name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        let expected = "expected letters, digits and underscores, the first no digit";
        return Err(FamilyError(format!("metric name {name:?}: {expected}")));
    }
    match RESERVED_SUFFIXES.into_iter().find(|suffix| name.ends_with(suffix)) {
        Some(suffix) => Err(FamilyError(format!(
            "metric name {name:?} ends with {suffix}, which the format appends; leave it off"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
