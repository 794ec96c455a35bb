//! Reviews of access and identity, which are never stored.

mod access;

use serde_json::{Map, Value, json};

use super::super::call::Call;
use super::super::object;
use super::super::options::WriteOptions;
use super::super::rbac;
use super::super::request::User;
use super::super::{Api, Response, Status};
use super::tokens::AUDIENCE;

// === impl Api ===

impl Api {
    /// Returns a review with its status set, without storing it.
    pub(in super::super) fn review(&self, call: &mut Call) -> Result<Response, Status> {
        call.options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let mut review = call.decode()?;
        call.place(&mut review)?;
        let review = call.served.own(None, review, &call.author(self.now()));
        let review = match call.served.kind.kind.as_str() {
            "TokenReview" => self.review_token(review)?,
            "SelfSubjectReview" => {
                let mut fresh = call.served.empty().clone();
                object::set_text(&mut fresh, "apiVersion", call.served.api_version());
                object::set_text(&mut fresh, "kind", "SelfSubjectReview");
                object::set_meta(&mut fresh, "creationTimestamp", object::time(self.now()));
                with_status(fresh, json!({"userInfo": info(&call.user)}))
            }
            "SelfSubjectRulesReview" => self.review_rules(call, &review)?,
            kind => self.review_access(kind, call, review)?,
        };
        Ok(Response::made(201, review))
    }

    fn review_token(&self, review: Value) -> Result<Value, Status> {
        let spec = review.get("spec").unwrap_or(&Value::Null);
        let token = object::text(spec, "token");
        if token.is_empty() {
            return Err(Status::bad_request("token is required for TokenReview in authentication"));
        }
        let audiences = spec.get("audiences").and_then(Value::as_array).into_iter().flatten();
        let audiences: Vec<_> = audiences.filter_map(Value::as_str).map(str::to_owned).collect();
        let audiences = if audiences.is_empty() { vec![AUDIENCE.to_owned()] } else { audiences };
        let status = match self.verify(token, &audiences) {
            Ok((user, audiences)) => {
                json!({"authenticated": true, "user": info(&user), "audiences": audiences})
            }
            Err(error) => json!({"user": {}, "error": error}),
        };
        Ok(with_status(review, status))
    }

    fn review_rules(&self, call: &Call, review: &Value) -> Result<Value, Status> {
        let namespace = review.pointer("/spec/namespace").and_then(Value::as_str).unwrap_or_default();
        if namespace.is_empty() {
            return Err(Status::bad_request("no namespace on request"));
        }
        let (rules, errors) = self.rules_of(&call.user, namespace);
        let resources: Vec<_> = rules.iter().filter_map(rbac::Rule::about_resources).collect();
        let urls: Vec<_> = rules.iter().filter_map(rbac::Rule::about_urls).collect();
        let mut status = json!({"resourceRules": resources, "nonResourceRules": urls, "incomplete": false});
        if !errors.is_empty() {
            status["evaluationError"] = rbac::joined(&errors).into();
        }
        let (kind, api_version) = ("SelfSubjectRulesReview", call.served.api_version());
        let fresh = json!({"kind": kind, "apiVersion": api_version, "metadata": {}, "spec": {}});
        Ok(with_status(fresh, status))
    }
}

fn with_status(mut review: Value, status: Value) -> Value {
    if let Some(review) = review.as_object_mut() {
        review.insert("status".to_owned(), status);
    }
    review
}

/// Returns the `UserInfo` of a user.
fn info(user: &User) -> Value {
    let mut info = json!({"username": user.name});
    if !user.groups.is_empty() {
        info["groups"] = json!(user.groups);
    }
    if !user.uid.is_empty() {
        object::set_text(&mut info, "uid", &user.uid);
    }
    if !user.extra.is_empty() {
        let extra: Map<_, _> = user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        info["extra"] = Value::Object(extra);
    }
    info
}
