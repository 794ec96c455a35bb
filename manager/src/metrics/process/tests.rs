use super::*;
use crate::metrics::Format;

#[test]
fn the_kernels_files_are_read_by_their_fields() {
    let stat = "42 (a) strange) name) S 1 42 42 0 -1 4194560 1029 0 0 0 150 50 0 0 20 0 9 0 8675 104857600 512 \
                    18446744073709551615 1 1";
    let expected =
        Stat { cpu_ticks: 200.0, start_ticks: 8675.0, virtual_bytes: 104_857_600.0, resident_pages: 512.0 };
    assert_eq!(Stat::parse(stat), Some(expected));
    assert_eq!(Stat::parse("42 (short) S 1"), None);
    let netstat = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 1 30 40\n";
    assert_eq!(Network::parse(netstat), Some(Network { received_bytes: 30.0, sent_bytes: 40.0 }));
    assert_eq!(boot_seconds("cpu 1 2\nbtime 1700000000\nprocesses 3\n"), Some(1_700_000_000.0));
}

#[test]
fn this_process_has_used_memory_and_files_since_a_moment_that_has_passed() {
    let registry = Registry::new();
    Process::register(&registry);
    let text = registry.encode(Format::Text).unwrap();
    let value = |name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    };
    // Bounds that hold on any machine: not zero, and not another unit.
    assert!((1e5..1e11).contains(&value("process_resident_memory_bytes")), "{text}");
    assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"), "{text}");
    assert!((3.0..1e6).contains(&value("process_open_fds")), "{text}");
    assert!(value("process_max_fds") >= value("process_open_fds"), "{text}");
    assert!((0.0..1e6).contains(&value("process_cpu_seconds_total")), "{text}");
    let now = jiff::Timestamp::now().as_second() as f64;
    assert!((now - 1e6..now + 2.0).contains(&value("process_start_time_seconds")), "{text}");
}
