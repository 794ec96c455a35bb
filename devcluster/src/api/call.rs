//! A request in progress, and the dispatch to its verb.

use std::sync::Arc;

use serde_json::Value;

use super::admission::{Attributes, Operation};
use super::conversion::Conversions;
use super::object;
use super::options::{FieldValidation, WriteOptions};
use super::request::{Body, Query, Request, Target, User, Verb};
use super::served::{Author, Served};
use super::{Api, Response, Status};
use crate::kinds::{Kind, Scale, builtin, quoted};
use crate::store::Key;

/// A request in progress, with its resource.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) served: Arc<Served>,
    pub(super) verb: Verb,
    pub(super) target: Target,
    pub(super) query: Query,
    pub(super) user: User,
    /// The parsed options of a write; the default until its verb has parsed them.
    pub(super) options: WriteOptions,
    /// The warnings so far, possibly with duplicates.
    pub(super) warnings: Vec<String>,
    /// The decoded body; `None` if the request has none, or once it was taken.
    pub(super) body: Option<Body>,
    /// The body of a deletion; `None` without one.
    pub(super) delete_options: Option<Value>,
    /// The paths of the subresource `scale`; `None` for other endpoints.
    pub(super) scale: Option<Scale>,
    /// The Scale that a write to that subresource wants; null before it is known.
    pub(super) wanted_scale: Value,
    /// The conversions that the owners of fields need.
    pub(super) conversions: Conversions,
    /// Whether a write skips validation: the server's own objects have an address on loopback.
    pub(super) unchecked: bool,
    user_agent: String,
}

// === impl Api ===

impl Api {
    /// Executes the verb of a call.
    pub(super) async fn dispatch(&self, call: &mut Call) -> Result<Response, Status> {
        let kind = Arc::clone(&call.served.kind);
        if let Some(custom) = &call.served.custom
            && let Some(warning) = &custom.version.deprecation
        {
            call.warnings.push(warning.clone());
        }
        if (kind.group.as_str(), kind.kind.as_str()) == ("", "Endpoints") {
            let warning = "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice";
            call.warnings.push(warning.to_owned());
        }
        if !call.target.subresource.is_empty() {
            return self.subresource(call).await;
        }
        if !kind.has_verb(call.verb.as_str()) {
            return Err(Status::method_not_allowed(&kind, call.verb.as_str()));
        }
        match call.verb {
            // A kind without the verb `get` is a review: its objects are never stored.
            Verb::Create if !kind.has_verb("get") => self.review(call),
            Verb::Create => self.create(call).await,
            Verb::Get => self.get(call).await,
            Verb::List => self.list(call).await,
            Verb::Watch => self.watch(call).await,
            Verb::Update => self.update(call).await,
            Verb::Patch(patch) => self.patch(call, patch).await,
            Verb::Delete => self.delete(call).await,
            Verb::DeleteCollection => self.delete_collection(call).await,
        }
    }
}

// === impl Call ===

impl Call {
    pub(super) fn new(served: Arc<Served>, request: Request) -> Self {
        let Request { verb, mut target, query, body, user, user_agent } = request;
        if !served.kind.namespaced {
            target.namespace.clear();
        }
        let options = WriteOptions::default();
        let (warnings, unchecked) = (Vec::new(), false);
        Self {
            served,
            verb,
            target,
            query,
            user,
            options,
            warnings,
            body,
            delete_options: None,
            scale: None,
            wanted_scale: Value::Null,
            conversions: Conversions::default(),
            unchecked,
            user_agent,
        }
    }

    /// Returns the warnings without duplicates.
    pub(super) fn into_warnings(self) -> Vec<String> {
        let mut warnings: Vec<String> = Vec::new();
        for warning in self.warnings {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
        warnings
    }

    pub(super) fn key(&self) -> Key {
        Key::new(&self.target.namespace, &self.target.name)
    }

    pub(super) fn attributes<'a>(&'a self, operation: Operation, old: Option<&'a Value>) -> Attributes<'a> {
        Attributes {
            operation,
            kind: &self.served.kind,
            target: &self.target,
            old,
            user: &self.user,
            dry_run: self.options.dry_run,
        }
    }

    /// Returns the field manager: the option `fieldManager`, or the User-Agent up to its first `/`.
    pub(super) fn manager(&self) -> &str {
        match self.options.field_manager.as_str() {
            "" => self.user_agent.split('/').next().unwrap_or_default(),
            manager => manager,
        }
    }

    pub(super) fn author(&self, now: jiff::Timestamp) -> Author<'_> {
        let (manager, subresource) = (self.manager(), self.target.subresource.as_str());
        Author { manager, subresource, now, conversions: Some(&self.conversions) }
    }

    /// Takes the body, checks its type, removes unknown fields and sets defaults.
    pub(super) fn decode(&mut self) -> Result<Value, Status> {
        let kind = &self.served.kind;
        let Body { mut value, strict_errors } = self.body.take().unwrap_or_default();
        let unrecognized = |why: &str, value: &Value| {
            let text = value.to_string();
            let short: String = text.chars().take(30).collect();
            let dots = if text.chars().count() > 30 { " ..." } else { "" };
            let name = &kind.kind;
            let message = format!(
                "the object provided is unrecognized (must be of type {name}): {why} ({short}{dots})"
            );
            Status::bad_request(message)
        };
        if !value.is_object() {
            return Err(unrecognized("couldn't get version/kind; json parse error", &value));
        }
        let custom = self.served.custom.is_some();
        for (field, default) in [("kind", kind.kind.as_str()), ("apiVersion", self.served.api_version())] {
            if object::text(&value, field).is_empty() {
                if custom {
                    let name = if field == "kind" { "Kind" } else { "apiVersion" };
                    return Err(unrecognized(&format!("Object '{name}' is missing in '{value}'"), &value));
                }
                object::set_text(&mut value, field, default);
            }
        }
        let api_version = object::text(&value, "apiVersion");
        if api_version != self.served.api_version() {
            if !custom {
                return Err(other_kind(kind, &value));
            }
            return Err(Status::bad_request(format!(
                "the API version in the data ({api_version}) does not match the expected API version ({})",
                self.served.api_version()
            )));
        }
        if object::text(&value, "kind") != kind.kind {
            if custom {
                // Validation refuses the wrong kind later; until then the object keeps all fields.
                return Ok(value);
            }
            return Err(other_kind(kind, &value));
        }
        self.admit(&mut value, strict_errors)?;
        Ok(value)
    }

    /// Returns the reason why an object of another type is none of a built-in kind.
    pub(super) fn unrelated_kind(&self, sent: &Value) -> String {
        unrelated_kind(&self.served.kind, sent)
    }

    /// Removes unknown fields and sets defaults. Unknown and duplicate fields are refused or become warnings.
    pub(super) fn admit(&mut self, value: &mut Value, strict_errors: Vec<String>) -> Result<(), Status> {
        let kind = Arc::clone(&self.served.kind);
        self.admit_or(value, strict_errors, |error| {
            let (version, name) = (quoted(&kind.version), &kind.kind);
            Status::bad_request(format!("{name} in version {version} cannot be handled as a {name}: {error}"))
        })
    }

    /// As [`admit`](Self::admit), with another answer to a value that cannot be decoded.
    pub(super) fn admit_or(
        &mut self,
        value: &mut Value,
        mut strict_errors: Vec<String>,
        refuse: impl Fn(&str) -> Status,
    ) -> Result<(), Status> {
        let unknown = self.served.admit(value).map_err(|error| refuse(&error))?;
        strict_errors.extend(unknown.iter().map(|path| format!("unknown field {}", quoted(path))));
        match self.options.validation {
            FieldValidation::Ignore => {}
            FieldValidation::Warn => self.warnings.append(&mut strict_errors),
            FieldValidation::Strict if strict_errors.is_empty() => {}
            FieldValidation::Strict => {
                let errors = strict_errors.join(", ");
                return Err(refuse(&format!("strict decoding error: {errors}")));
            }
        }
        Ok(())
    }

    /// Sets the namespace of an object from the request; an error if the object has a different one.
    pub(super) fn place(&self, object: &mut Value) -> Result<(), Status> {
        let namespace = &self.target.namespace;
        match object::meta(object, "namespace") {
            sent if sent == namespace => Ok(()),
            _ if namespace.is_empty() => {
                object::remove_meta(object, "namespace");
                Ok(())
            }
            "" => {
                object::set_meta(object, "namespace", namespace.as_str());
                Ok(())
            }
            _ => Err(Status::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            )),
        }
    }

    /// Checks that the object has the name of the request.
    pub(super) fn check_name(&self, object: &Value) -> Result<(), Status> {
        let (sent, name) = (object::meta(object, "name"), &self.target.name);
        match sent {
            "" => Err(Status::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            ))),
            sent if sent == name => Ok(()),
            sent => Err(Status::bad_request(format!(
                "the name of the object ({sent}) does not match the name on the URL ({name})"
            ))),
        }
    }
}

// === impl Verb ===

impl Verb {
    /// Returns the name of the verb in discovery.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch(_) => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// The answer to an object of another type where one of a built-in kind is expected.
pub(super) fn other_kind(kind: &Kind, sent: &Value) -> Status {
    let (api_version, name) = (object::text(sent, "apiVersion"), object::text(sent, "kind"));
    let version = quoted(api_version.rsplit('/').next().unwrap_or_default());
    let why = unrelated_kind(kind, sent);
    Status::bad_request(format!("{name} in version {version} cannot be handled as a {}: {why}", kind.kind))
}

fn unrelated_kind(kind: &Kind, sent: &Value) -> String {
    let (api_version, name) = (object::text(sent, "apiVersion"), object::text(sent, "kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let package = |group: &str| match group.split('.').next().unwrap_or_default() {
        "" | "events" => "core".to_owned(),
        package => package.to_owned(),
    };
    let known = builtin::find(group, version, name).is_some() || (name, api_version) == ("Status", "v1");
    if known {
        format!(
            "converting ({version}.{name}) to ({}.{}): unknown conversion",
            package(&kind.group),
            kind.kind
        )
    } else {
        not_registered(name, api_version)
    }
}

/// The text about a type that the server does not have; it names a line of the real server.
pub(super) fn not_registered(kind: &str, api_version: &str) -> String {
    format!(
        "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
        quoted(kind),
        quoted(api_version)
    )
}
