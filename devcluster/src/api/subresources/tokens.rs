//! The subresource `token` of ServiceAccounts, and authentication by its tokens.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::super::call::Call;
use super::super::object;
use super::super::options::WriteOptions;
use super::super::rbac;
use super::super::request::User;
use super::super::served::Served;
use super::super::{Api, Details, Response, Status};
use crate::kinds::{FieldError, builtin, quoted};
use crate::store::{GroupResource, Key};

/// The requests for tokens, which no endpoint of their own serves.
static REQUESTS: LazyLock<Arc<Served>> =
    LazyLock::new(|| Arc::new(Served::new(Arc::new(builtin::token_kind()), None, Vec::new())));
/// The issuer and the only audience of the API server, as of the real programs.
pub(super) const AUDIENCE: &str = "https://kubernetes.default.svc";
/// The lifetime of a token without `expirationSeconds`, in seconds.
const DEFAULT_SECONDS: i64 = 3600;
/// The minimum of `expirationSeconds`, in seconds (inclusive).
const MIN_SECONDS: i64 = 600;
/// The maximum of `expirationSeconds`, in seconds (inclusive).
const MAX_SECONDS: i64 = 1 << 32;
/// Time for which the token of an object that is being deleted stays valid.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);

/// The issued tokens. A token is valid only if it is in this map, so its signature can be random.
#[derive(Debug, Default)]
pub(in super::super) struct Tokens(Mutex<HashMap<String, Issued>>);

/// The user and the limits of a token.
#[derive(Clone, Debug)]
struct Issued {
    user: User,
    end: Timestamp,
    audiences: Vec<String>,
    account: Bound,
    /// The Pod, Secret or Node whose deletion ends the token.
    bound: Option<Bound>,
}

/// An object that a token depends on.
#[derive(Clone, Debug)]
struct Bound {
    resource: GroupResource,
    key: Key,
    uid: String,
}

// === impl Api ===

impl Api {
    /// Returns the user of a token for the API server; `None` if this server did not issue it, it has
    /// expired, or an object that it depends on is gone.
    pub fn authenticate(&self, token: &str) -> Option<User> {
        self.verify(token, &[AUDIENCE.to_owned()]).ok().map(|(user, _)| user)
    }

    /// Returns the user of a token, and which of the audiences it is for.
    ///
    /// # Errors
    /// The reason in the text of a token review.
    pub(super) fn verify(&self, token: &str, audiences: &[String]) -> Result<(User, Vec<String>), String> {
        let now = self.now();
        let issued = {
            let mut tokens = self.shared.tokens.0.lock();
            let issued = tokens.get(token).cloned();
            tokens.retain(|_, token| token.end > now);
            issued.ok_or_else(|| "invalid bearer token".to_owned())?
        };
        let refused = |why: String| Err(format!("[invalid bearer token, {why}]"));
        let both: Vec<_> = issued.audiences.iter().filter(|own| audiences.contains(own)).cloned().collect();
        if both.is_empty() {
            let (own, wanted) = (rbac::listed(&issued.audiences), rbac::listed(audiences));
            return refused(format!("token audiences {own} is invalid for the target audiences {wanted}"));
        }
        if issued.end <= now {
            return refused("service account token has expired".to_owned());
        }
        let (namespace, name) = (issued.account.key.namespace(), issued.account.key.name());
        match self.shared.store.get(&issued.account.resource, &issued.account.key) {
            None => return refused(format!("serviceaccounts {} not found", quoted(name))),
            Some(account) => {
                let (uid, claimed) = (object::meta(account.value(), "uid"), &issued.account.uid);
                if uid != claimed {
                    return refused(format!("service account UID ({uid}) does not match claim ({claimed})"));
                }
                if is_gone(account.value(), now) {
                    return refused(format!("service account {namespace}/{name} has been deleted"));
                }
            }
        }
        if let Some(bound) = &issued.bound {
            match self.shared.store.get(&bound.resource, &bound.key) {
                Some(object) if object::meta(object.value(), "uid") != bound.uid => {
                    let (uid, claimed) = (object::meta(object.value(), "uid"), &bound.uid);
                    let kind = bound.resource.resource.trim_end_matches('s');
                    let claim = format!("service account {kind} ref claim ({claimed})");
                    return refused(format!("{kind} UID ({uid}) does not match {claim}"));
                }
                Some(object) if !is_gone(object.value(), now) => {}
                _ => return refused("service account token has been invalidated".to_owned()),
            }
        }
        Ok((issued.user, both))
    }

    /// Issues a token and returns the `TokenRequest` with it.
    pub(super) fn create_token(&self, call: &mut Call) -> Result<Response, Status> {
        call.options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let accounts = std::mem::replace(&mut call.served, Arc::clone(&REQUESTS));
        let request = call.decode();
        call.served = accounts;
        let mut request = request?;
        call.place(&mut request)?;
        let (namespace, name) = (call.target.namespace.clone(), call.target.name.clone());
        let sent = object::meta(&request, "name");
        if !sent.is_empty() && sent != name {
            let detail = "must match the service account name if specified";
            return Err(invalid(&name, FieldError::invalid("metadata.name", &sent.into(), detail)));
        }
        let now = self.now();
        if let Some(spec) = request.get_mut("spec").and_then(Value::as_object_mut) {
            let seconds = spec.entry("expirationSeconds").or_insert(Value::Null);
            if seconds.is_null() {
                *seconds = DEFAULT_SECONDS.into();
            }
        }
        let mut request = REQUESTS.own(None, request, &call.author(now));
        let account = self.shared.store.get(&call.served.resource, &call.key());
        let account = account.ok_or_else(|| Status::not_found(&call.served.kind, &name))?;
        let uid = object::meta(account.value(), "uid").to_owned();
        let sent = object::meta(&request, "uid");
        if !sent.is_empty() && sent != uid {
            let of = format!(
                "the UID in the token request ({sent}) does not match the UID of the service account"
            );
            return Err(conflict("TokenRequest.authentication.k8s.io", &name, &format!("{of} ({uid})")));
        }
        let seconds =
            request.pointer("/spec/expirationSeconds").and_then(Value::as_i64).unwrap_or(DEFAULT_SECONDS);
        let limit = match seconds {
            ..MIN_SECONDS => Some("may not specify a duration less than 10 minutes"),
            MIN_SECONDS..=MAX_SECONDS => None,
            _ => Some("may not specify a duration larger than 2^32 seconds"),
        };
        if let Some(detail) = limit {
            let error = FieldError::invalid("spec.expirationSeconds", &seconds.into(), detail);
            return Err(invalid("", error));
        }
        let audiences = request.pointer("/spec/audiences").and_then(Value::as_array);
        let audiences: Vec<_> = audiences.into_iter().flatten().filter_map(Value::as_str).collect();
        let audiences = if audiences.is_empty() { vec![AUDIENCE] } else { audiences };
        let audiences: Vec<_> = audiences.into_iter().map(str::to_owned).collect();
        let reference = request.pointer("/spec/boundObjectRef").filter(|reference| !reference.is_null());
        let bound = reference.map(|reference| self.bound(reference, &namespace, &name)).transpose()?;

        let end = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(now);
        let id = self.random(object::uid);
        let mut extra =
            vec![("authentication.kubernetes.io/credential-id".to_owned(), vec![format!("JTI={id}")])];
        let mut claims = json!({
            "aud": audiences,
            "exp": end.as_second(),
            "iat": now.as_second(),
            "nbf": now.as_second(),
            "iss": AUDIENCE,
            "jti": id,
            "sub": format!("system:serviceaccount:{namespace}:{name}"),
            "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
        });
        for (kind, of, uid) in bound.iter().flat_map(|bound| self.claimed(bound)) {
            claims["kubernetes.io"][kind] = json!({"name": of, "uid": uid});
            if kind != "secret" {
                extra.push((format!("authentication.kubernetes.io/{kind}-name"), vec![of]));
                extra.push((format!("authentication.kubernetes.io/{kind}-uid"), vec![uid]));
            }
        }
        extra.sort();
        let user = User {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            uid: uid.clone(),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
            extra,
        };
        let account = Bound { resource: call.served.resource.clone(), key: call.key(), uid: uid.clone() };
        let issued = Issued { user, end, audiences: audiences.clone(), account, bound };
        let token = self.random(|random| sign(&claims, random));
        self.shared.tokens.0.lock().insert(token.clone(), issued);
        let created = object::time(now);
        let metadata =
            [("name", name), ("namespace", namespace), ("uid", uid), ("creationTimestamp", created)];
        for (field, value) in metadata {
            object::set_meta(&mut request, field, value);
        }
        request["spec"]["audiences"] = json!(audiences);
        request["status"] = json!({"token": token, "expirationTimestamp": object::time(end)});
        Ok(Response::made(201, request))
    }

    /// Returns the object that a token of a ServiceAccount shall depend on.
    fn bound(&self, reference: &Value, namespace: &str, account: &str) -> Result<Bound, Status> {
        let text = |field| object::text(reference, field);
        let (version, kind, name) = (text("apiVersion"), text("kind"), text("name"));
        let (plural, namespace) = match (version.contains('/'), kind) {
            (false, "Pod") => ("pods", namespace),
            (false, "Secret") => ("secrets", namespace),
            (false, "Node") => ("nodes", ""),
            _ => {
                let (group, version) = version.split_once('/').unwrap_or(("", version));
                let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
                return Err(Status::bad_request(why));
            }
        };
        let (resource, key) = (GroupResource::new("", plural), Key::new(namespace, name));
        let Some(object) = self.shared.store.get(&resource, &key) else {
            let details = Details { name: name.to_owned(), kind: plural.to_owned(), ..Details::default() };
            let message = format!("{plural} {} not found", quoted(name));
            return Err(Status::new(404, "NotFound", message).with_details(details));
        };
        let own =
            object.value().pointer("/spec/serviceAccountName").and_then(Value::as_str).unwrap_or_default();
        if plural == "pods" && own != account {
            let account = quoted(account);
            let why = "to pod running with different serviceaccount name.";
            return Err(Status::bad_request(format!("cannot bind token for serviceaccount {account} {why}")));
        }
        let uid = object::meta(object.value(), "uid").to_owned();
        let sent = text("uid");
        if !sent.is_empty() && sent != uid {
            let why = "The object might have been deleted and then recreated";
            let of =
                format!("the UID in the bound object reference ({sent}) does not match the UID in record");
            return Err(conflict(kind, name, &format!("{of}. {why}")));
        }
        Ok(Bound { resource, key, uid })
    }

    /// Returns the objects that a token names: kind, name and uid. A Pod brings its Node.
    fn claimed(&self, bound: &Bound) -> Vec<(&'static str, String, String)> {
        let name = bound.key.name().to_owned();
        match &*bound.resource.resource {
            "pods" => {
                let mut all = vec![("pod", name, bound.uid.clone())];
                let pod = self.shared.store.get(&bound.resource, &bound.key);
                let node =
                    pod.and_then(|pod| Some(pod.value().pointer("/spec/nodeName")?.as_str()?.to_owned()));
                if let Some(node) = node.filter(|node| !node.is_empty()) {
                    let found = self.shared.store.get(&GroupResource::new("", "nodes"), &Key::new("", &node));
                    let uid =
                        found.map(|node| object::meta(node.value(), "uid").to_owned()).unwrap_or_default();
                    all.push(("node", node, uid));
                }
                all
            }
            "nodes" => vec![("node", name, bound.uid.clone())],
            _ => vec![("secret", name, bound.uid.clone())],
        }
    }
}

fn invalid(name: &str, error: FieldError) -> Status {
    Status::invalid_kind("authentication.k8s.io", "TokenRequest", name, &[error])
}

fn conflict(resource: &str, name: &str, why: &str) -> Status {
    let (kind, group) = resource.split_once('.').unwrap_or((resource, ""));
    let details = Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_owned(),
        ..Details::default()
    };
    let message = format!("Operation cannot be fulfilled on {resource} {}: {why}", quoted(name));
    Status::new(409, "Conflict", message).with_details(details)
}

/// Returns whether an object has been deleted for longer than its tokens stay valid.
fn is_gone(object: &Value, now: Timestamp) -> bool {
    let deleted = object::meta(object, "deletionTimestamp").parse::<Timestamp>();
    deleted.is_ok_and(|deleted| now.duration_since(deleted) > LEEWAY)
}

/// Returns a token in the form of a JSON Web Token, with a random signature.
fn sign(claims: &Value, random: &mut fastrand::Rng) -> String {
    let part = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let header = part(json!({"alg": "RS256", "kid": "devcluster"}).to_string().as_bytes());
    let signature: Vec<u8> = (0..32).map(|_| random.u8(..)).collect();
    [header, part(claims.to_string().as_bytes()), part(&signature)].join(".")
}
