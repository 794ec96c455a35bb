use super::*;

use std::path::Path;

use axum::Extension;
use futures_util::FutureExt as _;
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::controller::Term;
use crate::election::{Leadership, NOTICE};
use crate::inspect::{Election, LeaseHistory, standby};
use crate::key::Fence;
use crate::serve::{Bound, Certificates, Limits};

/// Method, path, headers and body of a received request.
type Received = (String, String, http::HeaderMap, String);

/// A replica that answers with its identity and records the requests.
struct Replica {
    leader: Leader,
    leadership: watch::Sender<Leadership>,
    notice: Notice,
    received: Arc<Mutex<Vec<Received>>>,
}

/// The running server of a replica.
struct Served {
    address: Address,
    stop: CancellationToken,
    running: JoinSet<()>,
    _directory: tempfile::TempDir,
}

fn certificates(directory: &Path) -> Certificates {
    let made = rcgen::generate_simple_self_signed(["somebody".to_owned()]).unwrap();
    std::fs::write(directory.join("tls.crt"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("tls.key"), made.signing_key.serialize_pem()).unwrap();
    Certificates::load(directory).unwrap()
}

// === impl Replica ===

impl Replica {
    fn new(identity: &str, leadership: Leadership) -> Self {
        let leadership = watch::Sender::new(leadership);
        let election = Election {
            namespace: "system".to_owned(),
            lease_name: "mainstay".to_owned(),
            leadership: leadership.subscribe(),
            history: LeaseHistory::default(),
        };
        let leader = Leader {
            identity: identity.to_owned(),
            namespace: Some("system".to_owned()),
            election: Some(election),
            term: Term::new(),
            fence: Fence::closed(),
        };
        Self { leader, leadership, notice: Notice::default(), received: Arc::default() }
    }

    fn standby_of(holder: &str) -> Self {
        Self::new("web-1_a", Leadership::Standby { holder: Some(holder.into()) })
    }

    /// Returns the replica's pages with the header of a standby; all requests are authorized.
    fn pages(&self) -> Router {
        let (name, received) = (self.leader.identity.clone(), Arc::clone(&self.received));
        let pages = Router::new().fallback(async move |request: Request| {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let body = String::from_utf8(body.to_vec()).unwrap();
            received.lock().push((head.method.to_string(), head.uri.to_string(), head.headers, body));
            match head.uri.path() {
                "/debug/long" => vec![b'a'; MAX_ANSWER_BYTES + 1].into_response(),
                "/debug/never" => std::future::pending().await,
                "/debug/controllers/refused" => refusal(StatusCode::FORBIDDEN, "you may not"),
                _ => name.into_response(),
            }
        });
        let pages = pages.layer(from_fn_with_state(self.leader.clone(), standby::add_header));
        let pages = Peers::new(self.leader.clone(), self.notice.clone()).before(pages);
        pages.layer(Extension(Authorized))
    }

    fn serve(&self) -> Served {
        let directory = tempfile::tempdir().unwrap();
        let certificates = certificates(directory.path());
        let bound = Bound::bind("127.0.0.1:0", Limits::default()).unwrap();
        let address = Address {
            holder: self.leader.identity.clone(),
            address: bound.local_addr(),
            sha256: certificates.sha256(),
        };
        let (stop, pages) = (CancellationToken::new(), self.pages());
        let (bound, stopping) = (bound.with_certificates(certificates), stop.clone());
        let running = JoinSet::from_iter([async move { bound.run(pages, stopping).await.unwrap() }]);
        Served { address, stop, running, _directory: directory }
    }

    /// Sets the notice that the replica reads from the Lease.
    fn set_notice(&self, notice: &str) {
        self.notice.set_seen(notice);
    }

    /// Returns status and body of the answer, and the header of a standby.
    async fn send(&self, request: http::Request<&'static str>) -> (u16, String, Value) {
        let answer = self.pages().oneshot(request.map(Body::from)).await.unwrap();
        let standby =
            answer.headers().get(STANDBY).map(|standby| serde_json::from_slice(standby.as_bytes()).unwrap());
        let status = answer.status().as_u16();
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap(), standby.unwrap_or_default())
    }

    async fn get(&self, path: &str) -> (u16, String, Value) {
        self.send(http::Request::get(path).header(AUTHORIZATION, "Bearer mine").body("").unwrap()).await
    }
}

impl Served {
    fn notice(&self) -> String {
        serde_json::to_string(&self.address).unwrap()
    }

    async fn end(mut self) {
        self.stop.cancel();
        while self.running.join_next().await.is_some() {}
    }
}

fn header(forwarded: bool, trouble: &Value) -> Value {
    json!({
        "identity": "web-1_a", "leader": "web-0_b", "pod": "web-0", "namespace": "system",
        "forwarded": forwarded, "trouble": trouble,
    })
}

fn leading() -> Replica {
    Replica::new("web-0_b", Leadership::Leading { transitions: 1 })
}

#[tokio::test]
async fn a_standby_forwards_requests_to_the_leader_with_the_callers_token() {
    let (leader, standby) = (leading(), Replica::standby_of("web-0_b"));
    let served = leader.serve();
    standby.set_notice(&served.notice());
    let path = "/debug/controllers/web/queue?state=ready&limit=3";
    assert_eq!(standby.get(path).await, (200, "web-0_b".to_owned(), header(true, &Value::Null)));
    let action = http::Request::post("/debug/controllers/web/reconcile")
        .header(CONTENT_TYPE, "application/json")
        .header(AUTHORIZATION, "Bearer mine")
        .header(ORIGIN, "http://elsewhere")
        .header("cookie", "a=b");
    assert_eq!(standby.send(action.body("{}").unwrap()).await.1, "web-0_b");
    let (status, text, _) = standby.get("/debug/controllers/refused").await;
    assert_eq!(
        (status, text.trim()),
        (403, r#"{"error":"you may not"}"#),
        "the answer of the leader is forwarded"
    );
    let received = std::mem::take(&mut *leader.received.lock());
    assert_eq!((&*received[0].0, &*received[0].1), ("GET", path));
    let (method, path, headers, body) = &received[1];
    assert_eq!((&**method, &**path, &**body), ("POST", "/debug/controllers/web/reconcile", "{}"));
    let values = |names: [&str; 5]| names.map(|name| headers.get(name).map(|value| value.to_str().unwrap()));
    assert_eq!(
        values(["authorization", "content-type", "origin", OWN, "cookie"]),
        [Some("Bearer mine"), Some("application/json"), Some("http://elsewhere"), Some("true"), None]
    );
    assert!(standby.received.lock().is_empty(), "no request is answered twice");
    served.end().await;
}

#[tokio::test]
async fn requests_about_the_replica_itself_are_not_forwarded() {
    let (leader, standby) = (leading(), Replica::standby_of("web-0_b"));
    let served = leader.serve();
    standby.set_notice(&served.notice());
    for path in ["/debug/caches", "/debug/config", "/debug/leader", "/debug/log", "/debug/watches"] {
        assert_eq!(
            standby.get(path).await,
            (200, "web-1_a".to_owned(), header(false, &Value::Null)),
            "{path}"
        );
    }
    let own = http::Request::get("/debug/controllers").header(OWN, "true").body("").unwrap();
    assert_eq!(standby.send(own).await.1, "web-1_a");
    // This request is not authorized.
    let peers = Peers::new(standby.leader.clone(), standby.notice.clone());
    let pages = peers.before(Router::new().fallback(async || "mine"));
    let answer =
        pages.oneshot(Request::get("/debug/controllers").body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), "mine");
    assert!(leader.received.lock().is_empty());
    standby.leadership.send_replace(Leadership::Leading { transitions: 2 });
    assert_eq!(
        standby.get("/debug/controllers").await,
        (200, "web-1_a".to_owned(), Value::Null),
        "this replica leads itself"
    );
    served.end().await;
}

#[tokio::test]
async fn a_forwarded_request_is_not_forwarded_again() {
    // This replica has just stopped leading; it takes the standby for the leader.
    let former = Replica::new("web-0_b", Leadership::Standby { holder: Some("web-1_a".into()) });
    let standby = Replica::standby_of("web-0_b");
    let (of_former, of_standby) = (former.serve(), standby.serve());
    standby.set_notice(&of_former.notice());
    former.set_notice(&of_standby.notice());
    let (status, text, header) = standby.get("/debug/controllers").await;
    assert_eq!((status, &*text), (200, "web-0_b"));
    assert_eq!(
        (&header["identity"], &header["leader"], &header["forwarded"]),
        (&json!("web-0_b"), &json!("web-1_a"), &json!(false))
    );
    assert_eq!((former.received.lock().len(), standby.received.lock().len()), (1, 0));
    of_former.end().await;
    of_standby.end().await;
}

#[tokio::test]
async fn a_failed_forward_is_reported_with_its_reason() {
    let (leader, standby) = (leading(), Replica::standby_of("web-0_b"));
    let served = leader.serve();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, sha256) = (served.address.address, "00".repeat(32));
    let notice = |holder: &str, address: SocketAddr, sha256: &str| {
        json!({"holder": holder, "address": address, "sha256": sha256}).to_string()
    };
    let nowhere = "the Lease has no address of its pages".to_owned();
    let wrong = format!("no TLS with the certificate in the Lease to {address}: ");
    let right = served.notice();
    for (notice, path, expected) in [
        ("", "/debug/controllers", &nowhere),
        ("no JSON", "/debug/controllers", &nowhere),
        (r#"{"holder":"web-0_b","address":"localhost:1","sha256":""}"#, "/debug/controllers", &nowhere),
        // The notice of an earlier holder, kept by an elector of another program.
        (&*notice("web-2_c", address, &served.address.sha256), "/debug/controllers", &nowhere),
        (&*notice("web-0_b", address, &sha256), "/debug/controllers", &wrong),
        (&*right, "/debug/long", &format!("incomplete answer from {address}: length limit exceeded")),
    ] {
        standby.set_notice(notice);
        let (status, _, header) = standby.get(path).await;
        let trouble = header["trouble"].as_str().unwrap_or_default();
        assert!(status == 200 && trouble.starts_with(expected), "{notice} {path}: {status} {header}");
        assert_eq!(standby.received.lock().pop().unwrap().1, path, "the standby answers itself");
    }
    assert_eq!(leader.received.lock().len(), 1, "no token is sent to a server with another certificate");

    tokio::time::pause();
    let got =
        || leader.received.lock().last().is_some_and(|got| (&*got.0, &*got.1) == ("POST", "/debug/never"));
    let held = Mutex::new(None);
    let connected = || {
        *held.lock() = silent.accept().now_or_never();
        held.lock().is_some()
    };
    for (notice, path, arrived) in [
        (&*right, "/debug/never", &got as &dyn Fn() -> bool),
        (&*notice("web-0_b", silent.local_addr().unwrap(), &sha256), "/debug/controllers", &connected),
    ] {
        standby.set_notice(notice);
        let post = http::Request::post(path).body("").unwrap();
        // The paused clock does not advance while a task is ready.
        let arrival = async {
            while !arrived() {
                tokio::task::yield_now().await;
            }
        };
        let ((status, text, _), ()) = tokio::join!(standby.send(post), arrival);
        let expected = r#"{"error":"the leader web-0_b did not answer: no answer within 8s"}"#;
        assert_eq!((status, text.trim()), (502, expected), "{path}");
        assert!(standby.received.lock().is_empty(), "an action is not repeated by the standby");
    }
    tokio::time::resume();
    let gone = served.address.address;
    served.end().await;
    standby.set_notice(&right);
    let (status, text, header) = standby.get("/debug/controllers").await;
    assert_eq!((status, &*text), (200, "web-1_a"));
    let trouble = header["trouble"].as_str().unwrap();
    assert!(trouble.starts_with(&format!("no connection to {gone}: ")), "{trouble}");
    standby.leadership.send_replace(Leadership::Standby { holder: None });
    assert_eq!(standby.get("/debug/controllers").await.2["trouble"], Value::Null, "there is no leader");
    assert_eq!(NOTICE, "mainstay.dev/inspect");
}

#[tokio::test]
async fn forwarded_answers_in_memory_are_limited() {
    let (leader, standby) = (leading(), Replica::standby_of("web-0_b"));
    let served = leader.serve();
    standby.set_notice(&served.notice());
    let pages = standby.pages();
    let get = async || {
        let request = Request::get("/debug/controllers").body(Body::empty()).unwrap();
        let answer = pages.clone().oneshot(request).await.unwrap();
        let header: Value = serde_json::from_slice(answer.headers()[STANDBY].as_bytes()).unwrap();
        (answer, header["trouble"].clone())
    };
    let mut held = Vec::new();
    for _ in 0..MAX_ANSWERS {
        held.push(get().await);
    }
    assert!(held.iter().all(|(_, trouble)| trouble.is_null()));
    tokio::time::pause();
    assert_eq!(get().await.1, "no answer within 8s");
    tokio::time::resume();
    assert_eq!(leader.received.lock().len(), MAX_ANSWERS);
    drop(held);
    assert_eq!(get().await.1, Value::Null, "there is a slot again");
    served.end().await;
}
