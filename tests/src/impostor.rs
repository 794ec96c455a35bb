//! A server in front of the API server that answers some requests for Leases in its place: late, wrongly or not at all;
//! or keeps from being watched what it is told to.
//!
//! Everything else is carried in the name of one ServiceAccount, whoever asks: the audit log tells who that is.

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
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::cluster::{TestCluster, client_of};
use crate::manifests::Identity;

/// Speaks HTTP without TLS. Dropping it cuts every connection.
#[derive(Debug)]
pub struct Impostor {
    identity: Identity,
    lies: Arc<Lies>,
    /// Collections, such as `configmaps`, of which nothing passes.
    severed: watch::Sender<BTreeSet<String>>,
    /// Accepts, and owns the connections.
    _serving: JoinSet<()>,
}

/// What a request for a Lease gets instead of its answer. Watches are spared.
#[derive(Clone, Debug)]
pub enum Lie {
    /// A page for people, with this status.
    Page(u16),
    /// These bytes, with status 200.
    Text(&'static str),
    /// The Lease as it is stored, with another value at this JSON pointer; nothing is written.
    Changed(&'static str, Value),
    /// 429, with an hour as `Retry-After`.
    Busy,
    /// The true answer, so much later.
    Late(Duration),
    /// None, for ever.
    Silence,
}

type AnswerBody = UnsyncBoxBody<Bytes, kube::Error>;

/// The way of one connection.
#[derive(Clone)]
struct Carrier {
    client: Client,
    lies: Arc<Lies>,
    severed: watch::Receiver<BTreeSet<String>>,
}

#[derive(Debug, Default)]
struct Lies {
    next: Mutex<VecDeque<Lie>>,
    left: watch::Sender<usize>,
}

// === impl Impostor ===

impl Impostor {
    /// Stands before the server of this cluster, for who has this identity.
    pub async fn before(cluster: &TestCluster, identity: &Identity) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await;
        let listener = listener.unwrap_or_else(|error| panic!("a port of loopback: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("a listener has one: {error}"));
        let lies = Arc::new(Lies::default());
        let mut serving = JoinSet::new();
        let client = client_of(&identity.kubeconfig).await;
        let (severed, from) = watch::channel(BTreeSet::new());
        serving.spawn(serve(listener, Carrier { client, lies: Arc::clone(&lies), severed: from }));
        let kubeconfig = cluster.scratch("impostor.kubeconfig");
        let text = kubeconfig_of(address, cluster.namespace()).to_string();
        std::fs::write(&kubeconfig, text).unwrap_or_else(|error| panic!("{}: {error}", kubeconfig.display()));
        let identity = Identity { kubeconfig, ..identity.clone() };
        Self { identity, lies, severed, _serving: serving }
    }

    /// Returns the same identity, behind it.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Ends the watches of a collection, such as `configmaps`, and breaks the connection of whoever asks for it, until
    /// [`Impostor::mend`].
    pub fn sever(&self, collection: &str) {
        self.severed.send_if_modified(|severed| severed.insert(collection.to_owned()));
    }

    /// Lets everything pass again.
    pub fn mend(&self) {
        self.severed.send_modify(BTreeSet::clear);
    }

    /// Answers so many of the next requests for Leases like this.
    pub fn lie(&self, lie: &Lie, times: usize) {
        self.lies.next.lock().extend(std::iter::repeat_n(lie.clone(), times));
        self.lies.left.send_modify(|left| *left += times);
    }

    /// Waits until everybody was lied to as often as asked for.
    pub async fn all_told(&self) {
        let mut left = self.lies.left.subscribe();
        let told = tokio::time::timeout(crate::wait::PATIENCE, left.wait_for(|left| *left == 0)).await;
        assert!(told.is_ok(), "nobody asked for the Lease");
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
                let answer = service_fn(move |request| answer(request, carrier.clone()));
                let serving = hyper::server::conn::http1::Builder::new();
                let serving = serving.serve_connection(TokioIo::new(connection), answer);
                // A client that goes away is none of our business.
                connections.spawn(async move { drop(serving.await) });
            }
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn answer(request: Request<Incoming>, carrier: Carrier) -> io::Result<Response<AnswerBody>> {
    let Carrier { client, lies, severed } = carrier;
    let lie = lies.about(&request);
    let collection = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    if severed.borrow().contains(&collection) {
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
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "too many requests", "reason": "TooManyRequests", "code": 429});
            let mut response = page(429, status.to_string());
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("3600"));
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
    Ok(response.map(|body| until_severed(body, collection, severed)))
}

/// Ends a body, which the client takes for the end of its watch, when its collection is severed.
fn until_severed(
    body: Body,
    collection: String,
    mut severed: watch::Receiver<BTreeSet<String>>,
) -> AnswerBody {
    // An impostor that is gone severs nothing more.
    let end = async move {
        if severed.wait_for(|severed| severed.contains(&collection)).await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let frames = body.into_data_stream().take_until(Box::pin(end)).map_ok(Frame::data);
    UnsyncBoxBody::new(StreamBody::new(frames))
}

/// Has the API server answer; this end of the connection has its own credentials.
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
        "contexts": [{"name": "impostor", "context": {"cluster": "impostor", "user": "nobody", "namespace": namespace}}],
    })
}
