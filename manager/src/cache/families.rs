//! The metrics of the cache: one series per kind, summed over the scopes of its stores.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

use super::clusters::Peers;
use crate::cache::store::{HandlerTrouble, KindStatus};

/// The labels of one series: `kind` and `group` of the store, then [`OF_CLUSTER`] if the store belongs to
/// another cluster than the manager's own, then `handler` or `index` in families with a series per handler or
/// index.
type Labels = Vec<(&'static str, String)>;
/// Name, help text and value of a gauge with one number per store.
type Gauge = (&'static str, &'static str, fn(&KindStatus) -> usize);
/// Name, help text and value of a counter with one number per store.
type Counter = (&'static str, &'static str, fn(&KindStatus) -> u64);
/// Name, help text, label and values of a counter with one number per handler or index of a store.
type NamedCounter = (&'static str, &'static str, &'static str, fn(&KindStatus) -> BTreeMap<String, u64>);

const GAUGES: [Gauge; 10] = [
    ("mainstay_cache_objects", "Objects held", |status| status.objects),
    ("mainstay_cache_bytes", "Bytes of object bodies and fixed metadata held", |status| status.bytes),
    (
        "mainstay_cache_too_large_objects",
        "Objects over cache.maxObjectBytes, of which only metadata is held",
        |status| status.too_large,
    ),
    ("mainstay_cache_packed_objects", "Objects whose bodies are packed", |status| status.packing.objects),
    ("mainstay_cache_packed_bytes", "Bytes of packed bodies", |status| status.packing.bytes),
    ("mainstay_cache_unpacked_bytes", "Bytes that packed bodies have when unpacked", |status| {
        status.packing.plain_bytes
    }),
    ("mainstay_cache_dictionary_bytes", "Bytes of the dictionaries for packing bodies", |status| {
        status.packing.dictionary_bytes
    }),
    ("mainstay_cache_unsynced", "Stores whose first list is not complete", |status| (!status.synced).into()),
    ("mainstay_cache_down", "Stores without a working list or watch", |status| {
        status.down_since.is_some().into()
    }),
    ("mainstay_cache_absent", "Stores whose kind is not served or not readable", |status| {
        status.absent.into()
    }),
];

const COUNTERS: [Counter; 5] = [
    ("mainstay_cache_events", "Watch events received, bookmarks included", |status| status.events),
    ("mainstay_cache_relists", "Lists completed after the first", |status| status.relists),
    ("mainstay_cache_watch_restarts", "Watches opened after the first", |status| status.restarts),
    ("mainstay_cache_decode_errors", "Objects and events that could not be read or decoded", |status| {
        status.decode_errors
    }),
    ("mainstay_cache_pack_stalls", "Times that packing fell behind and objects stayed unpacked", |status| {
        status.pack_stalls
    }),
];

const NAMED_COUNTERS: [NamedCounter; 3] = [
    ("mainstay_cache_handler_panics", "Deltas lost to a handler panic", "handler", |status| {
        of_handlers(status, |trouble| trouble.panics)
    }),
    ("mainstay_cache_slow_handlers", "Handler calls over 10 ms", "handler", |status| {
        of_handlers(status, |trouble| trouble.slow)
    }),
    (
        "mainstay_cache_index_failures",
        "Versions missing in an index because its function failed",
        "index",
        |status| status.unindexed.clone(),
    ),
];

const EVENT_AGE: &str = "mainstay_cache_last_event_age_seconds";
const UNCOVERED_WRITES: &str = "mainstay_cache_uncovered_writes";

/// Name of the metric label that holds the name of the cluster. Not `cluster`, which many installations set
/// to the cluster in which the scraped process runs; a scrape does not replace a label that the series has
/// already.
const OF_CLUSTER: &str = "of_cluster";

/// Collects the metrics of all stores of all clusters at each scrape.
#[derive(Debug)]
pub(super) struct Families {
    pub(super) caches: Peers,
}

// === impl Families ===

impl Families {
    /// Returns the names of all metric families of the cache, including those without a series yet.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        let (gauges, counters) = (GAUGES.map(|(name, ..)| name), COUNTERS.map(|(name, ..)| name));
        let named = NAMED_COUNTERS.map(|(name, ..)| name);
        gauges.into_iter().chain(counters).chain(named).chain([EVENT_AGE, UNCOVERED_WRITES])
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let caches = self.caches.all();
        if caches.is_empty() {
            return Ok(());
        }
        let statuses: Vec<KindStatus> = caches.iter().flat_map(|cache| cache.statuses()).collect();
        for (name, help, read) in GAUGES {
            let series = sums(&statuses, |status| [(None, read(status) as u64)]);
            family(&mut encoder, name, &format!("{help}, by kind"), &series, ConstGauge::new)?;
        }
        for (name, help, read) in COUNTERS {
            let series = sums(&statuses, |status| [(None, read(status))]);
            family(&mut encoder, name, &format!("{help}, by kind"), &series, ConstCounter::new)?;
        }
        for (name, help, label, read) in NAMED_COUNTERS {
            let labelled = |(name, number)| (Some((label, name)), number);
            let series = sums(&statuses, |status| read(status).into_iter().map(labelled));
            family(&mut encoder, name, &format!("{help}, by kind and {label}"), &series, ConstCounter::new)?;
        }
        let help = "Seconds since the last watch event or bookmark of the quietest store, by kind";
        family(&mut encoder, EVENT_AGE, help, &oldest(&statuses), ConstGauge::new)?;
        let help = "Own writes that reads show only after their watch event";
        let mut uncovered =
            encoder.encode_descriptor(UNCOVERED_WRITES, help, None, ConstCounter::<u64>::TYPE)?;
        let (own, others): (Vec<_>, Vec<_>) = caches.iter().partition(|cache| cache.cluster.is_none());
        for cache in others {
            let labels: Labels = of_cluster(cache.cluster.as_ref()).collect();
            ConstCounter::new(cache.uncovered()).encode(uncovered.encode_family(&labels)?)?;
        }
        // The own cluster last, since a series without labels consumes the encoder.
        own.first().map_or(Ok(()), |cache| ConstCounter::new(cache.uncovered()).encode(uncovered))
    }
}

fn family<N: Copy, M: EncodeMetric + TypedMetric>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: &BTreeMap<Labels, N>,
    metric: fn(N) -> M,
) -> Result<(), fmt::Error> {
    let mut family = encoder.encode_descriptor(name, help, None, M::TYPE)?;
    for (labels, number) in series {
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

/// Adds up a number over the stores of each kind, which differ by scope, into one series per kind. A number
/// may have one more label.
fn sums<I: IntoIterator<Item = (Option<(&'static str, String)>, u64)>>(
    statuses: &[KindStatus],
    read: impl Fn(&KindStatus) -> I,
) -> BTreeMap<Labels, u64> {
    let mut sums = BTreeMap::new();
    for status in statuses {
        for (label, number) in read(status) {
            let labels: Labels = labels(status).into_iter().chain(label).collect();
            *sums.entry(labels).or_default() += number;
        }
    }
    sums
}

fn oldest(statuses: &[KindStatus]) -> BTreeMap<Labels, f64> {
    let mut ages = BTreeMap::new();
    for status in statuses {
        let Some(age) = status.last_event_age else { continue };
        let oldest = ages.entry(labels(status)).or_insert(0.0_f64);
        *oldest = oldest.max(age.as_secs_f64());
    }
    ages
}

fn of_handlers(status: &KindStatus, read: fn(&HandlerTrouble) -> u64) -> BTreeMap<String, u64> {
    status.handlers.iter().map(|(handler, trouble)| (handler.clone(), read(trouble))).collect()
}
