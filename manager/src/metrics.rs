//! The registry of metrics, as a value, and the text that scrapers read.
//!
//! A leaf. The manager owns one [`Registry`] and hands it down; each room registers the families it moves and keeps
//! them itself, so two managers in one process never meet. Names and labels are controller-runtime's where it has a
//! metric; ours start with `mainstay_`. `docs/metrics.md` lists them all.

mod build;
mod negotiate;
mod number;
mod paced;
mod process;
mod runtimes;
mod text;

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::registry::{Metric, Registry as Families};
use tracing::error;

pub(crate) use build::build_info;
pub(crate) use paced::Paced;
pub(crate) use process::Process;
pub(crate) use runtimes::Runtimes;

/// The answer to `Accept: application/openmetrics-text`.
pub const OPENMETRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The answer to everything else.
pub const TEXT_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Ends of names that the two forms give to the series of a family, and which therefore no family may have.
const RESERVED_SUFFIXES: [&str; 5] = ["_total", "_bucket", "_sum", "_count", "_created"];

/// All metric families of one manager. Cheap to clone; all clones are one registry.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// Locked for a registration and for a scrape, never while a metric moves.
    inner: Arc<Mutex<Inner>>,
}

#[derive(Debug, Default)]
struct Inner {
    families: Families,
    /// Names of the families that are no collector's.
    names: BTreeSet<String>,
}

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
        let mut inner = self.inner.lock();
        if !inner.names.insert(name.to_owned()) {
            return Err(FamilyError::Taken { name: name.to_owned() });
        }
        inner.families.register(name, help, metric);
        Ok(())
    }

    /// Registers values that are computed at each scrape. What a collector writes is not looked at: it keeps by
    /// itself to the rules of [`Registry::try_register`].
    pub fn register_collector(&self, collector: Box<dyn Collector>) {
        self.inner.lock().families.register_collector(collector);
    }

    /// Writes all families out.
    ///
    /// # Errors
    /// Fails only if a collector does.
    pub fn encode(&self, format: Format) -> Result<String, std::fmt::Error> {
        let mut encoded = String::new();
        prometheus_client::encoding::text::encode(&mut encoded, &self.inner.lock().families)?;
        Ok(text::write(&encoded, format))
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
mod tests {
    use prometheus_client::metrics::counter::Counter;

    use super::*;

    #[test]
    fn what_would_spoil_the_whole_answer_is_refused_and_leaves_nothing_behind() {
        let registry = Registry::new();
        let register = |name: &str, help: &str| {
            registry.try_register(name, help, Counter::<u64>::default()).map_err(|error| error.to_string())
        };
        register("cakes", "Cakes sold").unwrap();
        let written = registry.encode(Format::Text).unwrap();
        let refused = [
            ("", "Nothing", "letters"),
            ("2cakes", "Digit first", "the first no digit"),
            ("cakes-sold", "Dash", "letters, digits and underscores"),
            ("küchen", "Not ASCII", "letters"),
            ("cakes_total", "Twice a suffix", "leave it off"),
            ("cakes_count", "Of a histogram", "ends with _count"),
            ("cakes", "Once more", "taken"),
            ("tarts", "Two\nlines", "one line"),
            ("tarts", "A \"quote\"", "without quotes"),
            ("tarts", "A back\\slash", "backslashes"),
        ];
        for (name, help, expected) in refused {
            let told = register(name, help).unwrap_err();
            assert!(told.contains(expected), "{name:?}, {help:?}: {told}");
            registry.register(name, help, Counter::<u64>::default());
        }
        assert_eq!(registry.encode(Format::Text).unwrap(), written);
        register("tarts", "Refused words took no name").unwrap();
    }
}
