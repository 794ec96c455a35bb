//! The registry of metrics, as a value, and the text that scrapers read.
//!
//! A leaf. The manager owns one [`Registry`] and hands it down; each room registers the families it moves and keeps
//! them itself, so two managers in one process never meet. Names and labels are controller-runtime's where it has a
//! metric; ours start with `mainstay_`.

mod paced;
mod text;

use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::collector::Collector;
use prometheus_client::registry::{Metric, Registry as Families};

pub(crate) use paced::Paced;

/// The answer to `Accept: application/openmetrics-text`.
pub const OPENMETRICS_CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The answer to everything else.
pub const TEXT_CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// All metric families of one manager. Cheap to clone; all clones are one registry.
#[derive(Clone, Debug, Default)]
pub struct Registry {
    /// Locked for a registration and for a scrape, never while a metric moves.
    families: Arc<Mutex<Families>>,
}

/// A form in which the families can be written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics text 1.0.
    OpenMetrics,
}

// === impl Registry ===

impl Registry {
    /// Makes a registry without families.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a family. Counters are named without `_total`, which the encoder appends; `help` is a sentence
    /// without its full stop.
    pub fn register(&self, name: &str, help: &str, metric: impl Metric) {
        self.families.lock().register(name, help, metric);
    }

    /// Registers values that are computed at each scrape.
    pub fn register_collector(&self, collector: Box<dyn Collector>) {
        self.families.lock().register_collector(collector);
    }

    /// Writes all families out.
    ///
    /// # Errors
    /// Fails only if a collector does.
    pub fn encode(&self, format: Format) -> Result<String, std::fmt::Error> {
        let mut openmetrics = String::new();
        prometheus_client::encoding::text::encode(&mut openmetrics, &self.families.lock())?;
        Ok(match format {
            Format::OpenMetrics => openmetrics,
            Format::Text => text::from_openmetrics(&openmetrics),
        })
    }
}

// === impl Format ===

impl Format {
    /// Chooses by an `Accept` header: OpenMetrics only for those who name it.
    pub fn negotiate(accept: Option<&str>) -> Self {
        if accept.is_some_and(|accept| accept.contains("application/openmetrics-text")) {
            Self::OpenMetrics
        } else {
            Self::Text
        }
    }

    /// Returns the content type of this form.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => TEXT_CONTENT_TYPE,
            Self::OpenMetrics => OPENMETRICS_CONTENT_TYPE,
        }
    }
}
