//! An API server in memory that keeps one Lease and can misbehave.

use super::*;

pub(super) type Reply = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Handle to the server; clones share it.
#[derive(Clone, Default)]
pub(super) struct Server(pub(super) Arc<Mutex<Inner>>);

#[derive(Default)]
pub(super) struct Inner {
    pub(super) lease: Option<Value>,
    version: u64,
    watchers: Vec<mpsc::UnboundedSender<Bytes>>,
    log: Vec<String>,
    /// Whether requests are accepted and never answered.
    pub(super) silent: bool,
    /// Verbs that are answered 403.
    pub(super) forbidden: Vec<&'static str>,
    /// Wrong answers to the next requests other than watches, each made from the stored Lease. A request
    /// answered wrongly is not stored.
    pub(super) wrong: VecDeque<fn(Value) -> Reply>,
    /// Makes the wrong body of every watch, which ends after it.
    pub(super) watches: Option<fn() -> Bytes>,
}

impl Server {
    pub(super) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let server = server.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
                let silent = server.0.lock().silent;
                if silent {
                    std::future::pending::<()>().await;
                }
                Ok::<_, Infallible>(server.answer(&parts, &body))
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, parts: &http::request::Parts, body: &[u8]) -> Reply {
        let mut inner = self.0.lock();
        let watch = parts.uri.query().is_some_and(|query| query.contains("watch=true"));
        let verb = match parts.method {
            Method::GET if watch => "watch",
            Method::GET => "get",
            Method::POST => "create",
            Method::PUT => "update",
            _ => "unexpected",
        };
        inner.log.push(verb.to_owned());
        if inner.forbidden.contains(&verb) {
            return status(403, "Forbidden");
        }
        if verb != "watch"
            && let Some(wrong) = inner.wrong.pop_front()
        {
            return wrong(inner.lease.clone().unwrap_or_default());
        }
        let lease: Value = serde_json::from_slice(body).unwrap_or_default();
        match (verb, inner.lease.is_some()) {
            ("watch", _) => {
                assert!(
                    parts.uri.query().unwrap().contains("fieldSelector=metadata.name%3Dmainstay"),
                    "{}",
                    parts.uri
                );
                inner.watch()
            }
            ("get" | "update", false) => status(404, "NotFound"),
            ("get", true) => reply(200, inner.lease.as_ref().unwrap()),
            ("create", true) => status(409, "AlreadyExists"),
            ("create", false) => {
                inner.store("ADDED", lease);
                reply(201, inner.lease.as_ref().unwrap())
            }
            ("update", true) => {
                let stored = &inner.lease.as_ref().unwrap()["metadata"]["resourceVersion"];
                if lease["metadata"]["resourceVersion"] != *stored {
                    return status(409, "Conflict");
                }
                inner.store("MODIFIED", lease);
                reply(200, inner.lease.as_ref().unwrap())
            }
            (verb, _) => panic!("{verb} {}", parts.uri),
        }
    }

    /// Edits the stored Lease by hand.
    pub(super) fn edit(&self, change: impl FnOnce(&mut Value)) {
        let mut inner = self.0.lock();
        let mut lease = inner.lease.clone().expect("a stored lease");
        change(&mut lease);
        inner.store("MODIFIED", lease);
    }

    pub(super) fn delete(&self) {
        let mut inner = self.0.lock();
        let lease = inner.lease.clone().expect("a stored lease");
        inner.store("DELETED", lease);
        inner.lease = None;
    }

    pub(super) fn spec(&self) -> Value {
        self.0.lock().lease.as_ref().expect("a stored lease")["spec"].clone()
    }

    pub(super) fn log(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().log)
    }
}

impl Inner {
    pub(super) fn store(&mut self, event: &str, mut lease: Value) {
        self.version += 1;
        lease["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let line = format!("{}\n", json!({"type": event, "object": lease}));
        self.watchers.retain(|watcher| watcher.send(Bytes::from(line.clone())).is_ok());
        self.lease = Some(lease);
    }

    fn watch(&mut self) -> Reply {
        if let Some(wrong) = self.watches {
            return Response::new(Full::new(wrong()).boxed_unsync());
        }
        let (sender, receiver) = mpsc::unbounded_channel();
        if let Some(lease) = &self.lease {
            let line = format!("{}\n", json!({"type": "ADDED", "object": lease}));
            sender.send(Bytes::from(line)).unwrap();
        }
        self.watchers.push(sender);
        let lines = stream::unfold(receiver, |mut receiver| async move {
            receiver.recv().await.map(|line| (Ok(Frame::data(line)), receiver))
        });
        Response::new(StreamBody::new(lines).boxed_unsync())
    }
}

pub(super) fn reply(code: u16, body: &Value) -> Reply {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

pub(super) fn status(code: u16, reason: &str) -> Reply {
    let body = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code,
    });
    reply(code, &body)
}
