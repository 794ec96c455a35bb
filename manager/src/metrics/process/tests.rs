use super::*;
use crate::metrics::Format;

#[test]
fn every_reported_resource_is_a_metric() {
    let registry = Registry::new();
    Process::register(&registry);
    let text = registry.encode(Format::Text).unwrap();
    let value = |name: &str| -> Option<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map(|value| value.parse().unwrap())
    };
    assert!(
        value("process_cpu_seconds_total").is_some_and(|seconds| (0.0..1e6).contains(&seconds)),
        "{text}"
    );
    assert!(value("process_max_fds") >= value("process_open_fds").or(Some(3.0)), "{text}");
    assert!(value("process_virtual_memory_max_bytes") >= Some(1e6), "{text}");
    let usage = process_usage();
    for (name, reported) in [
        ("process_open_fds", usage.open_files),
        ("process_resident_memory_bytes", usage.resident_bytes),
        ("process_start_time_seconds", usage.started),
        ("process_virtual_memory_bytes", usage.virtual_bytes),
        ("process_network_receive_bytes_total", usage.received_bytes),
        ("process_network_transmit_bytes_total", usage.sent_bytes),
    ] {
        assert_eq!(value(name).is_some(), reported.is_some(), "{name} in {text}");
    }
}
