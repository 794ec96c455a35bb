//! The subresource `token` of ServiceAccounts, and authentication by its tokens.

use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::super::call::Call;
use super::super::object;
use super::super::options::WriteOptions;
use super::super::request::User;
use super::super::{Api, Response, Status};
use crate::kinds::FieldError;

/// The issuer and the default audience of tokens.
const AUDIENCE: &str = "https://kubernetes.default.svc.cluster.local";
/// The lifetime of a token without `expirationSeconds`, in seconds.
const DEFAULT_SECONDS: i64 = 3600;
/// The minimum of `expirationSeconds`, in seconds (inclusive).
const MIN_SECONDS: i64 = 600;

/// The issued tokens, each with its user and its expiration time. A token is valid only if it is in this map,
/// so its signature can be random.
#[derive(Debug, Default)]
pub(in super::super) struct Tokens(Mutex<HashMap<String, (User, Timestamp)>>);

// === impl Api ===

impl Api {
    /// Returns the user of a token; `None` if this server did not issue it, or it has expired.
    pub fn authenticate(&self, token: &str) -> Option<User> {
        let now = self.now();
        let mut tokens = self.shared.tokens.0.lock();
        tokens.retain(|_, (_, end)| *end > now);
        tokens.get(token).map(|(user, _)| user.clone())
    }

    /// Issues a token and returns the `TokenRequest` with it.
    pub(super) fn create_token(&self, call: &mut Call) -> Result<Response, Status> {
        call.options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let mut request = call.body.take().unwrap_or_default().value;
        let (namespace, name) = (call.target.namespace.clone(), call.target.name.clone());
        let invalid = |name: &str, error: FieldError| {
            Status::invalid_kind("authentication.k8s.io", "TokenRequest", name, &[error])
        };
        for (field, wanted) in [("name", &name), ("namespace", &namespace)] {
            let sent = object::meta(&request, field);
            if !sent.is_empty() && sent != wanted {
                let detail = format!("must match the service account {field} if specified");
                let error = FieldError::invalid(format!("metadata.{field}"), &sent.into(), &detail);
                return Err(invalid(&name, error));
            }
        }
        let account = self.shared.store.get(&call.served.resource, &call.key());
        let account = account.ok_or_else(|| Status::not_found(&call.served.kind, &name))?;
        let uid = object::meta(account.value(), "uid").to_owned();
        let seconds =
            request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT_SECONDS);
        if seconds < MIN_SECONDS {
            let detail = "may not specify a duration less than 10 minutes";
            let error = FieldError::invalid("spec.expirationSeconds", &seconds.into(), detail);
            return Err(invalid("", error));
        }
        let audiences =
            request.pointer("/spec/audiences").filter(|list| list.as_array().is_some_and(|l| !l.is_empty()));
        let audiences = audiences.cloned().unwrap_or_else(|| json!([AUDIENCE]));
        let now = self.now();
        let end = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        let user = User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            uid: uid.clone(),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
            extra: Vec::new(),
        };
        let claims = json!({
            "aud": audiences,
            "exp": end.as_second(),
            "iat": now.as_second(),
            "nbf": now.as_second(),
            "iss": AUDIENCE,
            "jti": self.random(object::uid),
            "sub": user.name,
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
        });
        let token = self.random(|random| sign(&claims, random));
        self.shared.tokens.0.lock().insert(token.clone(), (user, end));
        object::set_text(&mut request, "apiVersion", "authentication.k8s.io/v1");
        object::set_text(&mut request, "kind", "TokenRequest");
        for (field, value) in
            [("name", name), ("namespace", namespace), ("creationTimestamp", object::time(now))]
        {
            object::set_meta(&mut request, field, value);
        }
        if let Some(fields) = request.as_object_mut() {
            let mut spec = fields.remove("spec").unwrap_or_else(|| json!({}));
            if let Some(spec) = spec.as_object_mut() {
                spec.insert("audiences".to_owned(), audiences);
                spec.insert("expirationSeconds".to_owned(), seconds.into());
            }
            fields.insert("spec".to_owned(), spec);
            let status = json!({"token": token, "expirationTimestamp": object::time(end)});
            fields.insert("status".to_owned(), status);
        }
        Ok(Response::made(201, request))
    }
}

/// Returns a token in the form of a JSON Web Token, with a random signature.
fn sign(claims: &Value, random: &mut fastrand::Rng) -> String {
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let header = part(json!({"alg": "RS256", "kid": "devcluster"}).to_string().as_bytes());
    let signature: Vec<u8> = (0..32).map(|_| random.u8(..)).collect();
    [header, part(claims.to_string().as_bytes()), part(&signature)].join(".")
}
