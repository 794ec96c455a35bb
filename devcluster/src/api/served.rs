//! One served version of a resource: its rules for writes, and the conversion from and to stored objects.

use std::sync::{Arc, LazyLock, OnceLock};

use serde_json::{Value, json};

use super::Status;
use super::conversion::Conversions;
use super::events;
use super::object;
use super::response::Object;
use super::status::Cause;
use crate::kinds::apply::{self, ApplyError, FieldSet, Writer};
use crate::kinds::builtin::{Type, autoscaling, typed};
use crate::kinds::custom::{Conversion, CustomKind};
use crate::kinds::{FieldError, Kind};
use crate::store::{GroupResource, Version};

/// A resource in one version.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) kind: Arc<Kind>,
    /// The resource under which the objects are stored.
    pub(super) resource: GroupResource,
    /// The definition of a custom resource; `None` for built-in kinds.
    pub(super) custom: Option<Custom>,
    /// The kind in its other versions, possibly none.
    pub(super) siblings: Vec<Arc<Kind>>,
    api_version: String,
    /// The value of [`Served::empty`], built on first use.
    empty: OnceLock<Value>,
}

/// The definition of a custom resource, in one version.
#[derive(Debug)]
pub(super) struct Custom {
    pub(super) version: Arc<CustomKind>,
    /// The storage version.
    pub(super) storage: Arc<CustomKind>,
    /// The generation of the definition.
    pub(super) generation: i64,
    /// The revision at which the definition got this generation. Objects with a higher revision are already
    /// defaulted by its schema and need no conversion when they are read.
    pub(super) defined_at: u64,
    /// Whether the definition is being deleted.
    pub(super) terminating: bool,
    /// The webhook that converts between versions; `None` if they differ in nothing but their names.
    pub(super) conversion: Option<Arc<Conversion>>,
}

/// The author of a write, for `managedFields`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Author<'a> {
    pub(super) manager: &'a str,
    /// The subresource of the endpoint; empty for the object itself.
    pub(super) subresource: &'a str,
    pub(super) now: jiff::Timestamp,
    /// The objects that webhooks have converted for the write so far.
    pub(super) conversions: Option<&'a Conversions>,
}

// === impl Served ===

impl Served {
    pub(super) fn new(kind: Arc<Kind>, custom: Option<Custom>, siblings: Vec<Arc<Kind>>) -> Self {
        let (group, plural) = &kind.stored_as;
        let resource = GroupResource::new(group, plural);
        let api_version = kind.api_version();
        Self { kind, resource, custom, siblings, api_version, empty: OnceLock::new() }
    }

    pub(super) fn api_version(&self) -> &str {
        &self.api_version
    }

    /// Returns whether a webhook converts objects between the versions.
    pub(super) fn converts(&self) -> bool {
        self.custom.as_ref().is_some_and(|custom| custom.conversion.is_some())
    }

    /// Returns an empty object of the kind, with the fields that the server always writes.
    pub(super) fn empty(&self) -> &Value {
        self.empty.get_or_init(|| match &self.custom {
            Some(_) => json!({}),
            None => super::builtin::empty(&self.kind),
        })
    }

    /// Removes fields that are not in the schema and sets defaults. Returns the paths of removed fields.
    pub(super) fn admit(&self, object: &mut Value) -> Result<Vec<String>, String> {
        match &self.custom {
            Some(custom) => {
                custom.version.admit(object).map_err(|error| match error.message.rsplit_once(": json: ") {
                    // The metadata itself is decoded apart from the rest.
                    Some((_, detail)) if error.path == "metadata" => format!("json: {detail}"),
                    _ => error.to_string(),
                })
            }
            None => super::builtin::admit(&self.kind, object),
        }
    }

    /// Validates a new object.
    pub(super) fn check_create(&self, object: &Value) -> Vec<FieldError> {
        match &self.custom {
            Some(custom) => custom.version.check_create(object),
            None => super::builtin::check_create(&self.kind, object),
        }
    }

    /// Validates a changed object against the old one. `subresource` is empty for the object itself.
    pub(super) fn check_update(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        match &self.custom {
            Some(custom) if subresource == "status" => custom.version.check_status_update(object, old),
            Some(custom) => custom.version.check_update(object, old),
            None => super::builtin::check_update(&self.kind, object, old, subresource),
        }
    }

    /// The answer to an object with errors: it names the kind that was sent, in the group of storage.
    pub(super) fn invalid(&self, object: &Value, errors: &[FieldError]) -> Status {
        let sent = object::text(object, "kind");
        let kind = if sent.is_empty() { &self.kind.kind } else { sent };
        Status::invalid_kind(&self.kind.stored_as.0, kind, object::meta(object, "name"), errors)
    }

    /// Records in `managedFields` which fields a plain write changed.
    pub(super) fn own(&self, old: Option<&Value>, new: Value, author: &Author<'_>) -> Value {
        self.with_resource(author, |resource, writer| apply::update(resource, old, new, writer))
    }

    /// Merges an apply configuration into `old` (`None` for a creation). `force` takes over
    /// fields of other managers.
    pub(super) fn apply(
        &self,
        old: Option<&Value>,
        configuration: &Value,
        author: &Author<'_>,
        force: bool,
    ) -> Result<Value, Status> {
        let applied = self.with_resource(author, |resource, writer| {
            apply::apply(resource, old, configuration, writer, force)
        });
        applied.map_err(Self::apply_status)
    }

    /// Returns whether a stored object has empty lists or maps in its metadata, which readers do not get.
    pub(super) fn stores_empties(&self, stored: &Value) -> bool {
        let metadata = stored.get("metadata").and_then(Value::as_object).filter(|_| self.custom.is_some());
        metadata.is_some_and(|metadata| metadata.values().any(object::is_empty))
    }

    /// Brings an object into the form that it has when it is read from the store.
    pub(super) fn settle(&self, object: &mut Value) {
        if let Some(of) = typed::type_of(&self.kind) {
            typed::as_stored(of, object);
        } else if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.retain(|_, value| !object::is_empty(value));
        }
    }

    /// Converts an error of an apply.
    fn apply_status(error: ApplyError) -> Status {
        match error {
            ApplyError::Conflict { message, causes } => {
                let causes = causes.into_iter().map(|cause| Cause {
                    reason: "FieldManagerConflict".to_owned(),
                    message: cause.message,
                    field: cause.field,
                });
                let details = super::status::Details { causes: causes.collect(), ..Default::default() };
                Status::new(409, "Conflict", message).with_details(details)
            }
            ApplyError::BadRequest(message) => Status::bad_request(message),
            error => Status::unclassified(error.to_string()),
        }
    }

    fn with_resource<T>(
        &self,
        author: &Author<'_>,
        act: impl FnOnce(&apply::Resource<'_>, &Writer<'_>) -> T,
    ) -> T {
        let versions: Vec<_> =
            self.siblings.iter().map(|kind| (kind.api_version(), kind.schema.get())).collect();
        let versions: Vec<_> =
            versions.iter().map(|(version, schema)| (version.as_str(), &***schema)).collect();
        let resource = apply::Resource {
            kind: &self.kind.kind,
            api_version: &self.api_version,
            schema: self.kind.schema.get(),
            other_versions: &versions,
            convert: (self.kind.kind == "HorizontalPodAutoscaler" && self.custom.is_none())
                .then_some(autoscaling::convert),
            empty: self.empty(),
            reset: reset_fields(&self.kind, self.custom.is_some(), author.subresource),
            converter: author
                .conversions
                .filter(|_| self.converts())
                .map(|conversions| conversions as &dyn apply::Converter),
        };
        let subresource = Some(author.subresource).filter(|name| !name.is_empty());
        act(&resource, &Writer { manager: author.manager, subresource, now: author.now })
    }

    /// Returns a stored object in this version; shares the stored encoding if no conversion is needed.
    /// Objects that a webhook converts must be prepared before.
    pub(super) fn view(&self, version: &Arc<Version>) -> Object {
        let stored_as = object::text(version.value(), "apiVersion");
        let current = self.custom.as_ref().is_none_or(|custom| version.revision() > custom.defined_at);
        // Applied objects of custom kinds are stored with empty lists and maps, and read without them.
        let empties = self.stores_empties(version.value());
        if stored_as == self.api_version && current && !empties {
            return Object::Stored(Arc::clone(version));
        }
        if let Some(custom) = self.custom.as_ref().filter(|_| self.converts())
            && let Some(converted) = version.derived(&self.api_version, custom.defined_at)
        {
            return Object::Made(converted);
        }
        let mut value = version.value().clone();
        match &self.custom {
            // The schema of another storage version would remove what only this version has.
            Some(custom) if self.converts() && stored_as == self.api_version => {
                custom.version.convert(&mut value);
            }
            _ => self.convert(&mut value),
        }
        self.settle(&mut value);
        Object::Made(Arc::new(value))
    }

    /// Converts an object of another version to this one.
    fn convert(&self, value: &mut Value) {
        if self.kind.kind == "Event" && self.custom.is_none() {
            events::convert(value, &self.kind.group);
        }
        if typed::type_of(&self.kind).is_some_and(Type::is_older_autoscaler) {
            autoscaling::to_v1(value);
        }
        match &self.custom {
            Some(custom) if custom.storage.api_version != self.api_version => {
                // Defaults are those of the stored version alone.
                custom.storage.convert(value);
                custom.version.rename(value);
            }
            Some(custom) => custom.version.convert(value),
            None => object::set_text(value, "apiVersion", &self.api_version),
        }
    }

    /// Converts an object of another version to this one, without the defaults of any version.
    pub(super) fn rename(&self, value: &mut Value) {
        if let Some(custom) = &self.custom {
            return custom.version.rename(value);
        }
        if self.kind.kind == "Event" {
            events::convert(value, &self.kind.group);
        }
        object::set_text(value, "apiVersion", &self.api_version);
    }

    /// Converts an object of this version to the storage version.
    pub(super) fn to_storage(&self, mut value: Value) -> Value {
        match &self.custom {
            Some(custom) if custom.storage.api_version != self.api_version => {
                custom.storage.convert(&mut value);
            }
            None if *self.resource.group != *self.kind.group && self.kind.kind == "Event" => {
                events::convert(&mut value, &self.resource.group);
                object::set_text(&mut value, "apiVersion", "v1");
            }
            None if typed::type_of(&self.kind).is_some_and(Type::is_older_autoscaler) => {
                autoscaling::to_v2(&mut value);
            }
            _ => {}
        }
        value
    }

    /// Returns the etcd key of an object, as in error messages of kube-apiserver.
    pub(super) fn storage_path(&self, key: &str) -> String {
        let GroupResource { group, resource } = &self.resource;
        if self.custom.is_some() {
            return format!("/registry/{group}/{resource}/{key}");
        }
        let folder = match &**resource {
            "services" => "services/specs",
            "endpoints" => "services/endpoints",
            "nodes" => "minions",
            "replicationcontrollers" => "controllers",
            "ingresses" => "ingress",
            other => other,
        };
        format!("/registry/{folder}/{key}")
    }
}

/// Returns the fields that writes to an endpoint reset, so that its writers never own them.
fn reset_fields(kind: &Kind, custom: bool, subresource: &str) -> &'static FieldSet {
    static NONE: LazyLock<FieldSet> = LazyLock::new(FieldSet::default);
    static STATUS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of(&[&["status"]]));
    static SPEC: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of(&[&["spec"]]));
    static DEPLOYMENT: LazyLock<FieldSet> =
        LazyLock::new(|| FieldSet::of(&[&["spec"], &["metadata", "labels"]]));
    static POD: LazyLock<FieldSet> = LazyLock::new(|| {
        FieldSet::of(&[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]])
    });
    static ALL: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of(&[&["metadata"], &["spec"]]));
    match subresource {
        "" if kind.status => &STATUS,
        "status" if custom || kind.kind == "CustomResourceDefinition" => &ALL,
        "status" => match (kind.group.as_str(), kind.kind.as_str()) {
            ("apps", "Deployment") => &DEPLOYMENT,
            ("", "Pod") => &POD,
            _ => &SPEC,
        },
        _ => &NONE,
    }
}
