//! An API server that answers what the test says, request by request.

use std::convert::Infallible;
use std::io;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header::ACCEPT;
use http::{Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::StreamBody;
use kube::client::Body;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

type Answer = Response<StreamBody<BoxStream<'static, Result<Frame<Bytes>, io::Error>>>>;

/// Requests in the order they came.
pub(in crate::cache) struct Server(mpsc::UnboundedReceiver<Call>);

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
    let service = tower::service_fn(move |request: Request<Body>| {
        let calls = calls.clone();
        async move {
            let (reply, answer) = oneshot::channel();
            let accept = request.headers().get(ACCEPT).map(|accept| accept.to_str().unwrap().to_owned());
            let call = Call { uri: request.uri().to_string(), accept: accept.unwrap_or_default(), reply };
            if calls.send(call).is_err() {
                std::future::pending::<Infallible>().await;
            }
            answer.await.map_err(|_| io::Error::from(io::ErrorKind::ConnectionReset))
        }
    });
    (Server(received), kube::Client::new(service, "default"))
}

impl Server {
    /// Waits for the next request; under a paused clock this passes the time until it is sent.
    pub(in crate::cache) async fn next(&mut self) -> Call {
        self.0.recv().await.unwrap()
    }

    /// Returns how many requests the test has not taken.
    pub(in crate::cache) fn waiting(&self) -> usize {
        self.0.len()
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
        let body = Bytes::copy_from_slice(body.as_bytes());
        let frames = stream::once(async move { Ok(Frame::data(body)) });
        let mut response = Response::builder().status(StatusCode::from_u16(code).unwrap());
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        drop(self.reply.send(response.body(StreamBody::new(frames.boxed())).unwrap()));
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

fn status(code: u16, reason: &str) -> Value {
    json!({"kind": "Status", "code": code, "reason": reason, "message": format!("said {reason}")})
}
