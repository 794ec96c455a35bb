use super::*;

fn admits(uri: &str, hosts: &[&str]) -> bool {
    let mut request = Request::get(uri);
    for host in hosts {
        request = request.header(HOST, *host);
    }
    is_loopback(&request.body(()).unwrap())
}

#[test]
fn loopback_hosts_are_accepted_by_name_and_address_at_any_port() {
    for host in ["localhost", "LocalHost:8082", "127.0.0.1", "127.0.0.1:40001", "127.9.9.9", "[::1]:8082"] {
        assert!(admits("/debug/leader", &[host]), "{host}");
    }
}

#[test]
fn a_name_that_merely_resolves_to_loopback_is_refused() {
    let foreign = [
        "",
        "evil.example",
        "evil.example:8082",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "evil@localhost",
        "0.0.0.0:8082",
        "10.0.0.1",
        "2130706433",
        "0x7f.1",
        "[::ffff:127.0.0.1]",
        "[::]",
        "localhost:8082:1",
        "localhost/evil.example",
    ];
    for host in foreign {
        assert!(!admits("/debug/leader", &[host]), "{host}");
    }
}

#[test]
fn a_request_must_name_exactly_one_host_and_only_loopback() {
    assert!(!admits("/", &[]), "none");
    assert!(!admits("/", &["localhost", "localhost"]), "two headers");
    assert!(!admits("http://evil.example/", &["localhost"]), "the request line takes precedence");
    assert!(!admits("http://localhost/", &["evil.example"]), "the header is checked too");
    assert!(admits("http://127.0.0.1:1/", &["localhost"]));
}

#[test]
fn only_loopback_origins_are_accepted() {
    let is_loopback = |origin| is_loopback_origin(&HeaderValue::from_static(origin));
    for origin in ["http://localhost:3000", "http://127.0.0.1:8082", "https://[::1]"] {
        assert!(is_loopback(origin), "{origin}");
    }
    for origin in ["null", "", "http://evil.example", "http://localhost.evil.example", "localhost", "file://"]
    {
        assert!(!is_loopback(origin), "{origin}");
    }
}
