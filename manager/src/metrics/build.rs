//! The metric `mainstay_build_info`, with program and versions as labels for joins.

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use super::Registry;

/// Registers the metric `mainstay_build_info`, which is always 1 and has program and versions as labels. It
/// is a gauge, because the two formats name an info family differently.
pub(crate) fn build_info(registry: &Registry, program: &'static str, version: &'static str) {
    let family = Family::<[(&'static str, &'static str); 3], Gauge>::default();
    family
        .get_or_create(&[("program", program), ("version", version), ("mainstay", env!("CARGO_PKG_VERSION"))])
        .set(1);
    let help = "Always 1: the program, its version, and that of the runtime it is built on";
    registry.register("mainstay_build_info", help, family);
}
