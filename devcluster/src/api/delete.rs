//! Deletion of objects and collections, with finalizers, grace periods and propagation policies.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::admission::Operation;
use super::call::Call;
use super::create::success;
use super::object;
use super::options::{DeleteOptions, ListOptions, Propagation};
use super::response::{Content, Object};
use super::selector::Selector;
use super::served::Served;
use super::{Api, Response, Status};
use crate::kinds::Kind;
use crate::store::{At, Version};

/// Finalizer of the policy `Orphan`: the garbage collector first releases the dependents.
const ORPHAN: &str = "orphan";
/// Finalizer of the policy `Foreground`: the garbage collector first deletes the dependents.
const FOREGROUND: &str = "foregroundDeletion";

/// The result of one attempt to delete an object.
enum Attempt {
    /// Another write came in between; read the object and retry.
    Again,
    /// The object is deleted; carries the body of the response.
    Gone(Object),
    /// The object stays for now; carries the body of the response.
    Stays(Object),
}

/// The warning about a Job that is deleted by the policy of old clients.
const JOB_WARNING: &str = "child pods are preserved by default when jobs are deleted; set \
     propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

// === impl Api ===

impl Api {
    pub(super) async fn delete(&self, call: &mut Call) -> Result<Response, Status> {
        let options = call.parse_deletion()?;
        let (object, gone) = self.delete_object(call, &options).await?;
        let code = if !gone && options.orphan_dependents == Some(false) { 202 } else { 200 };
        Ok(Response::new(code, Content::Object(object)))
    }

    pub(super) async fn delete_collection(&self, call: &mut Call) -> Result<Response, Status> {
        let options = call.parse_deletion()?;
        ListOptions::parse(&call.query, false)?;
        let selector = Selector::parse(&call.served.kind, &call.query)?;
        let response = self.list_with(call, &ListOptions::default(), &selector, At::Newest).await?;
        if let Content::List(list) = &response.content {
            let namespace = call.target.namespace.clone();
            for item in &list.items {
                object::meta(item.value(), "name").clone_into(&mut call.target.name);
                object::meta(item.value(), "namespace").clone_into(&mut call.target.namespace);
                match self.delete_object(call, &options).await {
                    Err(status) if status.code() != 404 => return Err(status),
                    _ => {}
                }
            }
            call.target.namespace = namespace;
            call.target.name.clear();
        }
        Ok(response)
    }

    /// Deletes one object or starts its deletion. Returns the body of the response, and
    /// whether the object is gone.
    async fn delete_object(
        &self,
        call: &mut Call,
        options: &DeleteOptions,
    ) -> Result<(Object, bool), Status> {
        self.delete_if(call, options, true).await
    }

    /// As for a delete request, but without admission.
    pub(super) async fn delete_admitted(
        &self,
        call: &mut Call,
        options: &DeleteOptions,
    ) -> Result<(Object, bool), Status> {
        self.delete_if(call, options, false).await
    }

    async fn delete_if(
        &self,
        call: &mut Call,
        options: &DeleteOptions,
        admit: bool,
    ) -> Result<(Object, bool), Status> {
        let served = Arc::clone(&call.served);
        loop {
            let version = self.shared.store.get(&served.resource, &call.key());
            let version = version.ok_or_else(|| Status::not_found(&served.kind, &call.target.name))?;
            let view = self.view(&served, &version).await?;
            let old = view.value();
            check_preconditions(&served.kind, options, old)?;
            if served.kind.kind == "Job"
                && options.propagation.is_none()
                && options.orphan_dependents.is_none()
            {
                call.warnings.push(JOB_WARNING.to_owned());
            }
            if admit {
                self.admit(call, Operation::Delete, Some(old), &mut Value::Null).await?;
                self.validate(call, Operation::Delete, Some(old), &Value::Null).await?;
            }
            // A conversion webhook is not asked how a deletion is stored.
            let storage = self.storage_version(&served);
            let attempt = match &storage {
                None => self.try_delete(&served, call, options, &version, old),
                Some(storage) => {
                    self.try_delete(storage, call, options, &version, storage.view(&version).value())
                }
            };
            let (object, gone) = match attempt {
                Attempt::Again => {
                    tokio::task::yield_now().await;
                    continue;
                }
                Attempt::Gone(object) => (object, true),
                Attempt::Stays(object) => (object, false),
            };
            let object = self.answer_in(&served, storage.is_some(), object).await?;
            match (call.options.dry_run, gone) {
                (true, _) => {}
                (false, true) => self.after_delete(&served.kind, &version),
                (false, false) => self.after_write(&served.kind, &version),
            }
            return Ok((object, gone));
        }
    }

    /// Deletes an object without admission hooks, or starts its deletion. Used for objects of
    /// a deleted definition.
    pub(super) fn delete_now(&self, call: &Call, options: &DeleteOptions, version: &Arc<Version>) {
        let mut version = Arc::clone(version);
        while matches!(
            self.try_delete(&call.served, call, options, &version, call.served.view(&version).value()),
            Attempt::Again
        ) {
            match self.shared.store.get(&call.served.resource, version.key()) {
                Some(newer) => version = newer,
                None => return,
            }
        }
    }

    /// Makes one attempt to delete the version `version`; `old` is its content in the version `served`.
    fn try_delete(
        &self,
        served: &Served,
        call: &Call,
        options: &DeleteOptions,
        version: &Arc<Version>,
        old: &Value,
    ) -> Attempt {
        let mut object = old.clone();
        let graceful = match grace(&served.kind, options, &mut object, self.now()) {
            Grace::Pending => return Attempt::Stays(answer(&served.kind, Object::Made(Arc::new(object)))),
            Grace::Period(seconds) => Some(seconds),
            Grace::None => None,
        };
        let finalizers = finalizers(&served.kind, options, &object);
        object::set_finalizers(&mut object, &finalizers);
        let started = super::builtin::start_deletion(&served.kind, &mut object, self.now());
        let waits = started || super::builtin::waits_for_content(&served.kind, &object);
        if graceful.is_none() && !finalizers.is_empty() && !waits {
            mark(&mut object, self.now());
        }
        let stays = !finalizers.is_empty() || waits || graceful.is_some_and(|seconds| seconds > 0);
        if call.options.dry_run {
            let object = Object::Made(Arc::new(object));
            return if stays { Attempt::Stays(object) } else { Attempt::Gone(answer(&served.kind, object)) };
        }
        let mut last = Arc::clone(version);
        if stays || graceful.is_some() {
            let stored = served.to_storage(object);
            if stored != *version.value() {
                match self.shared.store.update(&served.resource, version.key(), stored, version.revision()) {
                    Ok(version) => last = version,
                    Err(_) => return Attempt::Again,
                }
            }
        }
        if stays {
            return Attempt::Stays(served.view(&last));
        }
        match self.shared.store.delete(&served.resource, last.key(), last.revision()) {
            Ok(version) => Attempt::Gone(answer(&served.kind, served.view(&version))),
            Err(_) => Attempt::Again,
        }
    }
}

// === impl Call ===

impl Call {
    /// Parses the options of a deletion.
    fn parse_deletion(&mut self) -> Result<DeleteOptions, Status> {
        let body = self.body.take();
        let options = DeleteOptions::parse(&self.query, body.as_ref())?;
        self.options.dry_run = options.dry_run;
        self.delete_options = body.map(|body| body.value);
        Ok(options)
    }
}

/// Returns the body of the response to a deletion: the object for some kinds, a `Status` for all others.
fn answer(kind: &Kind, object: Object) -> Object {
    const RETURNED: [&str; 8] = [
        "namespaces",
        "pods",
        "services",
        "serviceaccounts",
        "persistentvolumes",
        "persistentvolumeclaims",
        "resourcequotas",
        "podtemplates",
    ];
    let core = kind.group.is_empty() && RETURNED.contains(&kind.plural.as_str());
    if core || matches!(kind.group.as_str(), "storage.k8s.io" | "resource.k8s.io") && kind.type_name.is_some()
    {
        return object;
    }
    let value = object.value();
    Object::Made(Arc::new(success(kind, object::meta(value, "name"), object::meta(value, "uid"))))
}

pub(super) fn check_preconditions(kind: &Kind, options: &DeleteOptions, old: &Value) -> Result<(), Status> {
    let name = object::meta(old, "name");
    let conflict = |why: String| {
        // kube-apiserver uses the kind in this error, and the resource in all others.
        let qualified =
            if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
        let details =
            super::status::Details { kind: kind.kind.clone(), ..super::status::Details::of(kind, name) };
        Status::new(409, "Conflict", message).with_details(details)
    };
    let (uid, revision) = (object::meta(old, "uid"), object::meta(old, "resourceVersion"));
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        return Err(conflict(format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object \
             might have been deleted and then recreated"
        )));
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != revision) {
        return Err(conflict(format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({revision}). The object might have been modified"
        )));
    }
    Ok(())
}

/// The effect of the grace period on a deletion.
enum Grace {
    /// The deletion has no grace period: the kind has none, or it has ended.
    None,
    /// An earlier deletion is in progress and stays unchanged.
    Pending,
    /// The object now has a grace period of this many seconds, possibly 0.
    Period(i64),
}

/// Computes the grace period and sets the time of deletion. Only Pods have a grace period.
fn grace(kind: &Kind, options: &DeleteOptions, pod: &mut Value, now: Timestamp) -> Grace {
    if !kind.group.is_empty() || kind.kind != "Pod" {
        return Grace::None;
    }
    let wanted = options.grace_period_seconds.map(|seconds| if seconds < 0 { 1 } else { seconds });
    if object::is_terminating(pod) {
        let current =
            object::meta_value(pod, "deletionGracePeriodSeconds").and_then(Value::as_i64).unwrap_or(0);
        return match wanted {
            _ if current == 0 => Grace::None,
            Some(wanted) if wanted < current => shorten(pod, current, wanted, now),
            _ => Grace::Pending,
        };
    }
    let declared = pod.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_i64);
    let scheduled =
        pod.pointer("/spec/nodeName").and_then(Value::as_str).is_some_and(|node| !node.is_empty());
    let ended = matches!(pod.pointer("/status/phase").and_then(Value::as_str), Some("Succeeded" | "Failed"));
    let period = match wanted.or(declared).unwrap_or(0) {
        _ if !scheduled || ended => 0,
        ..0 => 1,
        period => period,
    };
    set_deletion(pod, now.saturating_add(SignedDuration::from_secs(period)).unwrap_or(now), period);
    raise_generation(pod);
    Grace::Period(period)
}

/// Moves the time of a planned deletion forward, because the new grace period is shorter.
fn shorten(pod: &mut Value, current: i64, wanted: i64, now: Timestamp) -> Grace {
    let planned: Option<Timestamp> = object::meta_value(pod, "deletionTimestamp")
        .and_then(Value::as_str)
        .and_then(|time| time.parse().ok());
    let moved = SignedDuration::from_secs(wanted.saturating_sub(current));
    let earlier = planned.unwrap_or(now).saturating_add(moved).unwrap_or(now);
    let (at, period) = if earlier < now { (now, wanted.min(1)) } else { (earlier, wanted) };
    set_deletion(pod, at, period);
    Grace::Period(period)
}

/// Marks an object without a grace period as being deleted, when finalizers keep it.
fn mark(object: &mut Value, now: Timestamp) {
    if !object::is_terminating(object) {
        raise_generation(object);
        object::set_meta(object, "deletionTimestamp", object::time(now));
    }
    object::set_meta(object, "deletionGracePeriodSeconds", 0);
}

fn set_deletion(object: &mut Value, at: Timestamp, grace_seconds: i64) {
    object::set_meta(object, "deletionTimestamp", object::time(at));
    object::set_meta(object, "deletionGracePeriodSeconds", grace_seconds);
}

/// Adds 1 to the generation, if the object has one.
fn raise_generation(object: &mut Value) {
    let generation = object::generation(object);
    if generation > 0 {
        object::set_meta(object, "generation", generation + 1);
    }
}

/// Returns the finalizers of an object with the one for its propagation policy. A policy in the options has
/// priority over a finalizer that the object has, and the finalizer over the default of the kind.
fn finalizers(kind: &Kind, options: &DeleteOptions, object: &Value) -> Vec<String> {
    let has = |name: &str| object::finalizers(object).any(|finalizer| finalizer == name);
    let ignores = kind.kind == "Event" && kind.type_name.is_some();
    let orphans =
        matches!((kind.group.as_str(), kind.kind.as_str()), ("batch", "Job") | ("", "ReplicationController"));
    let explicit = match options.orphan_dependents {
        Some(true) => Some(Propagation::Orphan),
        Some(false) => Some(Propagation::Background),
        None => options.propagation,
    };
    let policy = match explicit {
        _ if ignores => Propagation::Background,
        Some(policy) => policy,
        None if has(FOREGROUND) => Propagation::Foreground,
        None if has(ORPHAN) || orphans => Propagation::Orphan,
        None => Propagation::Background,
    };
    let others = object::finalizers(object).filter(|name| ![ORPHAN, FOREGROUND].contains(name));
    let mut finalizers: Vec<String> = others.map(str::to_owned).collect();
    match policy {
        Propagation::Orphan => finalizers.push(ORPHAN.to_owned()),
        Propagation::Foreground => finalizers.push(FOREGROUND.to_owned()),
        Propagation::Background => {}
    }
    // An unchanged set keeps its order, so that the object stays equal and no write is needed.
    let same =
        finalizers.len() == object::finalizers(object).count() && finalizers.iter().all(|name| has(name));
    if same { object::finalizers(object).map(str::to_owned).collect() } else { finalizers }
}
