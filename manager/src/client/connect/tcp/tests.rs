use super::*;
use crate::metrics::{Format, Registry};
use crate::util::os::tests::keep_alive;

fn metrics() -> RequestMetrics {
    RequestMetrics::register(&Registry::new())
}

#[test]
fn host_and_port_follow_scheme_and_brackets() {
    let parts =
        |uri: &'static str| host_and_port(&Uri::from_static(uri)).ok().map(|(h, p)| (h.to_owned(), p));
    assert_eq!(parts("https://[::1]:6443"), Some(("::1".to_owned(), 6443)));
    assert_eq!(parts("https://example"), Some(("example".to_owned(), 443)));
    assert_eq!(parts("http://127.0.0.1"), Some(("127.0.0.1".to_owned(), 80)));
    assert_eq!(parts("/api"), None);
}

#[tokio::test]
async fn every_connection_has_keepalive() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let uri: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    let stream = connect(&uri, Duration::from_secs(5), &metrics()).await.unwrap();
    assert_eq!(keep_alive(&stream), Some(KEEP_ALIVE));
}

#[tokio::test]
async fn dns_look_ups_are_timed_and_addresses_need_none() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let registry = Registry::new();
    let metrics = RequestMetrics::register(&registry);
    let count = r#"rest_client_dns_resolution_duration_seconds_count{host="localhost"} 1"#;
    for (host, looked_up) in [("127.0.0.1", false), ("localhost", true)] {
        let uri: Uri = format!("http://{host}:{port}").parse().unwrap();
        drop(connect(&uri, Duration::from_secs(5), &metrics).await.unwrap());
        let text = registry.encode(Format::Text).unwrap();
        assert_eq!(text.contains(count), looked_up, "{host}: {text}");
        assert_eq!(text.contains("dns_resolution"), looked_up, "{host}: {text}");
    }
}

#[tokio::test]
async fn a_refused_connection_names_the_address() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let uri: Uri = format!("http://{address}").parse().unwrap();
    let error = connect(&uri, Duration::from_secs(5), &metrics()).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
    assert!(error.to_string().starts_with(&address.to_string()), "{error}");
}
