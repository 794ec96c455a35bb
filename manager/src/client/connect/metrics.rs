//! What is told of requests to API servers: client-go's families, names, labels and buckets.
//!
//! client-go has the last four off unless asked for; here they are on, since a request costs thousands of times what
//! it costs to count it. As there, a watch is counted and neither timed nor weighed: it has no end to wait for.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use crate::metrics::Registry;

/// Upper bounds in seconds.
const SECONDS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// Upper bounds in bytes.
const BYTES: [f64; 11] = [
    64.0,
    256.0,
    512.0,
    1024.0,
    4096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
    4_194_304.0,
    16_777_216.0,
];

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The families of one manager, for all its API servers.
#[derive(Clone, Debug)]
pub(super) struct RequestMetrics {
    requests: Family<Labels, Counter>,
    seconds: Histograms<VerbLabels>,
    sent: Histograms<VerbLabels>,
    received: Histograms<VerbLabels>,
    lookups: Histograms<HostLabels>,
}

/// The bytes of one request that is not a watch.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bytes {
    Sent(u64),
    Received(u64),
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Labels {
    code: String,
    method: String,
    host: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VerbLabels {
    verb: String,
    host: Arc<str>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct HostLabels {
    host: String,
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

    pub(super) fn count(&self, code: &str, method: &str, host: &Arc<str>) {
        let labels = Labels { code: code.to_owned(), method: method.to_owned(), host: Arc::clone(host) };
        self.requests.get_or_create(&labels).inc();
    }

    pub(super) fn took(&self, verb: &str, host: &Arc<str>, took: Duration) {
        self.seconds.get_or_create(&VerbLabels::of(verb, host)).observe(took.as_secs_f64());
    }

    pub(super) fn weighed(&self, verb: &str, host: &Arc<str>, bytes: Bytes) {
        let (family, bytes) = match bytes {
            Bytes::Sent(bytes) => (&self.sent, bytes),
            Bytes::Received(bytes) => (&self.received, bytes),
        };
        #[expect(clippy::cast_precision_loss, reason = "no body is that long")]
        let bytes = bytes as f64;
        family.get_or_create(&VerbLabels::of(verb, host)).observe(bytes);
    }

    pub(super) fn looked_up(&self, host: &str, took: Duration) {
        self.lookups.get_or_create(&HostLabels { host: host.to_owned() }).observe(took.as_secs_f64());
    }
}

// === impl VerbLabels ===

impl VerbLabels {
    fn of(verb: &str, host: &Arc<str>) -> Self {
        Self { verb: verb.to_owned(), host: Arc::clone(host) }
    }
}
