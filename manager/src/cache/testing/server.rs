//! An API server that answers what the test says, request by request.
//!
//! What a reflector asks about its rights on the side is answered by itself: that it has them, unless told otherwise.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header::ACCEPT;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, Collected, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

type Answer = Response<StreamBody<BoxStream<'static, Result<Frame<Bytes>, io::Error>>>>;

/// Requests in the order they came.
pub(in crate::cache) struct Server {
    calls: mpsc::UnboundedReceiver<Call>,
    rights: Arc<Mutex<Rights>>,
}

/// What is said about rights.
struct Rights {
    /// `None` refuses the question.
    allowed: Option<bool>,
    /// The questions.
    asked: Vec<String>,
}

/// One request that waits for its answer; dropping it resets the connection.
pub(in crate::cache) struct Call {
    pub(in crate::cache) uri: String,
    pub(in crate::cache) accept: String,
    reply: oneshot::Sender<Answer>,
}

/// An open body; dropping it is a clean end.
pub(in crate::cache) struct Stream(mpsc::UnboundedSender<io::Result<Bytes>>);

pub(in crate::cache) fn scripted() -> (Server, kube::Client) {
    let (calls, received) = mpsc::unbounded_channel();
    let rights = Arc::new(Mutex::new(Rights { allowed: Some(true), asked: Vec::new() }));
    let told = Arc::clone(&rights);
    let service = tower::service_fn(move |request: Request<Body>| {
        let (calls, rights) = (calls.clone(), Arc::clone(&told));
        async move {
            if request.method() == Method::POST {
                let question =
                    request.into_body().collect().await.map_or_else(|_| Bytes::new(), Collected::to_bytes);
                return Ok(rights.lock().review(&question));
            }
            let (reply, answer) = oneshot::channel();
            let accept = request.headers().get(ACCEPT).map(|accept| accept.to_str().unwrap().to_owned());
            let call = Call { uri: request.uri().to_string(), accept: accept.unwrap_or_default(), reply };
            if calls.send(call).is_err() {
                std::future::pending::<Infallible>().await;
            }
            answer.await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionReset))
        }
    });
    (Server { calls: received, rights }, kube::Client::new(service, "default"))
}

impl Server {
    /// Waits for the next request; under a paused clock this passes the time until it is sent.
    pub(in crate::cache) async fn next(&mut self) -> Call {
        self.calls.recv().await.unwrap()
    }

    /// Returns how many requests the test has not taken.
    pub(in crate::cache) fn waiting(&self) -> usize {
        self.calls.len()
    }

    /// Says from now on whether what is watched may be.
    pub(in crate::cache) fn allow(&self, allowed: bool) {
        self.rights.lock().allowed = Some(allowed);
    }

    /// Says from now on that nobody may ask that.
    pub(in crate::cache) fn refuse_reviews(&self) {
        self.rights.lock().allowed = None;
    }

    /// Returns the questions about rights since the last time.
    pub(in crate::cache) fn take_reviews(&self) -> Vec<String> {
        std::mem::take(&mut self.rights.lock().asked)
    }
}

impl Rights {
    fn review(&mut self, question: &[u8]) -> Answer {
        self.asked.push(String::from_utf8_lossy(question).into_owned());
        match self.allowed {
            Some(allowed) => whole(201, &[], &json!({"status": {"allowed": allowed}}).to_string()),
            None => whole(403, &[], &status(403, "Forbidden").to_string()),
        }
    }
}

impl Call {
    pub(in crate::cache) fn has(&self, part: &str) -> bool {
        self.uri.contains(part)
    }

    pub(in crate::cache) fn is_streamed_list(&self) -> bool {
        self.has("sendInitialEvents=true") && self.has("watch=true") && !self.has("resourceVersion=")
    }

    /// Whether it is a watch from this version on.
    pub(in crate::cache) fn is_watch_at(&self, version: u64) -> bool {
        self.uri.ends_with(&format!("&resourceVersion={version}")) && self.has("watch=true")
    }

    pub(in crate::cache) fn is_page(&self) -> bool {
        self.has("limit=") && !self.has("watch=true")
    }

    pub(in crate::cache) fn stream(self) -> Stream {
        let (sender, receiver) = mpsc::unbounded_channel::<io::Result<Bytes>>();
        let frames = stream::unfold(receiver, |mut receiver| async move {
            let bytes = receiver.recv().await?;
            Some((bytes.map(Frame::data), receiver))
        });
        drop(self.reply.send(Response::new(StreamBody::new(frames.boxed()))));
        Stream(sender)
    }

    pub(in crate::cache) fn answer(self, code: u16, headers: &[(&str, &str)], body: &str) {
        drop(self.reply.send(whole(code, headers, body)));
    }

    pub(in crate::cache) fn refuse(self, code: u16, reason: &str) {
        self.answer(code, &[], &status(code, reason).to_string());
    }

    pub(in crate::cache) fn page(self, version: u64, next: &str, items: &[Value]) {
        let metadata = json!({"resourceVersion": version.to_string(), "continue": next});
        self.answer(200, &[], &json!({"kind": "List", "metadata": metadata, "items": items}).to_string());
    }
}

impl Stream {
    pub(in crate::cache) fn send(&self, text: &str) {
        drop(self.0.send(Ok(Bytes::copy_from_slice(text.as_bytes()))));
    }

    pub(in crate::cache) fn event(&self, kind: &str, object: &Value) {
        self.send(&format!("{}\n", json!({"type": kind, "object": object})));
    }

    pub(in crate::cache) fn error(&self, code: u16, reason: &str) {
        self.event("ERROR", &status(code, reason));
    }

    pub(in crate::cache) fn bookmark(&self, version: u64) {
        self.event("BOOKMARK", &json!({"metadata": {"resourceVersion": version.to_string()}}));
    }

    pub(in crate::cache) fn end_of_initial_events(&self, version: u64) {
        let annotations = json!({"k8s.io/initial-events-end": "true"});
        let metadata = json!({"resourceVersion": version.to_string(), "annotations": annotations});
        self.event("BOOKMARK", &json!({"metadata": metadata}));
    }

    /// Whether the client has gone.
    pub(in crate::cache) fn is_closed(&self) -> bool {
        self.0.is_closed()
    }

    pub(in crate::cache) fn reset(self) {
        drop(self.0.send(Err(io::Error::from(io::ErrorKind::ConnectionReset))));
    }
}

fn whole(code: u16, headers: &[(&str, &str)], body: &str) -> Answer {
    let body = Bytes::copy_from_slice(body.as_bytes());
    let frames = stream::once(async move { Ok(Frame::data(body)) });
    let mut response = Response::builder().status(StatusCode::from_u16(code).unwrap());
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    response.body(StreamBody::new(frames.boxed())).unwrap()
}

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "code": code, "reason": reason, "message": format!("said {reason}")})
}
