use super::*;

#[test]
fn files_of_proc_are_parsed_by_their_fields() {
    let stat = "42 (a) strange) name) S 1 42 42 0 -1 4194560 1029 0 0 0 150 50 0 0 20 0 9 0 8675 104857600 \
                512 18446744073709551615 1 1";
    assert_eq!(parse_stat(stat), Some([8675.0, 104_857_600.0, 512.0]));
    assert_eq!(parse_stat("42 (short) S 1"), None);
    let netstat = "TcpExt: A B\nTcpExt: 1 2\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 1 30 40\n";
    assert_eq!(parse_netstat(netstat), Some([30.0, 40.0]));
    assert_eq!(parse_boot_seconds("cpu 1 2\nbtime 1700000000\nprocesses 3\n"), Some([1_700_000_000.0]));
}

#[test]
fn this_process_reports_memory_files_and_a_start_in_the_past() {
    let usage = process_usage();
    // Bounds that hold on any machine: not zero, and not another unit.
    assert!(usage.resident_bytes.is_some_and(|bytes| (1e5..1e11).contains(&bytes)), "{usage:?}");
    assert!(usage.virtual_bytes >= usage.resident_bytes, "{usage:?}");
    assert!(usage.open_files.is_some_and(|files| (3.0..1e6).contains(&files)), "{usage:?}");
    let now = jiff::Timestamp::now().as_second() as f64;
    assert!(usage.started.is_some_and(|started| (now - 1e6..now + 2.0).contains(&started)), "{usage:?}");
}

#[tokio::test]
async fn the_user_timeout_equals_the_total_time_of_keep_alive() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let second = Duration::from_secs(1);
    super::super::KeepAlive { idle: 15 * second, interval: 10 * second, probes: 3 }.set(&stream).unwrap();
    assert_eq!(sockopt::tcp_user_timeout(&stream).unwrap(), 45_000);
}
