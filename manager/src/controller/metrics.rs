//! Metrics of reconciles, with the families, names, labels and buckets of controller-runtime.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Metric;
use tokio::time::Instant;

use crate::metrics::Registry;
use crate::watch::SourcePanics;

/// Upper bounds of the buckets for reconcile durations in seconds: those of controller-runtime, so that its
/// dashboards work.
const TIME_BUCKETS: [f64; 40] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0,
];

/// The metric families about reconciles, for all controllers of one manager. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ControllerMetrics {
    total: Family<ResultLabels, Counter>,
    errors: Family<Labels, Counter>,
    terminal_errors: Family<Labels, Counter>,
    panics: Family<Labels, Counter>,
    timeouts: Family<Labels, Counter>,
    time: Family<Labels, Histogram>,
    max_concurrent: Family<Labels, Gauge>,
    active: Family<Labels, Gauge>,
    /// Number of rounds of interval sources that were lost to a panic; the sources count them.
    pub(super) source_panics: SourcePanics,
}

/// The metric series of one controller, looked up once: a look-up takes a lock and a hash, and a reconcile
/// changes five series.
#[derive(Clone, Debug)]
pub(crate) struct OneController {
    families: ControllerMetrics,
    controller: String,
    /// Number of reconciles by result, in the order of [`Counted::ALL`].
    total: [Counter; Counted::ALL.len()],
    errors: Counter,
    pub(super) terminal_errors: Counter,
    pub(super) panics: Counter,
    pub(super) timeouts: Counter,
    time: Histogram,
    max_concurrent: Gauge,
    active: Gauge,
}

/// A guard that counts a reconcile as active, and records its duration when dropped. So the reconcile ends in
/// the metrics even if its future panics in the drop.
#[must_use]
pub(crate) struct Active<'a> {
    metrics: &'a OneController,
    since: Instant,
}

/// The result of a reconcile: the value of the metric label `result`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "the label's values are those of controller-runtime")]
pub(crate) enum Counted {
    success,
    error,
    requeue,
    requeue_after,
}

type Labels = [(&'static str, String); 1];

/// The metric labels `controller` and `result`, with their values.
type ResultLabels = [(&'static str, String); 2];

// === impl Counted ===

impl Counted {
    const ALL: [Self; 4] = [Self::success, Self::error, Self::requeue, Self::requeue_after];

    fn labels(self, controller: &str) -> ResultLabels {
        [("controller", controller.to_owned()), ("result", format!("{self:?}"))]
    }
}

// === impl ControllerMetrics ===

impl ControllerMetrics {
    /// Registers the metric families about reconciles.
    pub fn register(registry: &Registry) -> Self {
        fn family<M: Metric + Default + Clone>(registry: &Registry, name: &str, help: &str) -> M {
            registry.family(&format!("controller_runtime_{name}"), help, M::default())
        }
        let time = Family::new_with_constructor((|| Histogram::new(TIME_BUCKETS)) as fn() -> Histogram);
        let panics = "Rounds of interval sources lost to a panic, by controller";
        Self {
            total: family(registry, "reconcile", "Reconciles by result"),
            errors: family(registry, "reconcile_errors", "Reconciles that ended with an error"),
            terminal_errors: family(
                registry,
                "terminal_reconcile_errors",
                "Reconciles whose error is not retried",
            ),
            panics: family(registry, "reconcile_panics", "Reconciles that panicked"),
            timeouts: family(registry, "reconcile_timeouts", "Reconciles dropped at their deadline"),
            time: registry.family(
                "controller_runtime_reconcile_time_seconds",
                "Duration of reconciles",
                time,
            ),
            max_concurrent: family(registry, "max_concurrent_reconciles", "Workers of the controller"),
            active: family(registry, "active_workers", "Workers that are reconciling now"),
            source_panics: registry.family("mainstay_source_panics", panics, Family::default()),
        }
    }

    /// Creates the metric series of one controller, so that all are exported from the start.
    pub(crate) fn of(&self, controller: &str) -> OneController {
        let labels = [("controller", controller.to_owned())];
        drop(self.source_panics.get_or_create(&labels));
        OneController {
            families: self.clone(),
            controller: controller.to_owned(),
            total: Counted::ALL.map(|result| self.total.get_or_create_owned(&result.labels(controller))),
            errors: self.errors.get_or_create_owned(&labels),
            terminal_errors: self.terminal_errors.get_or_create_owned(&labels),
            panics: self.panics.get_or_create_owned(&labels),
            timeouts: self.timeouts.get_or_create_owned(&labels),
            time: self.time.get_or_create_owned(&labels),
            max_concurrent: self.max_concurrent.get_or_create_owned(&labels),
            active: self.active.get_or_create_owned(&labels),
        }
    }
}

// === impl OneController ===

impl OneController {
    /// Removes every metric series of the controller. Later counts are not exported.
    pub(crate) fn remove(&self) {
        let Self { families, controller, .. } = self;
        let labels = &[("controller", controller.clone())];
        for result in Counted::ALL {
            families.total.remove(&result.labels(controller));
        }
        let counters = [&families.errors, &families.terminal_errors, &families.panics, &families.timeouts];
        for family in counters.into_iter().chain([&families.source_panics]) {
            family.remove(labels);
        }
        for family in [&families.max_concurrent, &families.active] {
            family.remove(labels);
        }
        families.time.remove(labels);
    }

    pub(crate) fn workers(&self, workers: usize) {
        self.max_concurrent.set(i64::try_from(workers).unwrap_or(i64::MAX));
    }

    /// Counts a reconcile as active in the metrics until the returned guard is dropped.
    pub(crate) fn started(&self) -> Active<'_> {
        self.active.inc();
        Active { metrics: self, since: Instant::now() }
    }

    pub(crate) fn count(&self, result: Counted) {
        self.total[result as usize].inc();
        if result == Counted::error {
            self.errors.inc();
        }
    }
}

// === impl Active ===

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.metrics.active.dec();
        self.metrics.time.observe(self.since.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests;
