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
async fn an_address_is_not_the_api_servers_only_once_all_of_them_are_known() {
    let server = server();
    is_at(&server, "10.0.0.9:80").unwrap_err();
    assert!(tokio::time::timeout(PERIOD, server.looked()).await.is_err(), "nobody has");
    server.learn(Err("no answer".to_owned()));
    server.looked().await;
    assert_eq!(is_at(&server, "10.0.0.9:80"), Err("no answer".to_owned()));
    server.learn(Ok(ips(&["10.0.0.6", "::ffff:10.96.0.1", "127.0.0.1"])));
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
    server.learn(Err("no answer".to_owned()));
    assert_eq!(is_at(&server, "10.0.0.6:22"), Ok(true), "what was found goes on counting");
    assert_eq!(is_at(&server, "10.0.0.9:80"), Ok(false));
    server.end_term();
    assert_eq!(is_at(&server, "10.0.0.6:22"), Ok(true), "by the next term it is the API server's still");
    is_at(&server, "10.0.0.9:80").unwrap_err();
    assert!(tokio::time::timeout(PERIOD, server.looked()).await.is_err(), "not in this term");
}

/// Where the manager may not look, it stays so.
#[tokio::test(start_paused = true)]
async fn what_cannot_be_looked_up_is_asked_for_ever_more_rarely() {
    let (server, began) = (server(), Instant::now());
    let looks = std::cell::RefCell::new(Vec::new());
    let forbidden = || async {
        looks.borrow_mut().push(began.elapsed().as_secs());
        Err("forbidden".to_owned())
    };
    drop(tokio::time::timeout(Duration::from_secs(95), server.repeat(forbidden)).await);
    assert_eq!(*looks.borrow(), [0, 1, 3, 7, 15, 31, 61, 91]);
}

#[tokio::test(start_paused = true)]
async fn an_address_counts_for_an_hour_after_it_was_found_last() {
    let server = server();
    server.learn(Ok(ips(&["10.0.0.6"])));
    tokio::time::advance(SEEN.saturating_sub(Duration::from_millis(1))).await;
    server.learn(Ok(ips(&["10.0.0.7"])));
    assert_eq!(is_at(&server, "10.0.0.6:6443"), Ok(true), "one tick before its end");
    tokio::time::advance(Duration::from_millis(1)).await;
    server.learn(Ok(ips(&["10.0.0.7"])));
    assert_eq!(is_at(&server, "10.0.0.6:6443"), Ok(false));
    assert_eq!(is_at(&server, "10.0.0.7:6443"), Ok(true));
}
