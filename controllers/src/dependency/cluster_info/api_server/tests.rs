use super::*;

fn server() -> ApiServer {
    ApiServer::new(&"https://api.example.com:6443".parse().unwrap())
}

fn is_at(server: &ApiServer, address: &str) -> Result<bool, String> {
    server.is_at(address.parse().unwrap())
}

fn ips(list: &[&str]) -> Vec<IpAddr> {
    list.iter().map(|ip| ip.parse().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn an_address_is_ruled_out_only_after_a_complete_lookup() {
    let server = server();
    is_at(&server, "10.0.0.9:80").unwrap_err();
    assert!(tokio::time::timeout(PERIOD, server.first_lookup()).await.is_err(), "no lookup yet");
    server.store(Err("no answer".to_owned()));
    server.first_lookup().await;
    assert_eq!(is_at(&server, "10.0.0.9:80"), Err("no answer".to_owned()));
    server.store(Ok(ips(&["10.0.0.6", "::ffff:10.96.0.1", "127.0.0.1"])));
    for (address, expected) in [
        ("10.0.0.6:6443", true),
        ("10.0.0.6:22", true),
        ("10.96.0.1:443", true),
        ("127.0.0.1:6443", true),
        ("127.0.0.1:22", false),
        ("10.0.0.9:80", false),
    ] {
        assert_eq!(is_at(&server, address), Ok(expected), "{address}");
    }
    server.store(Err("no answer".to_owned()));
    assert_eq!(is_at(&server, "10.0.0.6:22"), Ok(true), "addresses of earlier lookups stay");
    assert_eq!(is_at(&server, "10.0.0.9:80"), Ok(false));
    server.end_term();
    assert_eq!(is_at(&server, "10.0.0.6:22"), Ok(true), "addresses stay after the term");
    is_at(&server, "10.0.0.9:80").unwrap_err();
    assert!(tokio::time::timeout(PERIOD, server.first_lookup()).await.is_err(), "no lookup in this term yet");
}

/// Lookups back off, because the usual cause, a missing right, mostly stays missing.
#[tokio::test(start_paused = true)]
async fn failed_lookups_back_off() {
    let (server, began) = (server(), Instant::now());
    let lookups = std::cell::RefCell::new(Vec::new());
    let forbidden = || async {
        lookups.borrow_mut().push(began.elapsed().as_secs());
        Err("forbidden".to_owned())
    };
    drop(tokio::time::timeout(Duration::from_secs(95), server.repeat(forbidden)).await);
    assert_eq!(*lookups.borrow(), [0, 1, 3, 7, 15, 31, 61, 91]);
}

#[tokio::test(start_paused = true)]
async fn an_address_stays_for_an_hour_after_the_last_lookup_that_returned_it() {
    let server = server();
    server.store(Ok(ips(&["10.0.0.6"])));
    tokio::time::advance(ADDRESS_TTL.saturating_sub(Duration::from_millis(1))).await;
    server.store(Ok(ips(&["10.0.0.7"])));
    assert_eq!(is_at(&server, "10.0.0.6:6443"), Ok(true), "one tick before its end");
    tokio::time::advance(Duration::from_millis(1)).await;
    server.store(Ok(ips(&["10.0.0.7"])));
    assert_eq!(is_at(&server, "10.0.0.6:6443"), Ok(false));
    assert_eq!(is_at(&server, "10.0.0.7:6443"), Ok(true));
}
