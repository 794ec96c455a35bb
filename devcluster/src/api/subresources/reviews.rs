//! Reviews of access and identity. Access reviews allow every action.

use serde_json::{Value, json};

use super::super::call::Call;
use super::super::object;
use super::super::options::WriteOptions;
use super::super::request::User;
use super::super::{Api, Response, Status};

// === impl Api ===

impl Api {
    /// Returns a review with its status set, without storing it.
    pub(in super::super) fn review(&self, call: &mut Call) -> Result<Response, Status> {
        call.options = WriteOptions::parse(&call.query, "CreateOptions", false)?;
        let review = call.decode()?;
        let mut review = call.served.own(None, review, &call.author(self.now()));
        let status = match call.served.kind.kind.as_str() {
            "TokenReview" => {
                let token = review.pointer("/spec/token").and_then(Value::as_str).unwrap_or_default();
                match self.authenticate(token) {
                    Some(user) => json!({"authenticated": true, "user": info(&user)}),
                    None => json!({"user": {}, "error": "[invalid bearer token]"}),
                }
            }
            "SelfSubjectReview" => {
                object::set_meta(&mut review, "creationTimestamp", object::time(self.now()));
                json!({"userInfo": info(&call.user)})
            }
            "SelfSubjectRulesReview" => json!({
                "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
                "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
                "incomplete": false,
            }),
            _ => json!({"allowed": true}),
        };
        if let Some(review) = review.as_object_mut() {
            review.insert("status".to_owned(), status);
        }
        Ok(Response::made(201, review))
    }
}

/// Returns the `UserInfo` of a user.
fn info(user: &User) -> Value {
    let mut info = json!({"username": user.name, "groups": user.groups});
    if !user.uid.is_empty() {
        object::set_text(&mut info, "uid", &user.uid);
    }
    info
}
