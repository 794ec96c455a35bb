//! Errors as the server answers them: a `Status` with the reasons, details and texts of kube-apiserver.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::kinds::{FieldError, Kind};

/// A failed request.
#[derive(Clone, Debug, PartialEq)]
pub struct Status(Box<Failure>);

/// The content of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failure {
    /// The code of the HTTP answer.
    pub code: u16,
    /// The reason, such as `NotFound`; empty if there is none.
    pub reason: &'static str,
    /// The text for people.
    pub message: String,
    /// What the error is about.
    pub details: Option<Details>,
    /// A token that continues an expired list at the newest state; empty if there is none.
    pub continue_token: String,
}

/// What an error is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The name of the object, possibly empty.
    pub name: String,
    /// The group of the object, possibly empty.
    pub group: String,
    /// The plural name of the resource, or the kind where a schema is violated.
    pub kind: String,
    /// The uid of the object, possibly empty.
    pub uid: String,
    /// The single errors.
    pub causes: Vec<Cause>,
    /// Seconds to wait before a retry; 0 if no retry is advised.
    pub retry_after_seconds: u32,
}

/// One of several errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// The reason, such as `FieldValueRequired`.
    pub reason: String,
    /// The text for people.
    pub message: String,
    /// The path of the field, such as `metadata.name`.
    pub field: String,
}

// === impl Status ===

impl Status {
    /// A failure without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self(Box::new(Failure { code, reason, message: message.into(), ..Failure::default() }))
    }

    /// Adds details.
    #[must_use]
    pub fn with_details(mut self, details: Details) -> Self {
        self.0.details = Some(details);
        self
    }

    /// Adds a token that continues an expired list at the newest state.
    #[must_use]
    pub fn with_continue(mut self, token: String) -> Self {
        self.0.continue_token = token;
        self
    }

    /// Puts a text in front of the message.
    #[must_use]
    pub fn prefixed(mut self, prefix: &str) -> Self {
        self.0.message.insert_str(0, prefix);
        self
    }

    /// 400: the request itself is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403 about an object.
    pub fn forbidden(kind: &Kind, name: &str, why: impl fmt::Display) -> Self {
        let resource = kind.resource();
        let message = match name {
            "" => format!("{resource} is forbidden: {why}"),
            name => format!("{resource} \"{name}\" is forbidden: {why}"),
        };
        Self::new(403, "Forbidden", message).with_details(Details::of(kind, name))
    }

    /// 404: the object does not exist.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" not found", kind.resource());
        Self::new(404, "NotFound", message).with_details(Details::of(kind, name))
    }

    /// 405: the resource does not have the verb.
    pub fn method_not_allowed(kind: &Kind, action: &str) -> Self {
        let message = format!("{action} is not supported on resources of kind \"{}\"", kind.resource());
        Self::new(405, "MethodNotAllowed", message).with_details(Details::of(kind, ""))
    }

    /// 409: an object of this name exists.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", kind.resource());
        Self::new(409, "AlreadyExists", message).with_details(Details::of(kind, name))
    }

    /// 409: the object is in another state than the request expects.
    pub fn conflict(kind: &Kind, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.resource());
        Self::new(409, "Conflict", message).with_details(Details::of(kind, name))
    }

    /// 409: the object changed since the request's resourceVersion.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        const WHY: &str =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, WHY)
    }

    /// 410: the history does not reach back to a revision.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 422: fields of an object are invalid.
    pub fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_kind(&kind.group, &kind.kind, name, errors)
    }

    /// 422: fields of a value of the given kind are invalid. `kind` may be a plural name, as the server uses it
    /// in some places.
    pub fn invalid_kind(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Self {
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let mut texts: Vec<String> = Vec::new();
        for text in errors.iter().map(ToString::to_string) {
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        let list = match texts.as_slice() {
            [] => String::new(),
            [text] => format!(": {text}"),
            texts => format!(": [{}]", texts.join(", ")),
        };
        let causes = errors.iter().map(|error| Cause {
            reason: error.reason.cause().to_owned(),
            message: error.message.clone(),
            field: error.path.clone(),
        });
        Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid{list}")).with_details(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes: causes.collect(),
            ..Details::default()
        })
    }

    /// 500 with a text and nothing else, as the server answers to errors that it does not classify.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// 504: a revision that the store has not reached.
    pub fn future(requested: u64, current: u64) -> Self {
        let message = format!("Timeout: Too large resource version: {requested}, current: {current}");
        let cause = Cause {
            reason: "ResourceVersionTooLarge".to_owned(),
            message: "Too large resource version".to_owned(),
            ..Cause::default()
        };
        Self::new(504, "Timeout", message).with_details(Details {
            causes: vec![cause],
            retry_after_seconds: 1,
            ..Details::default()
        })
    }

    /// Returns the content.
    pub fn failure(&self) -> &Failure {
        &self.0
    }

    /// Returns the code of the HTTP answer.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// Returns the reason, such as `NotFound`.
    pub fn reason(&self) -> &'static str {
        self.0.reason
    }

    /// Returns the text for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the value of the header `Retry-After`, if the answer has one.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.0.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// Returns the `Status` object of the answer.
    pub fn to_value(&self) -> Value {
        let failure = &*self.0;
        let mut metadata = Map::new();
        set(&mut metadata, "continue", &failure.continue_token);
        let mut status = Map::new();
        status.insert("kind".to_owned(), json!("Status"));
        status.insert("apiVersion".to_owned(), json!("v1"));
        status.insert("metadata".to_owned(), Value::Object(metadata));
        status.insert("status".to_owned(), json!("Failure"));
        set(&mut status, "message", &failure.message);
        set(&mut status, "reason", failure.reason);
        if let Some(details) = &failure.details {
            status.insert("details".to_owned(), details.to_value());
        }
        status.insert("code".to_owned(), json!(failure.code));
        Value::Object(status)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Status {}

// === impl Details ===

impl Details {
    /// Names an object by its resource.
    pub fn of(kind: &Kind, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.plural.clone(),
            ..Self::default()
        }
    }

    /// Returns the `details` of a `Status` object.
    pub fn to_value(&self) -> Value {
        let mut details = Map::new();
        set(&mut details, "name", &self.name);
        set(&mut details, "group", &self.group);
        set(&mut details, "kind", &self.kind);
        set(&mut details, "uid", &self.uid);
        if !self.causes.is_empty() {
            let causes = self.causes.iter().map(|cause| {
                let mut map = Map::new();
                set(&mut map, "reason", &cause.reason);
                set(&mut map, "message", &cause.message);
                set(&mut map, "field", &cause.field);
                Value::Object(map)
            });
            details.insert("causes".to_owned(), causes.collect());
        }
        if self.retry_after_seconds > 0 {
            details.insert("retryAfterSeconds".to_owned(), json!(self.retry_after_seconds));
        }
        Value::Object(details)
    }
}

fn set(map: &mut Map<String, Value>, key: &str, text: &str) {
    if !text.is_empty() {
        map.insert(key.to_owned(), json!(text));
    }
}
