//! Implements the controllers' [`Client`] for the API in this process, without HTTP.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use serde_json::Value;

use super::client::{Client, Event, Request, RequestError, Verb, Watch};
use crate::api::{self, Api, Content, PatchType, Status, Target, WatchEvent};
use crate::kinds::Kind;
use crate::store::{EventType, GroupResource};

/// The field manager of all writes except the statuses of Pods and Nodes.
const MANAGER: &str = "kube-controller-manager";

/// The field manager of the statuses of Pods and Nodes.
const KUBELET: &str = "kubelet";

/// The field manager of the rules of aggregated `ClusterRoles`, the only objects that are applied.
const AGGREGATION: &str = "clusterrole-aggregation-controller";

impl Client for Api {
    fn kinds(&self) -> Vec<Arc<Kind>> {
        Self::kinds(self)
    }

    async fn watch(&self, resource: &GroupResource) -> Result<Watch, RequestError> {
        let target = target(self, resource)?;
        let list = self.call(api::Request::new(api::Verb::List, target.clone())).await?;
        let Content::List(list) = list.content else { return Err(unexpected("a list")) };
        let request = api::Request::new(api::Verb::Watch, target);
        let revision = list.revision;
        let watch = self.call(request.with("resourceVersion", revision.to_string())).await?;
        let Content::Watch(watch) = watch.content else { return Err(unexpected("a watch")) };
        let batches = stream::unfold(watch, |mut watch| async move {
            let events: Vec<_> = watch.next().await?.into_iter().map(event).collect();
            Some((stream::iter(events), watch))
        });
        // An error is the last event, so the stream ends with it.
        let events = batches.flatten().take_while(|event| std::future::ready(!matches!(event, Seen::Error)));
        let events = events.filter_map(|event| async move {
            match event {
                Seen::Change(event) => Some(event),
                Seen::Bookmark | Seen::Error => None,
            }
        });
        let objects = list.items.iter().map(shared).collect();
        Ok(Watch { revision, objects, events: events.boxed() })
    }

    async fn get(
        &self,
        resource: &GroupResource,
        namespace: &str,
        name: &str,
    ) -> Result<Value, RequestError> {
        let target = target(self, resource)?.namespace(namespace).name(name);
        object(self.call(api::Request::new(api::Verb::Get, target)).await?.content)
    }

    async fn send(&self, request: Request) -> Result<Value, RequestError> {
        let verb = match request.verb {
            Verb::Create => api::Verb::Create,
            Verb::Update => api::Verb::Update,
            Verb::MergePatch => api::Verb::Patch(PatchType::Merge),
            Verb::Apply => api::Verb::Patch(PatchType::Apply),
            Verb::Delete => api::Verb::Delete,
            Verb::DeleteCollection => api::Verb::DeleteCollection,
        };
        let mut target = target(self, &request.resource)?.namespace(&request.namespace);
        target = target.subresource(request.subresource);
        // The path of a create has no name, except for a subresource of an existing object.
        if request.verb != Verb::Create || !request.subresource.is_empty() {
            target = target.name(&request.name);
        }
        let reports =
            matches!(&*request.resource.resource, "pods" | "nodes") && request.subresource == "status";
        let mut call = api::Request::new(verb, target).with_body(request.body);
        call.user_agent = String::from(if reports { KUBELET } else { MANAGER });
        if request.verb == Verb::Apply {
            call = call.with("fieldManager", AGGREGATION).with("force", "true");
        }
        object(self.call(call).await?.content)
    }
}

/// A converted watch event; an error ends the watch.
enum Seen {
    Change(Event),
    Bookmark,
    Error,
}

fn event(event: WatchEvent) -> Seen {
    match event {
        WatchEvent::Object(EventType::Deleted, object) => Seen::Change(Event::Gone(shared(&object))),
        WatchEvent::Object(_, object) => Seen::Change(Event::Put(shared(&object))),
        WatchEvent::Bookmark(_) => Seen::Bookmark,
        WatchEvent::Error(_) => Seen::Error,
    }
}

fn shared(object: &api::Object) -> Arc<Value> {
    match object {
        api::Object::Stored(version) => version.shared_value(),
        api::Object::Made(value) => Arc::clone(value),
    }
}

/// Returns the object of a response; null for a list, which a deletecollection returns.
fn object(content: Content) -> Result<Value, RequestError> {
    match content {
        Content::Object(object) => Ok(object.value().clone()),
        Content::List(_) => Ok(Value::Null),
        Content::Watch(_) => Err(unexpected("an object")),
    }
}

/// Returns the collection of a resource, in v1 if served, otherwise in another served version.
fn target(api: &Api, resource: &GroupResource) -> Result<Target, RequestError> {
    let (group, plural) = (&*resource.group, &*resource.resource);
    if api.kind(group, "v1", plural).is_some() {
        return Ok(Target::new(group, "v1", plural));
    }
    let kinds = Api::kinds(api);
    let kind = kinds.iter().find(|kind| kind.stored_as.0 == group && kind.stored_as.1 == plural);
    let kind = kind.ok_or_else(|| RequestError {
        code: 404,
        message: format!("{resource} is not served"),
        causes: Vec::new(),
    })?;
    Ok(Target::new(&kind.group, &kind.version, &kind.plural))
}

fn unexpected(wanted: &str) -> RequestError {
    RequestError { code: 500, message: format!("the answer is not {wanted}"), causes: Vec::new() }
}

impl From<Status> for RequestError {
    fn from(status: Status) -> Self {
        let value = status.to_value();
        let causes = value["details"]["causes"].as_array().into_iter().flatten();
        let causes = causes.filter_map(|cause| cause["reason"].as_str().map(str::to_owned)).collect();
        let code = value["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(500);
        Self { code, message: status.to_string(), causes }
    }
}
