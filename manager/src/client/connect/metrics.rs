//! Metrics of requests to API servers, with client-go's names, labels and buckets.
//!
//! client-go enables the last four only on demand; here they are always on, because a request costs thousands
//! of times more than its measurement. As there, watches are counted, but their duration and size are not
//! recorded, because a watch has no end to wait for.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use crate::metrics::Registry;

/// Upper bounds of the buckets of duration histograms, in seconds.
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
const KIB: f64 = 1024.0;
const MIB: f64 = 1024.0 * KIB;
/// Upper bounds of the buckets of size histograms, in bytes.
const BYTES: [f64; 11] =
    [64.0, 256.0, 512.0, KIB, 4.0 * KIB, 16.0 * KIB, 64.0 * KIB, 256.0 * KIB, MIB, 4.0 * MIB, 16.0 * MIB];

pub(super) type Labels<const N: usize> = [(&'static str, String); N];
pub(super) type Histograms<const N: usize> = Family<Labels<N>, Histogram, fn() -> Histogram>;

/// The metrics of one manager's HTTP requests to all its API servers.
#[derive(Clone)]
pub(super) struct RequestMetrics {
    /// Number of requests, by `code`, `method` and `host`.
    pub(super) requests: Family<Labels<3>, Counter>,
    /// Durations of requests other than watches in seconds, by `verb` and `host`.
    pub(super) seconds: Histograms<2>,
    /// Sizes of request bodies in bytes, by `verb` and `host`.
    pub(super) sent: Histograms<2>,
    /// Sizes of response bodies in bytes, by `verb` and `host`.
    pub(super) received: Histograms<2>,
    /// Durations of DNS look-ups in seconds, by `host`.
    pub(super) lookups: Histograms<1>,
}

// === impl RequestMetrics ===

impl RequestMetrics {
    pub(super) fn register(registry: &Registry) -> Self {
        let seconds = || Histogram::new(SECONDS);
        let bytes = || Histogram::new(BYTES);
        Self {
            requests: registry.family(
                "rest_client_requests",
                "Number of HTTP requests, partitioned by status code, method, and host",
                Family::default(),
            ),
            seconds: registry.family(
                "rest_client_request_duration_seconds",
                "Request latency in seconds, to the end of the answer. Broken down by verb, and host",
                Family::new_with_constructor(seconds),
            ),
            sent: registry.family(
                "rest_client_request_size_bytes",
                "Request size in bytes. Broken down by verb and host",
                Family::new_with_constructor(bytes),
            ),
            received: registry.family(
                "rest_client_response_size_bytes",
                "Response size in bytes. Broken down by verb and host",
                Family::new_with_constructor(bytes),
            ),
            lookups: registry.family(
                "rest_client_dns_resolution_duration_seconds",
                "DNS resolver latency in seconds. Broken down by host",
                Family::new_with_constructor(seconds),
            ),
        }
    }
}
