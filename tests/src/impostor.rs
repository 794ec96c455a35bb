//! A server in front of the API server that answers some requests for Leases itself: late, with wrong content
//! or not at all. It can also refuse every request, or end the watches of chosen collections.
//!
//! It forwards all other requests with the credentials of one ServiceAccount, so the audit log shows the
//! requests of its clients under that account.

use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use mainstay::client::infer;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::TestCluster;
use crate::manifests::Identity;

/// A server in front of the API server that answers some requests for Leases itself. It serves HTTP without
/// TLS. Dropping it cuts every connection.
#[derive(Debug)]
pub struct Impostor {
    identity: Identity,
    lies: Arc<Lies>,
    trouble: watch::Sender<Trouble>,
    /// The task that accepts connections and owns them.
    _serving: JoinSet<()>,
}

/// The answer to a request for a Lease instead of the server's. Watches are not affected.
#[derive(Clone, Debug)]
pub enum Lie {
    /// An HTML page with this HTTP status.
    Page(u16),
    /// This text, with HTTP status 200.
    Text(&'static str),
    /// The Lease as it is stored, with another value at this JSON pointer; the request is not executed.
    Changed(&'static str, Value),
    /// HTTP status 429 with a `Retry-After` of an hour.
    Busy,
    /// A Kubernetes `Status` of this code; 429 with a `Retry-After` of a second.
    Refused(u16),
    /// The answer of the API server, delayed by this time.
    Late(Duration),
    /// No answer: the request hangs.
    Silence,
}

/// A fault that affects all requests until [`Impostor::mend`].
#[derive(Clone, Debug, Default)]
struct Trouble {
    /// Collections, such as `configmaps`, whose requests and watches are cut.
    severed: BTreeSet<String>,
    /// The HTTP status with which every request is answered; `None` if they are forwarded. Watches that run
    /// already go on.
    refused: Option<u16>,
    /// Whether a connection ends with its first answer. [`Impostor::mend`] does not reset it.
    closes: bool,
}

/// Longest time to connect to the API server for a forwarded request, far shorter than a Lease lasts: its
/// sender may have lost the Lease by then, and cannot cancel the request.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);

type AnswerBody = UnsyncBoxBody<Bytes, kube::Error>;

/// The state that is needed to answer the requests of one connection.
#[derive(Clone)]
struct Carrier {
    client: Client,
    lies: Arc<Lies>,
    trouble: watch::Receiver<Trouble>,
}

#[derive(Debug, Default)]
struct Lies {
    next: Mutex<VecDeque<Lie>>,
    left: watch::Sender<usize>,
}

// === impl Impostor ===

impl Impostor {
    /// Starts an impostor in front of this cluster's API server, for clients with this identity.
    pub async fn before(cluster: &TestCluster, identity: &Identity) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.unwrap_or_else(|error| panic!("a port of loopback: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("a listener has one: {error}"));
        let lies = Arc::new(Lies::default());
        let mut serving = JoinSet::new();
        let client = client(identity).await;
        let (trouble, from) = watch::channel(Trouble::default());
        serving.spawn(serve(listener, Carrier { client, lies: Arc::clone(&lies), trouble: from }));
        let kubeconfig = identity.kubeconfig.with_extension("impostor.kubeconfig");
        let text = kubeconfig_of(address, cluster.namespace()).to_string();
        std::fs::write(&kubeconfig, text).unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()));
        let identity = Identity { kubeconfig, ..identity.clone() };
        Self { identity, lies, trouble, _serving: serving }
    }

    /// Returns the identity of the clients, with a kubeconfig for this impostor instead of the API server.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Ends the watches of a collection, such as `configmaps`, and resets the connection of every request for
    /// it, until [`Impostor::mend`].
    pub fn sever(&self, collection: &str) {
        self.trouble.send_modify(|trouble| {
            trouble.severed.insert(collection.to_owned());
        });
    }

    /// Makes the impostor answer every request with this HTTP status, until [`Impostor::mend`]. Watches that
    /// run already go on.
    pub fn refuse(&self, code: u16) {
        self.trouble.send_modify(|trouble| trouble.refused = Some(code));
    }

    /// Makes the impostor forward every request to the API server again.
    pub fn mend(&self) {
        self.trouble
            .send_modify(|trouble| *trouble = Trouble { closes: trouble.closes, ..Trouble::default() });
    }

    /// Sets whether each connection is closed after its first answer; a change cuts all connections. Clients
    /// keep idle connections, and their tasks, for up to three minutes: without idle ones the connections can
    /// be counted.
    pub fn close_after_answers(&self, closes: bool) {
        self.trouble.send_if_modified(|trouble| std::mem::replace(&mut trouble.closes, closes) != closes);
    }

    /// Makes the impostor answer the next `times` requests for Leases like this.
    pub fn lie(&self, lie: &Lie, times: usize) {
        self.lies.next.lock().extend(std::iter::repeat_n(lie.clone(), times));
        self.lies.left.send_modify(|left| *left += times);
    }

    /// Waits until all answers queued by [`Impostor::lie`] were given.
    pub async fn all_sent(&self) {
        let mut left = self.lies.left.subscribe();
        let sent = tokio::time::timeout(crate::wait::PATIENCE, left.wait_for(|left| *left == 0)).await;
        assert!(sent.is_ok(), "no request for the Lease arrived");
    }
}

async fn serve(listener: TcpListener, carrier: Carrier) {
    let mut connections = JoinSet::new();
    loop {
        // Neither can starve the other: both are rare.
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((connection, _)) = accepted else { continue };
                let carrier = carrier.clone();
                let mut trouble = carrier.trouble.clone();
                let closes = trouble.borrow().closes;
                let answer = service_fn(move |request| answer(request, carrier.clone()));
                let mut serving = hyper::server::conn::http1::Builder::new();
                let serving = serving.keep_alive(!closes).serve_connection(TokioIo::new(connection), answer);
                connections.spawn(async move {
                    // A client that closes its connection is not an error.
                    tokio::select! {
                        _ = serving => {}
                        _ = trouble.wait_for(|trouble| trouble.closes != closes) => {}
                    }
                });
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn answer(request: Request<Incoming>, carrier: Carrier) -> io::Result<Response<AnswerBody>> {
    let Carrier { client, lies, trouble } = carrier;
    let refused = trouble.borrow().refused.map(Lie::Refused);
    let lie = refused.or_else(|| lies.about(&request));
    let collection = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    if trouble.borrow().severed.contains(&collection) {
        return Err(io::ErrorKind::ConnectionReset.into());
    }
    let uri = request.uri().clone();
    let page = |code: u16, text: String| {
        let mut response = Response::new(Body::from(text.into_bytes()));
        *response.status_mut() = StatusCode::from_u16(code).unwrap_or_default();
        response
    };
    let response = match lie {
        None => carry(request, &client).await,
        Some(Lie::Silence) => std::future::pending().await,
        Some(Lie::Late(late)) => {
            let response = carry(request, &client).await;
            tokio::time::sleep(late).await;
            response
        }
        Some(Lie::Page(code)) => page(code, format!("<html>\n<h1>{code}</h1>\n</html>\n").repeat(100)),
        Some(Lie::Text(text)) => page(200, text.to_owned()),
        Some(Lie::Busy) => {
            let mut response = page(429, status_of(429).to_string());
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("3600"));
            response
        }
        Some(Lie::Refused(code)) => {
            let mut response = page(code, status_of(code).to_string());
            if code == 429 {
                response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            response
        }
        Some(Lie::Changed(pointer, value)) => {
            let stored = Request::get(uri).body(Vec::new());
            let stored = stored.unwrap_or_else(|error| panic!("a request as received: {error}"));
            let mut lease: Value = client.request(stored).await.unwrap_or_default();
            if let Some(field) = lease.pointer_mut(pointer) {
                *field = value;
            }
            page(200, lease.to_string())
        }
    };
    Ok(response.map(|body| until_severed(body, collection, trouble)))
}

/// Returns the body of an answer, which ends when its collection is severed; the client sees the end of its
/// watch.
fn until_severed(body: Body, collection: String, mut trouble: watch::Receiver<Trouble>) -> AnswerBody {
    // A dropped impostor severs no collection.
    let end = async move {
        if trouble.wait_for(|trouble| trouble.severed.contains(&collection)).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let frames = body.into_data_stream().take_until(Box::pin(end)).map_ok(Frame::data);
    UnsyncBoxBody::new(StreamBody::new(frames))
}

async fn client(identity: &Identity) -> Client {
    let client = async {
        let mut config = infer(Some(&identity.kubeconfig), None).await?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        anyhow::Ok(Client::try_from(config)?)
    };
    client.await.unwrap_or_else(|error| panic!("{identity:?} makes no client: {error:#}"))
}

fn status_of(code: u16) -> Value {
    let reason = if code == 429 { "TooManyRequests" } else { "InternalError" };
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "refused by the test", "reason": reason, "code": code})
}

/// Forwards a request to the API server with the credentials of `client`.
async fn carry(request: Request<Incoming>, client: &Client) -> Response<Body> {
    let (mut head, body) = request.into_parts();
    for own in [header::AUTHORIZATION, header::HOST, header::CONTENT_LENGTH] {
        head.headers.remove(own);
    }
    let carried = async {
        let body = body.collect().await.map_err(anyhow::Error::from)?.to_bytes();
        anyhow::Ok(client.send(Request::from_parts(head, Body::from(body.to_vec()))).await?)
    };
    match carried.await {
        Ok(mut response) => {
            response.headers_mut().remove(header::CONTENT_LENGTH);
            response
        }
        Err(error) => {
            let mut response = Response::new(Body::from(format!("{error:#}").into_bytes()));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    }
}

// === impl Lies ===

impl Lies {
    fn about(&self, request: &Request<Incoming>) -> Option<Lie> {
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        if watch || !request.uri().path().contains("/leases") {
            return None;
        }
        let lie = self.next.lock().pop_front()?;
        self.left.send_modify(|left| *left -= 1);
        Some(lie)
    }
}

fn kubeconfig_of(address: SocketAddr, namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "impostor",
        "clusters": [{"name": "impostor", "cluster": {"server": format!("http://{address}")}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "impostor",
            "context": {"cluster": "impostor", "user": "nobody", "namespace": namespace}}],
    })
}
