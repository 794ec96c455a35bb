//! What scrapers are told of the stores: one row per kind, summed over its scopes.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::clusters::Peers;
use crate::cache::store::status::{HandlerTrouble, KindStatus};

/// Kind and group, and whose number it is where there are several; of another cluster than the manager's own, that too.
type Labels = Vec<(&'static str, String)>;
/// What one number per store is called, said and read as.
type Row = (&'static str, &'static str, fn(&KindStatus) -> u64);

const GAUGES: [Row; 10] = [
    ("mainstay_cache_objects", "Objects held, by kind", |status| status.objects as u64),
    ("mainstay_cache_bytes", "Bytes of object bodies and fixed metadata held, by kind", |status| {
        status.bytes as u64
    }),
    (
        "mainstay_cache_too_large_objects",
        "Objects of which only metadata is held, being longer than cache.maxObjectBytes, by kind",
        |status| status.too_large as u64,
    ),
    ("mainstay_cache_packed_objects", "Objects whose bodies are packed, by kind", |status| {
        status.packing.objects as u64
    }),
    ("mainstay_cache_packed_bytes", "Bytes of packed bodies as they are kept, by kind", |status| {
        status.packing.bytes as u64
    }),
    ("mainstay_cache_unpacked_bytes", "Bytes of packed bodies as they are read, by kind", |status| {
        status.packing.plain_bytes as u64
    }),
    (
        "mainstay_cache_dictionary_bytes",
        "Bytes of the dictionaries bodies are packed with, by kind",
        |status| status.packing.dictionary_bytes as u64,
    ),
    ("mainstay_cache_unsynced", "Stores whose first list is not complete, by kind", |status| {
        u64::from(!status.synced)
    }),
    ("mainstay_cache_down", "Stores without a working list or watch, by kind", |status| {
        u64::from(status.down_since.is_some())
    }),
    ("mainstay_cache_absent", "Stores whose kind is not served or not readable, by kind", |status| {
        u64::from(status.absent)
    }),
];

const COUNTERS: [Row; 5] = [
    ("mainstay_cache_events", "Watch events taken, bookmarks included, by kind", |status| status.events),
    ("mainstay_cache_relists", "Lists completed after the first, by kind", |status| status.relists),
    ("mainstay_cache_watch_restarts", "Watches opened after the first, by kind", |status| status.restarts),
    (
        "mainstay_cache_decode_errors",
        "Objects and events that could not be taken or decoded, by kind",
        |status| status.decode_errors,
    ),
    (
        "mainstay_cache_pack_stalls",
        "Times that packing was held up for so long that objects were kept as they came, by kind",
        |status| status.pack_stalls,
    ),
];

const EVENT_AGE: &str = "mainstay_cache_last_event_age_seconds";
const HANDLER_PANICS: &str = "mainstay_cache_handler_panics";
const SLOW_HANDLERS: &str = "mainstay_cache_slow_handlers";
const INDEX_FAILURES: &str = "mainstay_cache_index_failures";
const UNCOVERED_WRITES: &str = "mainstay_cache_uncovered_writes";

/// Names the cluster a row is of. Not `cluster`: that is what many an installation calls the one the scraped process
/// runs in, and a label that is there already would not be written over.
const OF_CLUSTER: &str = "of_cluster";

/// Reads all stores of all clusters at each scrape.
pub(super) struct Families {
    pub(super) caches: Peers,
}

// === impl Families ===

impl Families {
    /// Returns the names of all families, also of those that have no series yet.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        let others = [EVENT_AGE, HANDLER_PANICS, SLOW_HANDLERS, INDEX_FAILURES, UNCOVERED_WRITES];
        GAUGES.iter().chain(&COUNTERS).map(|(name, ..)| *name).chain(others)
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let caches = self.caches.all();
        if caches.is_empty() {
            return Ok(());
        }
        let rows: Vec<KindStatus> = caches.iter().flat_map(|cache| cache.statuses()).collect();
        for (name, help, read) in GAUGES {
            family(&mut encoder, name, help, MetricType::Gauge, &sums(&rows, read), ConstGauge::new)?;
        }
        for (name, help, read) in COUNTERS {
            family(&mut encoder, name, help, MetricType::Counter, &sums(&rows, read), ConstCounter::new)?;
        }
        let help = "Seconds since the last watch event or bookmark of the quietest store, by kind";
        family(&mut encoder, EVENT_AGE, help, MetricType::Gauge, &oldest(&rows), ConstGauge::new)?;
        let help = "Deltas lost to a panic, by kind and handler";
        let panics = by_part(&rows, "handler", |status| of_handlers(status, |trouble| trouble.panics));
        family(&mut encoder, HANDLER_PANICS, help, MetricType::Counter, &panics, ConstCounter::new)?;
        let help = "Handler calls over 10 ms, by kind and handler";
        let slow = by_part(&rows, "handler", |status| of_handlers(status, |trouble| trouble.slow));
        family(&mut encoder, SLOW_HANDLERS, help, MetricType::Counter, &slow, ConstCounter::new)?;
        let help = "Versions left out of an index whose function failed, by kind and index";
        let failures = by_part(&rows, "index", |status| status.unindexed.clone());
        family(&mut encoder, INDEX_FAILURES, help, MetricType::Counter, &failures, ConstCounter::new)?;
        let help = "Own writes that reads show only once their watch event has come";
        let mut uncovered = encoder.encode_descriptor(UNCOVERED_WRITES, help, None, MetricType::Counter)?;
        let (own, others): (Vec<_>, Vec<_>) = caches.iter().partition(|cache| cache.cluster.is_none());
        for cache in others {
            let labels: Labels = of_cluster(cache.cluster.as_ref()).collect();
            ConstCounter::new(cache.uncovered()).encode(uncovered.encode_family(&labels)?)?;
        }
        // Last: a row without labels takes the encoder.
        own.first().map_or(Ok(()), |cache| ConstCounter::new(cache.uncovered()).encode(uncovered))
    }
}

fn family<N: Copy, M: EncodeMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    metric_type: MetricType,
    rows: &BTreeMap<Labels, N>,
    metric: impl Fn(N) -> M,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, metric_type)?;
    for (labels, number) in rows {
        metric(*number).encode(family.encode_family(labels)?)?;
    }
    Ok(())
}

fn labels(status: &KindStatus) -> Labels {
    let kind = [("kind", status.kind.kind().to_owned()), ("group", status.kind.group().to_owned())];
    kind.into_iter().chain(of_cluster(status.cluster.as_ref())).collect()
}

fn of_cluster(cluster: Option<&Arc<str>>) -> impl Iterator<Item = (&'static str, String)> {
    cluster.into_iter().map(|cluster| (OF_CLUSTER, cluster.to_string()))
}

/// Several scopes of one kind are one row.
fn sums(rows: &[KindStatus], read: fn(&KindStatus) -> u64) -> BTreeMap<Labels, u64> {
    let mut sums = BTreeMap::new();
    for status in rows {
        *sums.entry(labels(status)).or_default() += read(status);
    }
    sums
}

fn oldest(rows: &[KindStatus]) -> BTreeMap<Labels, f64> {
    let mut ages = BTreeMap::new();
    for status in rows {
        let Some(age) = status.last_event_age else { continue };
        let oldest = ages.entry(labels(status)).or_insert(0.0_f64);
        *oldest = oldest.max(age.as_secs_f64());
    }
    ages
}

fn of_handlers(status: &KindStatus, read: fn(&HandlerTrouble) -> u64) -> BTreeMap<String, u64> {
    status.handlers.iter().map(|(handler, trouble)| (handler.clone(), read(trouble))).collect()
}

fn by_part(
    rows: &[KindStatus],
    part: &'static str,
    read: impl Fn(&KindStatus) -> BTreeMap<String, u64>,
) -> BTreeMap<Labels, u64> {
    let mut sums = BTreeMap::new();
    for status in rows {
        for (name, number) in read(status) {
            let labels: Labels = labels(status).into_iter().chain([(part, name)]).collect();
            *sums.entry(labels).or_default() += number;
        }
    }
    sums
}

impl fmt::Debug for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Families")
    }
}
