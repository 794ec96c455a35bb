//! One server's side of a scenario: requests, answers and the events of watches.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::hooks::Hooks;
use super::script::{Alias, Step};

/// Longer than the real server waits for a resourceVersion of the future.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than a definition needs to be served.
const AWAIT_TIMEOUT: Duration = Duration::from_secs(10);
const AWAIT_PAUSE: Duration = Duration::from_millis(20);

/// The events of one watch so far.
type Events = Arc<Mutex<Vec<Value>>>;

/// The state of one run on one server.
pub(crate) struct Side {
    client: Client,
    namespace: String,
    answers: Map<String, Value>,
    labels: BTreeMap<String, Value>,
    watches: BTreeMap<String, Events>,
    readers: JoinSet<()>,
    hooks: Arc<Hooks>,
}

// === impl Side ===

impl Side {
    pub(crate) fn new(client: Client, namespace: &str, hooks: Arc<Hooks>) -> Self {
        let namespace = namespace.to_owned();
        let (answers, labels, watches, readers) = <(_, _, _, JoinSet<()>)>::default();
        Self { client, namespace, answers, labels, watches, readers, hooks }
    }

    /// Runs all steps.
    pub(crate) async fn run(&mut self, steps: &[Step]) {
        for (index, step) in steps.iter().enumerate() {
            let answer = self.step(step).await;
            if let Some(label) = &step.label {
                // A refused write leaves the last accepted answer.
                if answer["body"]["kind"] != "Status" || !self.labels.contains_key(label) {
                    self.labels.insert(label.clone(), answer["body"].clone());
                }
            }
            let text: String = step.to_string().chars().take(90).collect();
            self.answers.insert(format!("{:03} {text}", index + 1), answer);
        }
    }

    /// Returns the number of events of all watches.
    pub(crate) fn events(&self) -> usize {
        self.watches.values().map(|events| events.lock().len()).sum()
    }

    /// Returns everything that was answered.
    pub(crate) fn transcript(mut self) -> Value {
        self.readers.abort_all();
        for (name, events) in &self.watches {
            self.answers.insert(format!("watch {name}"), Value::Array(events.lock().clone()));
        }
        self.hooks.without_port(&Value::Object(self.answers))
    }

    async fn step(&mut self, step: &Step) -> Value {
        if step.verb == "SLEEP" {
            let pause = step.path.parse().expect("milliseconds");
            tokio::time::sleep(Duration::from_millis(pause)).await;
            return Value::Null;
        }
        if step.verb == "REVIEWS" {
            return self.hooks.take_reviews(&self.namespace);
        }
        if step.verb == "AWAIT" {
            return self.until(step).await;
        }
        let request = self.request(step);
        if step.verb == "WATCH" { self.watch(&step.watch, request).await } else { self.send(request).await }
    }

    fn request(&self, step: &Step) -> http::Request<Body> {
        let (mut path, alias) = Step::target(&self.filled(&step.path), &self.namespace);
        let (method, content_type) = match step.verb.as_str() {
            "JSON" => ("PATCH", "application/json-patch+json"),
            "MERGE" => ("PATCH", "application/merge-patch+json"),
            "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
            "APPLY" => ("PATCH", "application/apply-patch+yaml"),
            "WATCH" | "AWAIT" => ("GET", ""),
            verb => (verb, "application/json"),
        };
        if step.verb == "WATCH" {
            path.push_str(if path.contains('?') { "&watch=true" } else { "?watch=true" });
        }
        let body = match step.verb.as_str() {
            "AWAIT" => Vec::new(),
            _ => self.body(step, &path, alias),
        };
        let mut request = http::Request::builder().method(method).uri(uri(&path));
        let given = |name: &str| step.headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
        if !body.is_empty() && !given("content-type") {
            request = request.header(CONTENT_TYPE, content_type);
        }
        for (name, value) in &step.headers {
            request = request.header(name, self.filled(value));
        }
        if !given("user-agent") {
            request = request.header("user-agent", "differential/1");
        }
        request.body(Body::from(body)).expect("a request")
    }

    fn body(&self, step: &Step, path: &str, alias: Option<Alias>) -> Vec<u8> {
        let text = &step.body;
        if let Some(raw) = text.strip_prefix('\'') {
            return self.filled(raw.strip_suffix('\'').unwrap_or(raw)).into_bytes();
        }
        if text.is_empty() {
            return Vec::new();
        }
        // An apply must have the name of the object.
        let filled = self.filled(&step.path);
        let named = filled.split('?').next().and_then(|path| path.split('/').nth(1));
        let (base, overlay) = match text.split_once(" + ") {
            Some((base, overlay)) if base.starts_with("${") => (base, Some(overlay)),
            _ => (text.as_str(), None),
        };
        let mut body = yaml(&self.filled(base));
        if let Some(overlay) = overlay {
            json_patch::merge(&mut body, &yaml(&self.filled(overlay)));
        }
        if let (Some(alias), "POST" | "PUT" | "APPLY", Value::Object(fields)) =
            (alias, step.verb.as_str(), &mut body)
            && !fields.contains_key("kind")
            && !fields.contains_key("apiVersion")
        {
            let (api_version, kind) = match path.split('?').next().and_then(|path| path.rsplit('/').next()) {
                Some("scale") => ("autoscaling/v1", "Scale"),
                Some("token") => ("authentication.k8s.io/v1", "TokenRequest"),
                Some("eviction") => ("policy/v1", "Eviction"),
                Some("binding") => ("v1", "Binding"),
                _ => (alias.api_version, alias.kind),
            };
            fields.insert("apiVersion".to_owned(), api_version.into());
            fields.insert("kind".to_owned(), kind.into());
        }
        if let ("APPLY", Some(name), Some(fields)) = (step.verb.as_str(), named, body.as_object_mut())
            && alias.is_some()
        {
            let metadata = fields.entry("metadata").or_insert_with(|| json!({}));
            if let Some(metadata) = metadata.as_object_mut() {
                metadata.entry("name").or_insert_with(|| name.into());
            }
        }
        body.to_string().into_bytes()
    }

    /// Replaces the variables; a label or field that does not exist becomes empty.
    fn filled(&self, text: &str) -> String {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let (variable, after) = after.split_once('}').expect("a variable ends");
            filled.push_str(before);
            let mut parts = variable.split('.');
            let label = parts.next().unwrap_or_default();
            if label == "ns" {
                filled.push_str(&self.namespace);
            } else if let Some(value) = self.hooks.variable(label, &self.namespace) {
                filled.push_str(&value);
            } else {
                let pointer = parts.fold(String::new(), |pointer, part| pointer + "/" + part);
                match self.labels.get(label).and_then(|answer| answer.pointer(&pointer)) {
                    Some(Value::String(value)) => filled.push_str(value),
                    Some(value) => filled.push_str(&value.to_string()),
                    None => {}
                }
            }
            rest = after;
        }
        filled + rest
    }

    async fn send(&self, request: http::Request<Body>) -> Value {
        match timeout(REQUEST_TIMEOUT, answer(&self.client, request)).await {
            Ok(answer) => answer,
            Err(_) => json!({"status": "no answer"}),
        }
    }

    async fn until(&self, step: &Step) -> Value {
        let awaited = timeout(AWAIT_TIMEOUT, async {
            loop {
                let answer = self.send(self.request(step)).await;
                let conditions = answer.pointer("/body/status/conditions").and_then(Value::as_array);
                let holds = step.body.is_empty()
                    || conditions
                        .into_iter()
                        .flatten()
                        .any(|it| it["type"] == step.body && it["status"] == "True");
                if answer["status"] == 200 && holds {
                    return answer;
                }
                tokio::time::sleep(AWAIT_PAUSE).await;
            }
        });
        awaited.await.unwrap_or_else(|_| json!({"status": "awaited in vain"}))
    }

    async fn watch(&mut self, name: &str, request: http::Request<Body>) -> Value {
        let sent = timeout(REQUEST_TIMEOUT, self.client.send(request)).await;
        let Ok(Ok(response)) = sent else { return json!({"status": "no answer"}) };
        let (parts, mut body) = response.into_parts();
        if parts.status != 200 {
            let bytes = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            return described(&parts, &bytes);
        }
        let events = Events::default();
        self.watches.insert(name.to_owned(), Arc::clone(&events));
        self.readers.spawn(async move {
            let mut buffer = Vec::new();
            while let Some(Ok(frame)) = body.frame().await {
                buffer.extend_from_slice(frame.data_ref().map_or(&[][..], |data| data));
                while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = buffer.drain(..=end).collect();
                    events.lock().push(read(&line));
                }
            }
            events.lock().push("END".into());
        });
        described(&parts, &[])
    }
}

/// Posts JSON and returns the status and the body.
pub(crate) async fn post(client: &Client, path: &str, body: &Value) -> (u16, Value) {
    let request = http::Request::post(path).header(CONTENT_TYPE, "application/json");
    let request = request.body(Body::from(body.to_string().into_bytes())).expect("a request");
    let answer = answer(client, request).await;
    let status = answer["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    (status.unwrap_or_default(), answer["body"].clone())
}

async fn answer(client: &Client, request: http::Request<Body>) -> Value {
    let response = match client.send(request).await {
        Ok(response) => response,
        Err(error) => return json!({"status": format!("{error}: {error:?}")}),
    };
    let (parts, body) = response.into_parts();
    match body.collect().await {
        Ok(body) => described(&parts, &body.to_bytes()),
        Err(error) => json!({"status": parts.status.as_u16(), "broken": error.to_string()}),
    }
}

fn described(parts: &http::response::Parts, body: &[u8]) -> Value {
    let header = |name: &str| -> Vec<String> {
        let values = parts.headers.get_all(name).iter();
        values.map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()).collect()
    };
    json!({
        "status": parts.status.as_u16(),
        "type": header("content-type"),
        "warnings": header("warning"),
        "retry": header("retry-after"),
        "body": read(body),
    })
}

/// JSON, or text.
fn read(bytes: &[u8]) -> Value {
    serde_json::from_slice(bytes).unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into())
}

fn yaml(text: &str) -> Value {
    if text.is_empty() {
        return Value::Null;
    }
    if let Ok(value) = serde_json::from_str(text) {
        return value;
    }
    // As in YAML 1.2, and unlike 1.1, `y` and `n` are texts.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options)
        .unwrap_or_else(|error| panic!("{text} is no YAML: {error}"))
}

/// Escapes the bytes that no URI may have.
fn uri(path: &str) -> String {
    let mut escaped = String::new();
    for byte in path.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>\\^`{|}#".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _infallible = write!(escaped, "%{byte:02X}");
        }
    }
    escaped
}
