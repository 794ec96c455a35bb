//! A webhook server on loopback, which both servers call. Each has one of its own.
//!
//! The path says what the server answers: `/NAMESPACE/BEHAVIOUR`, with the behaviours of [`behave`]. It keeps
//! the reviews that it gets; the step `REVIEWS` returns those of its scenario.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::PrivatePkcs8KeyDer;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// The names in the certificate.
const NAMES: [&str; 3] = ["127.0.0.1", "localhost", "hook.default.svc"];

/// A running webhook server.
#[derive(Debug)]
pub(crate) struct Hooks {
    port: u16,
    /// The authority that signed its certificate, as `caBundle`.
    authority: String,
    /// Another authority, which did not sign it.
    other: String,
    /// The reviews so far, with the paths to which they were sent.
    reviews: Arc<Mutex<Vec<(String, Value)>>>,
    _server: JoinSet<()>,
}

/// An authority and the certificate that it signed for [`NAMES`].
pub(crate) struct Identity {
    /// The authority as `caBundle`.
    authority: String,
    /// An authority that has signed nothing.
    other: String,
    acceptor: TlsAcceptor,
}

// === impl Identity ===

impl Identity {
    pub(crate) fn generate() -> Self {
        let authority = |name: &str| {
            let mut params = CertificateParams::new(Vec::new()).expect("parameters");
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let key = KeyPair::generate().expect("a key");
            let certificate = params.self_signed(&key).expect("an authority");
            (STANDARD.encode(certificate.pem()), Issuer::new(params, key))
        };
        let ((authority, issuer), (other, _)) = (authority("webhooks"), authority("others"));
        let params = CertificateParams::new(NAMES.map(str::to_owned).to_vec()).expect("parameters");
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &issuer).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![certificate.der().clone()], key.into())
            });
        let config = Arc::new(config.expect("a configuration of TLS"));
        Self { authority, other, acceptor: TlsAcceptor::from(config) }
    }
}

// === impl Hooks ===

impl Hooks {
    pub(crate) async fn start(identity: &Identity) -> Arc<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let reviews = Arc::<Mutex<Vec<(String, Value)>>>::default();
        let (acceptor, received) = (identity.acceptor.clone(), Arc::clone(&reviews));
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, received) = (acceptor.clone(), Arc::clone(&received));
                connections.spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(|request| answer(request, &received));
                    let connection = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service);
                    drop(connection.await);
                });
            }
        });
        let (authority, other) = (identity.authority.clone(), identity.other.clone());
        Arc::new(Self { port, authority, other, reviews, _server: server })
    }

    /// Returns the value of a variable of scenarios.
    pub(crate) fn variable(&self, name: &str, namespace: &str) -> Option<String> {
        Some(match name {
            // The URL of this scenario's webhooks, and the rest of their client's configuration.
            "hook" => format!("https://127.0.0.1:{}/{namespace}", self.port),
            "hookport" => self.port.to_string(),
            "ca" => self.authority.clone(),
            "otherca" => self.other.clone(),
            // The selector of this scenario's namespace.
            "here" => format!("{{matchLabels: {{kubernetes.io/metadata.name: {namespace}}}}}"),
            // The fields and rules of most webhooks.
            "base" => format!(
                "sideEffects: None, admissionReviewVersions: [v1], namespaceSelector: {{matchLabels: \
                 {{kubernetes.io/metadata.name: {namespace}}}}}"
            ),
            "configmaps" => {
                "[{operations: ['*'], apiGroups: [''], apiVersions: [v1], resources: [configmaps]}]"
                    .to_owned()
            }
            _ => return None,
        })
    }

    /// Returns a transcript with a fixed number in place of the port.
    pub(crate) fn without_port(&self, transcript: &Value) -> Value {
        let port = regex::Regex::new(&format!(r"\b{}\b", self.port)).expect("a pattern");
        let text = transcript.to_string();
        serde_json::from_str(&port.replace_all(&text, "4443")).expect("JSON")
    }

    /// Returns the reviews that a scenario caused so far, and forgets them.
    pub(crate) fn take_reviews(&self, namespace: &str) -> Value {
        let prefix = format!("/{namespace}/");
        let mut taken = Vec::new();
        self.reviews.lock().retain(|(path, review)| {
            if let Some(path) = path.strip_prefix(&prefix) {
                taken.push(json!({"path": path, "review": review}));
            }
            !path.starts_with(&prefix)
        });
        Value::Array(taken)
    }
}

async fn answer(
    request: http::Request<Incoming>,
    received: &Mutex<Vec<(String, Value)>>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let mut review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let path = head.uri.path_and_query().map_or(String::new(), ToString::to_string);
    let words = head.uri.path().split('/').skip(2);
    let decode = |word: &str| percent_decode_str(&word.replace('+', " ")).decode_utf8_lossy().into_owned();
    let words: Vec<String> = words.map(decode).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let (code, content_type, body) = behave(&words, &review).await;
    anonymise(&mut review);
    received.lock().push((path, review));
    let response = http::Response::builder().status(code).header("content-type", content_type);
    Ok(response.body(Full::new(body.into())).expect("a response"))
}

/// Answers a conversion review: `spec.a` of `v1` and `spec.b` of all other versions are the same field. Its
/// value says how a conversion goes wrong, unless the path names it.
fn convert(review: &Value, always: Option<&str>) -> Value {
    let request = &review["request"];
    let mut answer = json!({
        "apiVersion": review["apiVersion"],
        "kind": review["kind"],
        "response": {"uid": request["uid"], "result": {"status": "Success"}},
    });
    let mut converted = Vec::new();
    let mut wrong = always.map(str::to_owned);
    for object in request["objects"].as_array().into_iter().flatten() {
        let mut object = object.clone();
        let wanted = &request["desiredAPIVersion"];
        let (from, to) = if wanted.as_str().is_some_and(|wanted| wanted.ends_with("/v1")) {
            ("b", "a")
        } else {
            ("a", "b")
        };
        object["apiVersion"] = wanted.clone();
        if let Some(spec) = object["spec"].as_object_mut()
            && let Some(value) = spec.remove(from)
        {
            // Only conversions to the stored version go wrong, so that all others stay readable.
            wrong = wrong.or(value.as_str().filter(|_| to == "a").map(str::to_owned));
            spec.insert(to.to_owned(), value);
        }
        let metadata = &mut object["metadata"];
        match wrong.as_deref() {
            Some("name") => metadata["name"] = "other".into(),
            Some("namespace") => metadata["namespace"] = "other".into(),
            Some("uid") => metadata["uid"] = "other".into(),
            Some("labels") => metadata["labels"] = json!({"from": "hook"}),
            Some("annotations") => metadata["annotations"] = json!({"from": "hook"}),
            Some("no-labels") => drop(metadata.as_object_mut().map(|metadata| metadata.remove("labels"))),
            Some("bad-labels") => metadata["labels"] = json!({"a b": "c d"}),
            Some("bad-annotations") => metadata["annotations"] = json!({"a b": "c"}),
            Some("odd-labels") => metadata["labels"] = json!({"a": 5}),
            Some("list-labels") => metadata["labels"] = json!([]),
            Some("finalizers") => metadata["finalizers"] = json!(["example.com/hook"]),
            Some("no-metadata") => drop(object.as_object_mut().map(|object| object.remove("metadata"))),
            Some("odd-metadata") => *metadata = "metadata".into(),
            Some("version") => object["apiVersion"] = "example.com/v9".into(),
            Some("kind") => object["kind"] = "Other".into(),
            Some("unknown") => object["spec"]["bogus"] = 1.into(),
            Some("wrong-type") => object["spec"]["a"] = 1.into(),
            _ => {}
        }
        converted.push(object);
    }
    match wrong.as_deref() {
        Some("fewer") => drop(converted.pop()),
        Some("more") => converted.push(json!({})),
        _ => {}
    }
    answer["response"]["convertedObjects"] = converted.into();
    match wrong.as_deref() {
        Some("fail") => {
            answer["response"]["result"] = json!({"status": "Failure", "message": "cannot convert"});
        }
        Some("silent") => answer["response"]["result"] = json!({"status": "Failure"}),
        Some("no-result") => drop(answer["response"].as_object_mut().map(|of| of.remove("result"))),
        Some("other-uid") => answer["response"]["uid"] = "other".into(),
        Some("no-response") => answer["response"] = Value::Null,
        Some("other-kind") => answer["kind"] = "AdmissionReview".into(),
        _ => {}
    }
    answer
}

/// Replaces the administrator, who has different names on the two servers, and a generated name.
fn anonymise(review: &mut Value) {
    if review["request"]["object"]["metadata"]["generateName"].is_string() {
        review["request"]["name"] = "<generated>".into();
    }
    if let Some(user) = review.pointer_mut("/request/userInfo")
        && user["groups"]
            .as_array()
            .is_some_and(|groups| groups.iter().any(|group| group == "system:masters"))
    {
        *user = "<administrator>".into();
    }
}

/// Returns the code, media type and body of the answer to a review.
async fn behave(words: &[&str], review: &Value) -> (u16, &'static str, String) {
    let request = &review["request"];
    let number = |text: &str| text.parse::<u16>().expect("a number");
    let reviewed = |response: Value| {
        let mut answer = json!({
            "apiVersion": review["apiVersion"],
            "kind": review["kind"],
            "response": {"uid": request["uid"]},
        });
        json_patch::merge(&mut answer["response"], &response);
        (200, "application/json", answer.to_string())
    };
    let changed = |mut answer: Value, with: &dyn Fn(&mut Value)| {
        with(&mut answer);
        (200, "application/json", answer.to_string())
    };
    let allowed = json!({"allowed": true});
    let whole = || {
        json!({
            "apiVersion": review["apiVersion"],
            "kind": review["kind"],
            "response": {"uid": request["uid"], "allowed": true},
        })
    };
    let patched = |patch: &str| {
        reviewed(json!({"allowed": true, "patchType": "JSONPatch", "patch": STANDARD.encode(patch)}))
    };
    match words {
        ["allow"] => reviewed(allowed),
        ["deny"] => reviewed(json!({"allowed": false})),
        ["deny", message] => reviewed(json!({"allowed": false, "status": {"message": message}})),
        ["deny", code, reason, message] => reviewed(json!({"allowed": false, "status": {
            "code": number(code), "reason": reason, "message": message,
            "details": {"name": "n", "kind": "k", "causes": [{"reason": "r", "message": "m", "field": "f"}]},
        }})),
        ["reason", reason] => reviewed(json!({"allowed": false, "status": {"reason": reason, "code": 200}})),
        ["warn", text] => reviewed(json!({"allowed": true, "warnings": [text, "a second one"]})),
        ["warn-deny", text] => reviewed(json!({"allowed": false, "warnings": [text]})),
        ["label", key, value] => {
            let labels = &request["object"]["metadata"]["labels"];
            let patch = if labels.is_null() {
                json!([{"op": "add", "path": "/metadata/labels", "value": {*key: value}}])
            } else {
                json!([{"op": "add", "path": format!("/metadata/labels/{key}"), "value": value}])
            };
            patched(&patch.to_string())
        }
        // Counts its calls in the object.
        ["count"] => {
            let data = &request["object"]["data"]["count"];
            let count = data.as_str().map_or(1, |count| count.parse::<u32>().expect("a count") + 1);
            patched(&json!([{"op": "add", "path": "/data/count", "value": count.to_string()}]).to_string())
        }
        ["set", field, value] => {
            let path = format!("/{}", field.replace('.', "/"));
            let value: Value = serde_json::from_str(value).unwrap_or_else(|_| (*value).into());
            patched(&json!([{"op": "add", "path": path, "value": value}]).to_string())
        }
        ["remove", field] => {
            let path = format!("/{}", field.replace('.', "/"));
            patched(&json!([{"op": "remove", "path": path}]).to_string())
        }
        ["patch-empty"] => patched("[]"),
        ["patch-garbage"] => patched("garbage"),
        ["patch-object"] => patched("{}"),
        ["patch-untyped"] => reviewed(json!({"allowed": true, "patch": STANDARD.encode("[]")})),
        ["patch-type"] => reviewed(json!({"allowed": true, "patchType": "JSONPatch"})),
        ["patch-merge"] => {
            let patch = STANDARD.encode(r#"[{"op":"remove","path":"/data"}]"#);
            reviewed(json!({"allowed": true, "patchType": "MergePatch", "patch": patch}))
        }
        ["slow", milliseconds] => {
            tokio::time::sleep(Duration::from_millis(number(milliseconds).into())).await;
            reviewed(allowed)
        }
        ["garbage"] => (200, "application/json", "garbage".to_owned()),
        ["array"] => (200, "application/json", "[]".to_owned()),
        ["other-kind"] => (200, "application/json", r#"{"kind":"ConfigMap","apiVersion":"v1"}"#.to_owned()),
        ["empty"] => (200, "application/json", String::new()),
        ["code", code] => (number(code), "text/plain", " went wrong\n".to_owned()),
        ["code-json", code] => (number(code), "application/json", r#"{"message":"wrong"}"#.to_owned()),
        ["status", code] => {
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "a status", "code": 422,
            });
            (number(code), "application/json", status.to_string())
        }
        ["wrong-uid"] => changed(whole(), &|answer| answer["response"]["uid"] = "other".into()),
        ["no-kind"] => changed(whole(), &|answer| {
            let answer = answer.as_object_mut().expect("an object");
            answer.remove("kind");
            answer.remove("apiVersion");
        }),
        ["v1beta1"] => changed(whole(), &|answer| answer["apiVersion"] = "admission.k8s.io/v1beta1".into()),
        ["no-response"] => changed(whole(), &|answer| answer["response"] = Value::Null),
        ["convert"] => (200, "application/json", convert(review, None).to_string()),
        ["convert", wrong] => (200, "application/json", convert(review, Some(wrong)).to_string()),
        words => (404, "text/plain", format!("no behaviour {words:?}")),
    }
}
