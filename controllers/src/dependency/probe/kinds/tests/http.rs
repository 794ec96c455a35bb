//! HTTP servers that answer, and others that do not.

use mainstay_api::plan::HttpCheck;
use mainstay_api::wait_for::{HttpHeader, HttpScheme};
use parking_lot::Mutex;

use super::*;

pub(super) fn get(listener: &Listener) -> ProbeCheck {
    ProbeCheck::Http(check_of(listener))
}

fn check_of(listener: &Listener) -> HttpCheck {
    HttpCheck {
        address: listener.address(),
        scheme: HttpScheme::Http,
        path: "/ready?deep=1".to_owned(),
        headers: Vec::new(),
        statuses: Vec::new(),
    }
}

#[tokio::test]
async fn the_status_decides_and_a_redirect_is_not_followed() {
    let cases: [(&'static [u8], &str); 9] = [
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", "Answered"),
        (b"HTTP/1.0 204 No Content\r\n\r\n", "Answered"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", "Answered"),
        (b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n", "UnexpectedStatus"),
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", "UnexpectedStatus"),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "ProtocolError"),
        (b"HTTP/1.1 200 OK\r\nbroken\x00header\r\n\r\n", "ProtocolError"),
        (b"HTTP/1.1 200 O", "ConnectionClosed"),
        (b"", "ConnectionClosed"),
    ];
    for (answer, expected) in cases {
        let listener = Listener::answering(answer).await;
        assert_eq!(reason(get(&listener)).await, expected, "{}", answer.escape_ascii());
    }
    let elsewhere = Listener::hanging().await;
    let port = elsewhere.port;
    let redirecting = Listener::serve(move |mut stream| async move {
        drop(stream.read(&mut [0; 4096]).await);
        let answer =
            format!("HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:{port}/\r\ncontent-length: 0\r\n\r\n");
        drop(stream.write_all(answer.as_bytes()).await);
    })
    .await;
    assert_eq!(reason(get(&redirecting)).await, "Answered");
    assert_eq!(
        (redirecting.accepted(), elsewhere.accepted()),
        (1, 0),
        "one request, and the redirect is not followed"
    );
}

/// A client skips informational responses until the final answer.
#[tokio::test]
async fn endless_informational_responses_are_read_up_to_the_bound() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let endless = Listener::serve(move |mut stream| {
        let sent = Arc::clone(&counted);
        async move {
            let hints = b"HTTP/1.1 103 Early Hints\r\n\r\n".repeat(32);
            while stream.write_all(&hints).await.is_ok() {
                sent.fetch_add(hints.len(), Ordering::Relaxed);
            }
        }
    })
    .await;
    assert_eq!(reason(get(&endless)).await, "ProtocolError");
    let sent = sent.load(Ordering::Relaxed);
    assert!(sent < 64 * 1024 * 1024, "{sent} bytes, most of them in buffers of the kernel");
}

#[tokio::test]
async fn only_the_listed_statuses_succeed() {
    let unauthorized = Listener::answering(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n").await;
    let with = |statuses: &[u16]| {
        ProbeCheck::Http(HttpCheck { statuses: statuses.to_vec(), ..check_of(&unauthorized) })
    };
    assert_eq!(reason(with(&[200, 401])).await, "Answered");
    assert_eq!(reason(with(&[200])).await, "UnexpectedStatus");
}

#[tokio::test]
async fn endless_headers_time_out_and_too_many_are_refused() {
    let slow = Listener::serve(|mut stream| async move {
        drop(stream.write_all(b"HTTP/1.1 200 OK\r\n").await);
        while stream.write_all(b"x: y\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await;
    assert_eq!(FakeCluster::new().check(get(&slow), SHORT).await.reason(), "Timeout");
    for answer in [
        format!("HTTP/1.1 200 OK\r\nlong: {}\r\n\r\n", "x".repeat(64 * 1024)),
        format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(200)),
    ] {
        let huge = Listener::answering(answer.leak().as_bytes()).await;
        assert_eq!(reason(get(&huge)).await, "ProtocolError");
    }
    let (hanging, resetting) = (Listener::hanging().await, Listener::resetting().await);
    assert_eq!(FakeCluster::new().check(get(&hanging), SHORT).await.reason(), "Timeout");
    assert_eq!(reason(get(&resetting)).await, "ConnectionClosed");
}

#[tokio::test]
async fn an_endless_body_is_not_read_to_the_end_and_not_in_the_result() {
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let endless = Listener::serve(move |mut stream| {
        let counted = Arc::clone(&counted);
        async move {
            drop(stream.read(&mut [0; 4096]).await);
            drop(stream.write_all(b"HTTP/1.1 500 password\r\npassword: secret\r\n\r\n").await);
            while let Ok(count) = stream.write(&[b's'; 8192]).await {
                counted.fetch_add(count, Ordering::Relaxed);
            }
        }
    })
    .await;
    let result = FakeCluster::new().check(get(&endless), PATIENT).await;
    assert_eq!((result.reason(), result.message()), ("UnexpectedStatus", "it answered with HTTP status 500"));
    // The buffers of both kernels, to which the sockets may have grown; far less than an endless body.
    assert!(sent.load(Ordering::Relaxed) < 64 << 20, "{sent:?} bytes were sent");
}

#[tokio::test]
async fn the_request_has_the_path_and_the_headers_of_the_check() {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let received = Arc::clone(&requests);
    let listener = Listener::serve(move |mut stream| {
        let received = Arc::clone(&received);
        async move {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            received.lock().push(String::from_utf8(request).unwrap());
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await);
        }
    })
    .await;
    let header = |name: &str, value: &str| HttpHeader { name: name.to_owned(), value: value.to_owned() };
    let headers = vec![header("X-Probe", "1"), header("X-Probe", "2"), header("Accept", "text/plain")];
    let check = ProbeCheck::Http(HttpCheck { headers, ..check_of(&listener) });
    assert_eq!(reason(check).await, "Answered");
    let version = env!("CARGO_PKG_VERSION");
    let port = listener.port;
    let expected = format!(
        "GET /ready?deep=1 HTTP/1.1\r\nhost: db:{port}\r\nuser-agent: mainstay-probe/{version}\r\n\
         accept: text/plain\r\nconnection: close\r\nx-probe: 1\r\nx-probe: 2\r\n\r\n"
    );
    assert_eq!(*requests.lock(), [expected]);
}

#[tokio::test]
async fn https_accepts_any_certificate() {
    let expired = tls::Authority::new().expired("elsewhere.example");
    let listener = tls::serving(expired, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let https =
        |listener: &Listener| ProbeCheck::Http(HttpCheck { scheme: HttpScheme::Https, ..check_of(listener) });
    assert_eq!(reason(https(&listener)).await, "Answered", "as the kubelet does");
    let plain = Listener::answering(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    assert_eq!(reason(https(&plain)).await, "ProtocolError");
}
