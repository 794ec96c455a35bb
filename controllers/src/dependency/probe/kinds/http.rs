//! One HTTP/1.1 GET; the status of the answer decides.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONNECTION, HOST, HeaderName, HeaderValue, USER_AGENT as AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use mainstay_api::plan::HttpCheck;
use mainstay_api::wait_for::HttpScheme;

use super::{Failure, USER_AGENT, drive_until, tls};
use crate::dependency::probe::Connection;
use crate::reasons::probe;

/// Maximum size of the status line and headers of an HTTP answer in bytes; a longer answer is refused.
const MAX_HEAD: usize = 16 * 1024;
/// Maximum number of headers of an HTTP answer.
const MAX_HEADERS: usize = 100;
/// Maximum number of bytes that are read of the body of an HTTP answer. Without reading it, servers would log
/// a broken connection for each probe.
const MAX_BODY: usize = 10 * 1024;
/// Longest time to read the body of an HTTP answer; its status has decided the check already.
const BODY_TIME: Duration = Duration::from_millis(100);

/// Runs an `http` check: sends a GET, and succeeds if the status of the answer is an expected one. A redirect
/// is an answer like any other.
pub(super) async fn get(check: &HttpCheck, connection: Connection) -> Result<(), Failure> {
    let connection = match check.scheme {
        HttpScheme::Http => connection,
        HttpScheme::Https => tls::unverified(&check.address.host, b"http/1.1", connection).await?,
    };
    let status = exchange(check, connection).await?.as_u16();
    let expected = match check.statuses.as_slice() {
        [] => (200..400).contains(&status),
        statuses => statuses.contains(&status),
    };
    if expected {
        return Ok(());
    }
    Err(Failure::answered(probe::UNEXPECTED_STATUS, format!("it answered with HTTP status {status}")))
}

async fn exchange(check: &HttpCheck, connection: Connection) -> Result<StatusCode, Failure> {
    let request = request(check)?;
    let mut builder = http1::Builder::new();
    let handshake =
        builder.max_headers(MAX_HEADERS).max_buf_size(MAX_HEAD).handshake(TokioIo::new(connection));
    let (mut sender, connection) = handshake.await.map_err(|error| failed(&error))?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(|error| failed(&error))?;
        let status = answer.status();
        // The status decides, even if reading the body fails.
        drop(tokio::time::timeout(BODY_TIME, drain(answer.into_body())).await);
        Ok(status)
    };
    drive_until(answer, connection).await
}

fn request(check: &HttpCheck) -> Result<Request<Empty<Bytes>>, Failure> {
    let address = check.address.to_string();
    let host = match (check.scheme, check.address.port) {
        (HttpScheme::Http, 80) | (HttpScheme::Https, 443) => {
            address.rsplit_once(':').map_or(&*address, |(host, _)| host)
        }
        _ => &address,
    };
    let mut request = Request::get(&check.path)
        .header(HOST, host)
        .header(AGENT, USER_AGENT)
        .header(ACCEPT, "*/*")
        .header(CONNECTION, "close")
        .body(Empty::new())
        .map_err(|_| Failure::before(probe::FAILED, "the path cannot be sent"))?;
    for header in &check.headers {
        let name = HeaderName::from_bytes(header.name.as_bytes());
        let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&header.value)) else {
            return Err(Failure::before(probe::FAILED, "one of the headers cannot be sent"));
        };
        // These two replace the default; any other header that the object lists twice is sent twice.
        if name == ACCEPT || name == AGENT {
            request.headers_mut().insert(name, value);
        } else {
            request.headers_mut().append(name, value);
        }
    }
    Ok(request)
}

async fn drain(mut body: Incoming) {
    let mut read = 0;
    while !body.is_end_stream() && read < MAX_BODY {
        let Some(Ok(frame)) = body.frame().await else { return };
        read += frame.data_ref().map_or(0, Bytes::len);
    }
}

fn failed(error: &hyper::Error) -> Failure {
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        return Failure::closed();
    }
    Failure::of_exchange(error, "HTTP/1.1")
}
