//! A write as webhooks and policies see it.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::super::call::Call;
use super::super::object;
use super::super::request::Verb;
use super::super::served::Served;
use super::super::{Api, Status};
use super::Operation;
use crate::kinds::Kind;
use crate::kinds::builtin::validation::{selects, selects_all};
use crate::store::{GroupResource, Key};

/// A write, without the new object, which plugins may change.
#[derive(Clone, Copy, Debug)]
pub(in crate::api) struct Write<'a> {
    pub(in crate::api) call: &'a Call,
    pub(in crate::api) operation: Operation,
    /// The object before the write; null for creations and connects.
    pub(in crate::api) old: &'a Value,
}

/// The resource and kind under which a plugin sees a write: those of the request, or equivalent ones.
#[derive(Clone, Debug)]
pub(super) struct Form {
    pub(super) resource: [String; 3],
    pub(super) kind: [String; 3],
    /// The version to convert the objects to; `None` for that of the request.
    pub(super) other: Option<Arc<Served>>,
}

// === impl Operation ===

impl Operation {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

// === impl Write ===

impl Write<'_> {
    fn kind(&self) -> &Kind {
        &self.call.served.kind
    }

    fn is_namespace(&self) -> bool {
        self.kind().group.is_empty() && self.kind().plural == "namespaces"
    }

    /// Returns the namespace of the request; that of a Namespace is its own name.
    pub(super) fn namespace(&self) -> &str {
        if self.is_namespace() { &self.call.target.name } else { &self.call.target.namespace }
    }

    /// Returns the name in the request; a deletion of several objects has none.
    pub(super) fn name(&self) -> &str {
        if self.call.verb == Verb::DeleteCollection { "" } else { &self.call.target.name }
    }

    /// Returns the form of the request itself.
    pub(super) fn form(&self) -> Form {
        let kind = self.kind();
        Form {
            resource: [&kind.group, &kind.version, &kind.plural].map(Clone::clone),
            kind: self.object_kind(kind),
            other: None,
        }
    }

    /// Returns group, version and kind of the object in the request.
    fn object_kind(&self, kind: &Kind) -> [String; 3] {
        let name = &self.call.target.subresource;
        if name == "scale" && kind.scale.is_some() {
            return ["autoscaling", "v1", "Scale"].map(str::to_owned);
        }
        match kind.subresources.iter().find(|known| known.name == *name) {
            Some(known) => [&known.group, &known.version, &known.kind].map(Clone::clone),
            None => [&kind.group, &kind.version, &kind.kind].map(Clone::clone),
        }
    }

    /// Returns whether the selectors of a configuration match. The error counts only if the rules match.
    pub(super) fn selected(&self, api: &Api, of: &Value, object: &Value) -> Result<bool, Status> {
        let (by_namespace, by_object) = (&of["namespaceSelector"], &of["objectSelector"]);
        let namespaced = !self.namespace().is_empty() || self.is_namespace();
        if namespaced && !selects_all(by_namespace) {
            let labels = self.namespace_labels(api, object)?;
            if !matches(by_namespace, &labels) {
                return Ok(false);
            }
        }
        let labels = |object: &Value| object::meta_value(object, "labels").cloned().unwrap_or_default();
        Ok(selects_all(by_object)
            || [object, self.old].iter().any(|of| !of.is_null() && matches(by_object, &labels(of))))
    }

    fn namespace_labels(&self, api: &Api, object: &Value) -> Result<Value, Status> {
        let own = self.is_namespace() && self.call.target.subresource.is_empty();
        let labels = |of: &Value| object::meta_value(of, "labels").cloned().unwrap_or_default();
        if own && self.operation != Operation::Delete {
            return Ok(labels(object));
        }
        let namespace = self.namespace_object(api);
        namespace.map(|of| labels(&of)).ok_or_else(|| {
            let message = format!("namespaces \"{}\" not found", self.namespace());
            Status::new(404, "NotFound", message).with_details(super::super::Details {
                name: self.namespace().to_owned(),
                kind: "namespaces".to_owned(),
                ..super::super::Details::default()
            })
        })
    }

    /// Returns the stored Namespace of the request.
    fn namespace_object(&self, api: &Api) -> Option<Value> {
        let namespaces = GroupResource::new("", "namespaces");
        let version = api.shared.store.get(&namespaces, &Key::new("", self.namespace()))?;
        Some(version.value().clone())
    }

    /// Returns the Namespace of the object; null for a cluster-scoped one.
    pub(super) fn namespace_of_object(&self, api: &Api) -> Value {
        if self.is_namespace() { Value::Null } else { self.namespace_object(api).unwrap_or_default() }
    }

    /// Returns the form in which one of the rules matches the request; `None` if none does.
    pub(super) fn form_of(&self, api: &Api, rules: &Value, match_policy: &Value) -> Option<Form> {
        let rules = || rules.as_array().into_iter().flatten();
        let own = self.form();
        if rules().any(|rule| self.fits(rule, &own)) {
            return Some(own);
        }
        if match_policy != "Equivalent" {
            return None;
        }
        let equivalents = self.equivalents(api);
        rules().find_map(|rule| equivalents.iter().find(|form| self.fits(rule, form)).cloned())
    }

    /// Returns the other versions and groups under which the resource is served.
    fn equivalents(&self, api: &Api) -> Vec<Form> {
        let served = &self.call.served;
        let registry = api.registry();
        let mut others: Vec<_> = registry
            .all()
            .filter(|other| other.resource == served.resource && other.api_version() != served.api_version())
            .collect();
        others.sort_by(|a, b| a.api_version().cmp(b.api_version()));
        let forms = others.into_iter().map(|other| Form {
            resource: [&other.kind.group, &other.kind.version, &other.kind.plural].map(Clone::clone),
            kind: self.object_kind(&other.kind),
            other: Some(Arc::clone(other)),
        });
        forms.collect()
    }

    fn fits(&self, rule: &Value, form: &Form) -> bool {
        let texts = |field: &str| rule[field].as_array().into_iter().flatten().filter_map(Value::as_str);
        let has = |field: &str, wanted: &str| texts(field).any(|text| text == "*" || text == wanted);
        let cluster = self.is_namespace() || self.namespace().is_empty();
        let in_scope = match rule["scope"].as_str() {
            Some("Namespaced") => !cluster,
            Some("Cluster") => cluster,
            _ => true,
        };
        let [group, version, resource] = &form.resource;
        let names = &rule["resourceNames"];
        let is_named = names
            .as_array()
            .is_none_or(|names| names.is_empty() || names.iter().any(|name| name == self.name()));
        in_scope
            && is_named
            && has("operations", self.operation.as_str())
            && has("apiGroups", group)
            && has("apiVersions", version)
            && texts("resources").any(|text| {
                let (name, subresource) = text.split_once('/').unwrap_or((text, ""));
                (name == "*" || name == resource)
                    && (subresource == "*" || subresource == self.call.target.subresource)
            })
    }

    /// Returns the request as the field `request` of reviews, and as the variable `request`, without the
    /// objects.
    pub(super) fn request(&self, form: &Form) -> Map<String, Value> {
        let own = self.form();
        let user = &self.call.user;
        let mut info = Map::new();
        let mut extra = Map::new();
        for (key, values) in &user.extra {
            extra.insert(key.clone(), values.clone().into());
        }
        put_text(&mut info, "username", &user.name);
        put_text(&mut info, "uid", &user.uid);
        if !user.groups.is_empty() {
            info.insert("groups".to_owned(), user.groups.clone().into());
        }
        if !extra.is_empty() {
            info.insert("extra".to_owned(), extra.into());
        }
        let mut request = Map::new();
        request.insert("kind".to_owned(), qualified("kind", &form.kind));
        request.insert("resource".to_owned(), qualified("resource", &form.resource));
        request.insert("requestKind".to_owned(), qualified("kind", &own.kind));
        request.insert("requestResource".to_owned(), qualified("resource", &own.resource));
        put_text(&mut request, "subResource", &self.call.target.subresource);
        put_text(&mut request, "requestSubResource", &self.call.target.subresource);
        put_text(&mut request, "name", self.name());
        put_text(&mut request, "namespace", self.namespace());
        request.insert("operation".to_owned(), self.operation.as_str().into());
        request.insert("userInfo".to_owned(), info.into());
        request.insert("dryRun".to_owned(), self.call.options.dry_run.into());
        request.insert("options".to_owned(), self.options());
        request
    }

    /// Returns the options of the request in the form of their type.
    fn options(&self) -> Value {
        let kind = match self.operation {
            Operation::Delete => "DeleteOptions",
            Operation::Update => "UpdateOptions",
            _ => "CreateOptions",
        };
        let mut options = match &self.call.delete_options {
            Some(Value::Object(sent)) => sent.clone(),
            _ => Map::new(),
        };
        let query = &self.call.query;
        for field in ["fieldManager", "fieldValidation", "propagationPolicy"] {
            put_text(&mut options, field, query.get(field).unwrap_or_default());
        }
        let dry_run: Vec<&str> = query.all("dryRun").collect();
        if !dry_run.is_empty() {
            options.insert("dryRun".to_owned(), dry_run.into());
        }
        if let Some(seconds) = query.get("gracePeriodSeconds").and_then(|text| text.parse::<i64>().ok()) {
            options.insert("gracePeriodSeconds".to_owned(), seconds.into());
        }
        options.insert("kind".to_owned(), kind.into());
        options.insert("apiVersion".to_owned(), "meta.k8s.io/v1".into());
        options.into()
    }
}

// === impl Api ===

impl Api {
    /// Returns the form in which a policy or binding sees a write; `None` if it does not. Without rules it
    /// sees every write that its selectors match.
    pub(super) fn constrained(
        &self,
        write: &Write<'_>,
        resources: &Value,
        object: &Value,
    ) -> Result<Option<Form>, Status> {
        if resources.is_null() {
            return Ok(Some(write.form()));
        }
        let selected = write.selected(self, resources, object);
        if matches!(selected, Ok(false)) {
            return Ok(None);
        }
        let policy = &resources["matchPolicy"];
        if write.form_of(self, &resources["excludeResourceRules"], policy).is_some() {
            return Ok(None);
        }
        let rules = &resources["resourceRules"];
        let form = if rules.as_array().is_none_or(Vec::is_empty) {
            Some(write.form())
        } else {
            write.form_of(self, rules, policy)
        };
        if form.is_some() {
            selected?;
        }
        Ok(form)
    }
}

// === impl Form ===

impl Form {
    /// Returns an object in this form; null stays null.
    pub(super) async fn show<'a>(&self, api: &Api, object: &'a Value) -> Result<Cow<'a, Value>, Status> {
        match &self.other {
            Some(other) if !object.is_null() => {
                let mut value = object.clone();
                api.convert_objects(other, std::slice::from_mut(&mut value)).await?;
                Ok(Cow::Owned(value))
            }
            _ => Ok(Cow::Borrowed(object)),
        }
    }
}

fn matches(selector: &Value, labels: &Value) -> bool {
    selects(selector, labels).unwrap_or(false)
}

/// Returns a kind or resource with its group and version.
fn qualified(field: &str, [group, version, name]: &[String; 3]) -> Value {
    json!({"group": group, "version": version, field: name})
}

fn put_text(map: &mut Map<String, Value>, field: &str, text: &str) {
    if !text.is_empty() {
        map.insert(field.to_owned(), text.into());
    }
}
