//! The registry of metrics, as a value, and the text that scrapers read.
//!
//! A leaf. The manager owns one [`Registry`] and hands it down; each room registers the families it moves and keeps
//! them itself, so two managers in one process never meet. Names and labels are controller-runtime's where it has a
//! metric; ours start with `mainstay_`. `docs/metrics.md` lists them all.

mod answers;
mod build;
mod negotiate;
mod number;
mod process;
mod runtimes;
mod text;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::registry::{Metric, Registry as Families};
use tracing::error;

pub(crate) use answers::Answers;
pub(crate) use build::build_info;
pub(crate) use process::Process;
pub(crate) use runtimes::Runtimes;

/// The answer to `Accept: application/openmetrics-text`.
pub const OPENMETRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The answer to everything else.
pub const TEXT_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Ends of names that the two forms give to the series of a family, and which therefore no family may have.
const RESERVED_SUFFIXES: [&str; 5] = ["_total", "_bucket", "_sum", "_count", "_created"];

/// All metric families of one manager. Cheap to clone; all clones are one registry.
///
/// Two locks, and `newcomers` may be taken under `families` but not the other way round.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// Locked for a scrape, for as long as any collector takes.
    families: Arc<Mutex<Families>>,
    /// Locked for a moment: who registers something does not wait for a collector.
    newcomers: Arc<Mutex<Newcomers>>,
}

/// What has been registered since the last scrape.
#[derive(Default)]
struct Newcomers {
    /// Names of all families that are known before a scrape, those of our own collectors included.
    names: BTreeSet<String>,
    /// Families that were left out of an answer, each told of once.
    told: BTreeSet<String>,
    waiting: Vec<Newcomer>,
}

/// Adds itself to the families.
type Newcomer = Box<dyn FnOnce(&mut Families) + Send>;

/// A form in which the families can be written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics text 1.0.
    OpenMetrics,
}

/// A family that would make the whole answer unreadable. Another try with the same words fails again.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FamilyError {
    /// Scrapers could not read the name.
    #[error("metric name {name:?}: expected letters, digits and underscores, the first no digit")]
    Name {
        /// The name.
        name: String,
    },
    /// The name ends as the series of another family may.
    #[error("metric name {name:?} ends with {suffix}, which is added where it is due; leave it off")]
    Suffix {
        /// The name.
        name: String,
        /// Its end.
        suffix: &'static str,
    },
    /// There is a family of this name.
    #[error("metric name {name:?} is taken; a family is registered once per registry")]
    Taken {
        /// The name.
        name: String,
    },
    /// The two forms would have to write the help differently.
    #[error("help of metric {name:?}: {help:?}; expected one line without quotes and backslashes")]
    Help {
        /// The name.
        name: String,
        /// The help.
        help: String,
    },
}

// === impl Registry ===

impl Registry {
    /// Makes a registry without families.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a family. Counters are named without `_total`, which the encoder appends; `help` is a sentence
    /// without its full stop.
    ///
    /// What [`Registry::try_register`] refuses is left out, and the log says so: no process should fail for a metric.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        if let Err(error) = self.try_register(name, help, metric) {
            error!(%error, "a metric is left out");
        }
    }

    /// Registers a family as [`Registry::register`] does, and returns it.
    pub fn family<M: Metric + Clone>(&self, name: &str, help: &str, metric: M) -> M {
        self.register(name, help, metric.clone());
        metric
    }

    /// Registers a family, as [`Registry::register`] does.
    ///
    /// # Errors
    /// If scrapers could not read the name or the help, or the name is taken. A family without series is not written.
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
    ///     r#"metric name "cakes_sold_total" ends with _total, which is added where it is due; leave it off"#,
    /// );
    /// # Ok::<(), mainstay::metrics::FamilyError>(())
    /// ```
    pub fn try_register(&self, name: &str, help: &str, metric: impl Metric) -> Result<(), FamilyError> {
        check_name(name)?;
        if help.chars().any(|c| c.is_control() || matches!(c, '"' | '\\')) {
            return Err(FamilyError::Help { name: name.to_owned(), help: help.to_owned() });
        }
        let mut newcomers = self.newcomers.lock();
        if !newcomers.names.insert(name.to_owned()) {
            return Err(FamilyError::Taken { name: name.to_owned() });
        }
        let (name, help) = (name.to_owned(), help.to_owned());
        newcomers.waiting.push(Box::new(move |families| families.register(name, help, metric)));
        Ok(())
    }

    /// Takes the names that a collector of ours writes.
    pub(crate) fn reserve<'a>(&self, names: impl IntoIterator<Item = &'a str>) {
        self.newcomers.lock().names.extend(names.into_iter().map(str::to_owned));
    }

    /// Registers values that are computed at each scrape. A collector keeps by itself to the rules of
    /// [`Registry::try_register`]; only a family whose name was written before it is left out.
    pub fn register_collector(&self, collector: Box<dyn Collector>) {
        let waiting = &mut self.newcomers.lock().waiting;
        waiting.push(Box::new(move |families| families.register_collector(collector)));
    }

    /// Writes all families out.
    ///
    /// # Errors
    /// Fails only if a collector does.
    pub fn encode(&self, format: Format) -> Result<String, fmt::Error> {
        let mut encoded = String::new();
        let mut families = self.families.lock();
        let waiting = std::mem::take(&mut self.newcomers.lock().waiting);
        for newcomer in waiting {
            newcomer(&mut families);
        }
        prometheus_client::encoding::text::encode(&mut encoded, &families)?;
        drop(families);
        let text::Written { text, twice } = text::write(&encoded, format);
        for name in twice {
            if self.newcomers.lock().told.insert(name.to_owned()) {
                error!(metric = name, "a family is left out, since there is one of its name");
            }
        }
        Ok(text)
    }
}

impl fmt::Debug for Newcomers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Newcomers").field("names", &self.names).finish_non_exhaustive()
    }
}

// === impl Format ===

impl Format {
    /// Chooses by an `Accept` header what the reader likes best; OpenMetrics only for those who name it.
    pub fn negotiate(accept: Option<&str>) -> Self {
        accept.and_then(negotiate::preferred).unwrap_or(Self::Text)
    }

    /// Returns the content type of this form.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => TEXT_CONTENT_TYPE,
            Self::OpenMetrics => OPENMETRICS_CONTENT_TYPE,
        }
    }
}

fn check_name(name: &str) -> Result<(), FamilyError> {
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':'));
    if !is_name || name.is_empty() || name.starts_with(|first: char| first.is_ascii_digit()) {
        return Err(FamilyError::Name { name: name.to_owned() });
    }
    match RESERVED_SUFFIXES.into_iter().find(|suffix| name.ends_with(suffix)) {
        Some(suffix) => Err(FamilyError::Suffix { name: name.to_owned(), suffix }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
