use std::sync::mpsc;
use std::time::Duration;

use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::gauge::ConstGauge;

use super::*;

#[test]
fn a_family_that_would_make_the_scrape_unreadable_is_refused_without_a_trace() {
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
        let error = register(name, help).unwrap_err();
        assert!(error.contains(expected), "{name:?}, {help:?}: {error}");
        registry.register(name, help, Counter::<u64>::default());
    }
    assert_eq!(registry.encode(Format::Text).unwrap(), written);
    register("tarts", "A refused help takes no name").unwrap();
}

/// Writes one family.
#[derive(Debug)]
struct One(&'static str, u64);

impl Collector for One {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        ConstCounter::new(self.1).encode(encoder.encode_descriptor(
            self.0,
            "Cakes",
            None,
            MetricType::Counter,
        )?)
    }
}

#[test]
fn a_family_is_written_once_even_if_several_collectors_write_it() {
    let registry = Registry::new();
    registry.register_collector(Box::new(One("cakes", 1)));
    registry.register_collector(Box::new(One("tarts", 2)));
    registry.register_collector(Box::new(One("cakes", 3)));
    let expected = "# HELP cakes_total Cakes.\n# TYPE cakes_total counter\ncakes_total 1\n\
                    # HELP tarts_total Cakes.\n# TYPE tarts_total counter\ntarts_total 2\n";
    assert_eq!(registry.encode(Format::Text).unwrap(), expected);
    assert!(!registry.encode(Format::OpenMetrics).unwrap().contains(" 3\n"));

    Process::register(&registry);
    let taken = registry.try_register("process_open_fds", "Mine", Counter::<u64>::default()).unwrap_err();
    assert!(taken.to_string().contains("is taken"), "{taken}");
}

/// A collector that blocks until the test ends it.
#[derive(Debug)]
struct Hangs {
    begun: mpsc::SyncSender<()>,
    end: Mutex<mpsc::Receiver<()>>,
}

impl Collector for Hangs {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.begun.send(()).unwrap();
        self.end.lock().recv().unwrap();
        ConstGauge::new(1_u64).encode(encoder.encode_descriptor("hung", "Hung", None, MetricType::Gauge)?)
    }
}

#[test]
fn a_hanging_collector_does_not_block_registration() {
    let registry = Registry::new();
    let ((begun, has_begun), (end, ended)) = (mpsc::sync_channel(2), mpsc::channel());
    registry.register_collector(Box::new(Hangs { begun, end: Mutex::new(ended) }));
    let scraped = registry.clone();
    let scrape = std::thread::spawn(move || scraped.encode(Format::Text).unwrap());
    has_begun.recv().unwrap();
    let (done, registered) = mpsc::channel();
    let registering = registry.clone();
    std::thread::spawn(move || {
        registering.register("cakes", "Cakes sold", Counter::<u64>::default());
        done.send(()).unwrap();
    });
    registered.recv_timeout(Duration::from_mins(1)).expect("registered while the collector hangs");
    end.send(()).unwrap();
    assert!(!scrape.join().unwrap().contains("cakes"));
    end.send(()).unwrap();
    assert!(registry.encode(Format::Text).unwrap().contains("cakes_total 0\n"), "the next scrape has it");
}
