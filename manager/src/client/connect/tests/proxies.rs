//! Connections through a proxy obey the fence and the deadline.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;
use crate::client::error::is_fenced;

#[test]
fn the_error_for_an_unknown_proxy_scheme_hides_the_password() {
    let mut config = kube::Config::new("https://10.0.0.1:6443".parse().unwrap());
    config.proxy_url = Some("ftp://me:secret@proxy:3128".parse().unwrap());
    let error = Connections::new(config, &Registry::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the proxy for https://10.0.0.1:6443/ cannot be used; expected http://, https:// or socks5:// with \
         HOST:PORT in proxy-url or HTTPS_PROXY"
    );
}

/// A client that uses this listener as its proxy.
fn client_through(listener: &TcpListener, scheme: &str, role: Role, timeout: Duration) -> kube::Client {
    let mut config = kube::Config::new("http://server.example:6443".parse().unwrap());
    config.proxy_url = Some(format!("{scheme}://{}", listener.local_addr().unwrap()).parse().unwrap());
    config.connect_timeout = Some(timeout);
    Connections::new(config, &Registry::new()).unwrap().client(role).unwrap()
}

#[tokio::test]
async fn the_end_of_a_term_resets_a_connection_through_a_proxy_and_one_that_is_being_opened() {
    for (scheme, greeting) in
        [("http", "CONNECT server.example:6443 HTTP/1.1\r\n"), ("socks5", "\u{5}\u{1}\0")]
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let fence = Fence::open();
        let client = client_through(&listener, scheme, Role::Writes(fence.clone()), LONG);
        let mut sending = JoinSet::new();
        sending.spawn(async move { client.send(put("/held", "{}")).await });
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut begin = vec![0; greeting.len()];
        stream.read_exact(&mut begin).await.unwrap();
        assert_eq!(begin, greeting.as_bytes());

        fence.close();
        let error = sending.join_next().await.unwrap().unwrap().unwrap_err();
        assert!(is_fenced(&error), "{error:?}");
        let end = stream.read_to_end(&mut Vec::new()).await.unwrap_err();
        assert_eq!(end.kind(), std::io::ErrorKind::ConnectionReset);
    }
    // After the tunnel is open the request is sent through it; the end of the term resets its connection.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let fence = Fence::open();
    let client = client_through(&listener, "http", Role::Writes(fence.clone()), LONG);
    let mut sending = JoinSet::new();
    sending.spawn(async move { client.send(put("/held", "{}")).await });
    let (mut stream, _) = listener.accept().await.unwrap();
    read_to(&mut stream, b"\r\n\r\n").await;
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
    let request = read_to(&mut stream, b"{}").await;
    assert!(request.starts_with(b"PUT /held HTTP/1.1\r\n"));
    fence.close();
    let error = sending.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(is_fenced(&error), "{error:?}");
    assert_eq!(stream.read(&mut [0]).await.unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn a_silent_proxy_fails_after_the_connect_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    for scheme in ["http", "https", "socks5"] {
        let client = client_through(&listener, scheme, Role::Watches, Duration::from_millis(100));
        let error = client.send(get("/version")).await.unwrap_err();
        assert!(format!("{error:?}").contains("DeadlineExceeded"), "{scheme}: {error:?}");
    }
}

#[tokio::test]
async fn the_error_of_a_refusing_proxy_names_it_without_its_user() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client_through(&listener, "http", Role::Watches, LONG);
    let (refused, ()) = tokio::join!(client.send(get("/version")), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_to(&mut stream, b"\r\n\r\n").await;
        stream.write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n").await.unwrap();
    });
    let error = refused.unwrap_err();
    let text = crate::key::Chain(&error).to_string();
    let expected = format!(
        "no connection through proxy http://{}/: tunnel error: proxy authorization required",
        listener.local_addr().unwrap()
    );
    assert!(text.contains(&expected), "{text}");
}

async fn read_to(stream: &mut tokio::net::TcpStream, end: &[u8]) -> Vec<u8> {
    let mut read = Vec::new();
    while !read.ends_with(end) {
        read.push(stream.read_u8().await.unwrap());
    }
    read
}
