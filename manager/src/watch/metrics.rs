//! Metrics of sources. The cache counts panics of handlers, which run in its task.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use crate::metrics::Registry;

/// The families about sources, for all controllers of one manager. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct SourceMetrics {
    panics: Family<[(&'static str, String); 1], Counter>,
}

// === impl SourceMetrics ===

impl SourceMetrics {
    /// Registers the families.
    pub(crate) fn register(registry: &Registry) -> Self {
        let help = "Rounds of interval sources lost to a panic, by controller";
        Self { panics: registry.family("mainstay_source_panics", help, Family::default()) }
    }

    /// Creates the series of one controller, so that it is exported from the start.
    pub(crate) fn begin(&self, controller: &str) {
        drop(self.panics.get_or_create(&labels(controller)));
    }

    /// Removes the series of one controller.
    pub(crate) fn remove(&self, controller: &str) {
        self.panics.remove(&labels(controller));
    }

    pub(super) fn count_panic(&self, controller: &str) {
        self.panics.get_or_create(&labels(controller)).inc();
    }
}

fn labels(controller: &str) -> [(&'static str, String); 1] {
    [("controller", controller.to_owned())]
}
