//! Failed responses: a `Status` with the reasons, details and texts of kube-apiserver.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::kinds::{FieldError, Kind, quoted};

/// A failed request.
#[derive(Clone, Debug, PartialEq)]
pub struct Status(Box<Failure>);

/// The content of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failure {
    /// The HTTP status code.
    pub code: u16,
    /// The reason, such as `NotFound`; empty if there is none. Webhooks may send any.
    pub reason: Cow<'static, str>,
    /// The human-readable message.
    pub message: String,
    /// The object and the single errors; `None` if the failure has none.
    pub details: Option<Details>,
    /// A token that continues an expired list at the newest state; empty if there is none.
    pub continue_token: String,
    /// Texts of `Warning` headers, without duplicates.
    pub warnings: Vec<String>,
}

/// The object of an error, and its single errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Details {
    /// The name of the object; empty if it has none.
    pub name: String,
    /// The group of the object; empty for the core group.
    pub group: String,
    /// The plural name of the resource, or the kind for validation errors.
    pub kind: String,
    /// The uid of the object; empty if unknown.
    pub uid: String,
    /// The single errors, possibly none.
    pub causes: Vec<Cause>,
    /// Seconds to wait before a retry; 0 if the response advises no retry.
    pub retry_after_seconds: u32,
}

/// One of several errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cause {
    /// The reason, such as `FieldValueRequired`.
    pub reason: String,
    /// The human-readable message.
    pub message: String,
    /// The path of the field, such as `metadata.name`.
    pub field: String,
}

// === impl Status ===

impl Status {
    /// Returns a failure without details.
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self(Box::new(Failure { code, reason: reason.into(), message: message.into(), ..Failure::default() }))
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

    /// Sets the texts of `Warning` headers.
    #[must_use]
    pub fn with_warnings(mut self, warnings: Vec<String>) -> Self {
        self.0.warnings = warnings;
        self
    }

    /// Puts a text in front of the message.
    #[must_use]
    pub fn prefixed(mut self, prefix: &str) -> Self {
        self.0.message.insert_str(0, prefix);
        self
    }

    /// Returns a 400: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// Returns a 403: the request is refused for the reason `why`. An empty `name` stands for the collection.
    pub fn forbidden(kind: &Kind, name: &str, why: impl fmt::Display) -> Self {
        let resource = kind.resource();
        let message = match name {
            "" => format!("{resource} is forbidden: {why}"),
            name => format!("{resource} {} is forbidden: {why}", quoted(name)),
        };
        Self::new(403, "Forbidden", message).with_details(Details::of(kind, name))
    }

    /// Returns a 404: the object does not exist.
    pub fn not_found(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {} not found", kind.resource(), quoted(name));
        Self::new(404, "NotFound", message).with_details(Details::of(kind, name))
    }

    /// Returns a 405: the resource does not support the verb `action`.
    pub fn method_not_allowed(kind: &Kind, action: &str) -> Self {
        let message = format!("{action} is not supported on resources of kind \"{}\"", kind.resource());
        Self::new(405, "MethodNotAllowed", message).with_details(Details::of(kind, ""))
    }

    /// Returns a 500: the server fails for the reason `why`.
    pub fn internal(why: impl Into<String>) -> Self {
        let cause = Cause { message: why.into(), ..Cause::default() };
        let message = format!("Internal error occurred: {}", cause.message);
        let details = Details { causes: vec![cause], ..Details::default() };
        Self::new(500, "InternalError", message).with_details(details)
    }

    /// Returns a 409: an object of this name exists.
    pub fn already_exists(kind: &Kind, name: &str) -> Self {
        let message = format!("{} {} already exists", kind.resource(), quoted(name));
        Self::new(409, "AlreadyExists", message).with_details(Details::of(kind, name))
    }

    /// Returns a 409: the object is not in the state that the request expects.
    pub fn conflict(kind: &Kind, name: &str, why: impl fmt::Display) -> Self {
        let message = format!("Operation cannot be fulfilled on {} {}: {why}", kind.resource(), quoted(name));
        Self::new(409, "Conflict", message).with_details(Details::of(kind, name))
    }

    /// Returns a 409: the object has changed since the resourceVersion of the request.
    pub fn modified(kind: &Kind, name: &str) -> Self {
        const WHY: &str =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, WHY)
    }

    /// Returns a 410: the history does not reach back to the requested revision.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// Returns a 422: fields of an object are invalid.
    pub fn invalid(kind: &Kind, name: &str, errors: &[FieldError]) -> Self {
        Self::invalid_kind(&kind.group, &kind.kind, name, errors)
    }

    /// Returns a 422: fields of a value of the given kind are invalid. `kind` may be a plural name, which
    /// kube-apiserver uses in some errors.
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
        let message = format!("{qualified} {} is invalid{list}", quoted(name));
        Self::new(422, "Invalid", message).with_details(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes: causes.collect(),
            ..Details::default()
        })
    }

    /// Returns a 500 with only a message, the form of kube-apiserver for unclassified errors.
    pub fn unclassified(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    /// Returns a 504: the store has not reached the requested revision.
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

    /// Returns the HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// Returns the reason, such as `NotFound`; empty if there is none.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// Returns the human-readable message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the value of the header `Retry-After` in seconds; `None` if the response advises no retry.
    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.0.details.as_ref().map(|details| details.retry_after_seconds).filter(|seconds| *seconds > 0)
    }

    /// Returns the `Status` object of the response.
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
        set(&mut status, "reason", &failure.reason);
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
    /// Returns details with the name and the resource of an object.
    pub fn of(kind: &Kind, name: &str) -> Self {
        Self {
            name: name.to_owned(),
            group: kind.group.clone(),
            kind: kind.plural.clone(),
            ..Self::default()
        }
    }

    /// Returns the field `details` of a `Status` object.
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

/// Sets a field unless the text is empty.
fn set(map: &mut Map<String, Value>, key: &str, text: &str) {
    if !text.is_empty() {
        map.insert(key.to_owned(), json!(text));
    }
}
