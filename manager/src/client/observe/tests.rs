use futures_util::FutureExt as _;
use http::StatusCode;
use parking_lot::Mutex;

use super::*;
use crate::client::Role;
use crate::client::tests::server::{Answer, TestServer};
use crate::key::Fence;

/// Records all reports, one line each.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl WriteObserver for Notes {
    fn written(&self, path: &ResourcePath, body: &Bytes, _: Writer) {
        let sub = path.subresource.as_deref().unwrap_or("-");
        self.note(format!("written {} {sub} {}", path.plural, String::from_utf8_lossy(body)));
    }

    fn cached_uids(&self, path: &ResourcePath) -> Vec<String> {
        vec![format!("before {}", path.plural)]
    }

    fn deleted(&self, path: &ResourcePath, body: &Bytes, cached_uids: &[String], _: Writer) {
        assert_eq!(cached_uids, [format!("before {}", path.plural)], "read before the DELETE was sent");
        self.note(format!("deleted {} {}", path.plural, String::from_utf8_lossy(body)));
    }

    fn uncovered(&self, path: &ResourcePath) {
        self.note(format!("uncovered {}", path.plural));
    }
}

impl Notes {
    fn note(&self, line: String) {
        self.0.lock().push(line);
    }
}

const WEB: &str = "/apis/apps/v1/namespaces/shop/deployments/web";

async fn observed(request: Request<&'static str>, answer: Answer) -> (Vec<String>, StatusCode, Bytes) {
    let server = TestServer::start([answer]).await;
    let connections = server.connections();
    let notes = Arc::new(Notes::default());
    let client = connections.client(Role::Writes(Fence::open())).unwrap();
    connections.observe(Arc::clone(&notes) as Arc<dyn WriteObserver>);
    let response = client.send(request.map(|body| Body::from(Bytes::from(body)))).await.unwrap();
    let status = response.status();
    let reports = notes.0.lock().clone();
    (reports, status, response.into_body().collect_bytes().await.unwrap())
}

async fn check(method: &str, uri: &str, body: &'static str, expected: &[&str]) {
    let request = Request::builder().method(method).uri(uri).body(body).unwrap();
    let (reports, _, response) = observed(request, Answer::ok(r#"{"a":1}"#)).await;
    assert_eq!(reports, expected, "{method} {uri} {body}");
    assert_eq!(response, r#"{"a":1}"#, "the caller gets the whole response");
}

#[tokio::test]
async fn writes_are_reported_with_their_response_before_the_caller_has_it() {
    check("PATCH", &format!("{WEB}?force=true"), "{}", &[r#"written deployments - {"a":1}"#]).await;
    check("PUT", &format!("{WEB}/status"), "{}", &[r#"written deployments status {"a":1}"#]).await;
    check("POST", "/api/v1/namespaces", "{}", &[r#"written namespaces - {"a":1}"#]).await;
    check("DELETE", WEB, r#"{"propagationPolicy":"Background"}"#, &[r#"deleted deployments {"a":1}"#]).await;
}

#[tokio::test]
async fn reads_and_dry_runs_are_not_reported() {
    check("GET", WEB, "", &[]).await;
    check("PATCH", &format!("{WEB}?dryRun=All&force=true"), "{}", &[]).await;
    check("DELETE", WEB, r#"{"dryRun":["All"]}"#, &[]).await;
    check("POST", "/version", "{}", &[]).await;
}

#[tokio::test]
async fn a_write_that_the_response_does_not_describe_is_uncovered() {
    check("DELETE", "/api/v1/namespaces/shop/pods", "", &["uncovered pods"]).await;
    check("POST", "/api/v1/namespaces/shop/pods/web/eviction", "{}", &["uncovered pods"]).await;
    check("PUT", &format!("{WEB}/scale"), "{}", &["uncovered deployments"]).await;
    let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let request = Request::patch(WEB).header(header::ACCEPT, partial).body("{}").unwrap();
    let (reports, ..) = observed(request, Answer::ok("{}")).await;
    assert_eq!(reports, ["uncovered deployments"]);
}

#[tokio::test]
async fn refused_writes_are_not_reported() {
    let request = Request::put(WEB).body("{}").unwrap();
    let (reports, status, body) = observed(request, Answer::failure(409, "Conflict", "no")).await;
    assert_eq!((reports.len(), status), (0, StatusCode::CONFLICT));
    assert!(body.starts_with(b"{"));
}

#[tokio::test]
async fn a_response_beyond_the_limit_passes_whole_and_is_uncovered() {
    let long = "x".repeat(MAX_OBSERVED_BYTES + 70_000);
    let request = Request::put(WEB).body("{}").unwrap();
    let (reports, _, body) = observed(request, Answer::ok(&long)).await;
    assert_eq!(reports, ["uncovered deployments"]);
    assert!(body == long, "{} of {} bytes came through", body.len(), long.len());
}

#[tokio::test]
async fn a_write_whose_response_breaks_off_or_is_not_awaited_is_uncovered() {
    let begun = || stream::iter([Ok(Frame::data(Bytes::from_static(b"{")))]);
    let breaks = begun().chain(stream::iter([Err(BoxError::from("reset"))])).boxed();
    let hangs = begun().chain(stream::pending()).boxed();
    for (case, body) in [("breaks off", breaks), ("is not awaited", hangs)] {
        let notes = Notes::default();
        let path = ResourcePath::parse(WEB).unwrap();
        let response = Response::new(StreamBody::new(body).boxed_unsync());
        let report =
            read_whole(response, |body| notes.written(&path, body, Writer::default()), &notes, &path);
        assert!(report.now_or_never().is_none_or(|answer| answer.is_err()), "{case}");
        assert_eq!(*notes.0.lock(), ["uncovered deployments"], "{case}");
    }
}

#[test]
fn paths_are_parsed_as_the_server_parses_them() {
    let read = |path: &str| {
        ResourcePath::parse(path).map(|path| {
            let or_dash = |part: Option<String>| part.unwrap_or_else(|| "-".to_owned());
            let (namespace, name) = (or_dash(path.namespace), or_dash(path.name));
            format!(
                "{}|{}|{}|{namespace}|{name}|{}",
                path.group,
                path.version,
                path.plural,
                or_dash(path.subresource)
            )
        })
    };
    for (path, expected) in [
        (WEB, "apps|v1|deployments|shop|web|-"),
        ("/apis/apps/v1/namespaces/shop/deployments/web/status", "apps|v1|deployments|shop|web|status"),
        ("/apis/apps/v1/deployments", "apps|v1|deployments|-|-|-"),
        ("/api/v1/namespaces", "|v1|namespaces|-|-|-"),
        ("/api/v1/namespaces/shop", "|v1|namespaces|-|shop|-"),
        ("/api/v1/namespaces/shop/status", "|v1|namespaces|-|shop|status"),
        ("/api/v1/namespaces/shop/finalize", "|v1|namespaces|-|shop|finalize"),
        ("/api/v1/namespaces/shop/pods", "|v1|pods|shop|-|-"),
        ("/api/v1/nodes/n/proxy/metrics/cadvisor", "|v1|nodes|-|n|proxy/metrics/cadvisor"),
    ] {
        assert_eq!(read(path).as_deref(), Some(expected), "{path}");
    }
    for path in ["/", "/version", "/api", "/apis/apps", "/apis/apps/v1", "/api/v1"] {
        assert_eq!(read(path), None, "{path}");
    }
}
