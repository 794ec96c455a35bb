//! Prints what happens in a cluster and a manager, one line each, with the seconds since the start.
//!
//! Reconciles are reported by the manager: the first of each object, failures, and the first success after a
//! failure. Changes come from the stores that the program has declared, so they cost no further watches:
//! objects of the kinds that the program defines, and objects that have one of these as their controller.
//! Events come from a store of their own, and only those of the program are printed.

mod changes;

#[cfg(test)]
mod tests;

use std::fmt;
use std::io::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::cache::{Delta, DeltaHandler, Meta, ResourceVersion, Scope, Subscription, View};
use crate::key::{KindId, NamespacedName, ObjectKey};
use crate::manager::Manager;
use crate::program::escaped;
use crate::reconcile::{Action, Outcome};
use crate::util::BoundedMap;

use changes::{changed_fields, changes};

/// The most keys and the most objects of which the story remembers the last line.
const REMEMBERED: usize = 10_000;

/// The most lines that wait for the terminal. Further ones are left out.
const WAITING: usize = 1_000;

/// The story of the command `dev`: prints lines on standard output with the seconds since the start of the
/// command. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Story {
    began: Instant,
}

/// Collects the story of one manager, on its workers and on the tasks of its stores, which it does not delay.
pub(super) struct Narrator {
    story: Story,
    news: mpsc::Sender<News>,
    /// The name of the program, with which the reporting controllers of its Events begin.
    program: &'static str,
    /// Group and kind of each definition of the program; empty if it has none.
    own: Vec<(String, String)>,
    /// The last printed error of each key, `None` after a success, by controller and key.
    runs: Mutex<BoundedMap<(String, String), Option<String>>>,
    /// The last version of each object that was compared: two stores of one kind may hold the same object.
    seen: Mutex<BoundedMap<ObjectKey, ResourceVersion>>,
}

/// News for the story, with the time since its start.
struct News {
    at: Duration,
    entry: Entry,
}

enum Entry {
    Line(String),
    /// An object before and after a change.
    Change(Option<View>, Option<View>),
}

// === impl Story ===

impl Story {
    /// Makes a story that began this long ago.
    pub(super) fn begun(before: Duration) -> Self {
        let now = Instant::now();
        Self { began: now.checked_sub(before).unwrap_or(now) }
    }

    /// Returns the time since the start of the story.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Prints a line with the seconds since the start of the command. Control characters are escaped.
    pub fn print(&self, line: impl fmt::Display) {
        print_at(self.elapsed(), &line.to_string());
    }
}

// === impl Narrator ===

impl Narrator {
    /// Makes a narrator. A thread of its own prints what it collects, because a terminal can block.
    pub(super) fn start(story: Story, program: &'static str, crds: &[CustomResourceDefinition]) -> Arc<Self> {
        let (narrator, news) = Self::new(story, program, crds);
        let printing = Arc::clone(&narrator);
        // It ends with the runtime, which does not wait for it.
        tokio::task::spawn_blocking(move || printing.print(news));
        narrator
    }

    fn new(
        story: Story,
        program: &'static str,
        crds: &[CustomResourceDefinition],
    ) -> (Arc<Self>, mpsc::Receiver<News>) {
        let own = crds.iter().map(|crd| (crd.spec.group.clone(), crd.spec.names.kind.clone())).collect();
        let (runs, seen) = (BoundedMap::new(REMEMBERED).into(), BoundedMap::new(REMEMBERED).into());
        let (news, waiting) = mpsc::channel(WAITING);
        (Arc::new(Self { story, news, program, own, runs, seen }), waiting)
    }

    fn print(&self, mut news: mpsc::Receiver<News>) {
        while let Some(News { at, entry }) = news.blocking_recv() {
            let lines = match entry {
                Entry::Line(line) => vec![line],
                Entry::Change(old, new) => self.lines(old.as_ref(), new.as_ref()),
            };
            for line in lines {
                print_at(at, &line);
            }
        }
    }

    fn send(&self, entry: Entry) {
        // Left out if the terminal is slower than the controllers.
        self.news.try_send(News { at: self.story.elapsed(), entry }).ok();
    }

    /// Reports the reconciles of all controllers that are registered with the manager from now on.
    pub(super) fn follow_runs(self: &Arc<Self>, manager: &Manager) {
        let narrator = Arc::clone(self);
        manager.observe_runs(Arc::new(move |controller, key, outcome| {
            if let Some(line) = narrator.run(controller, &key.to_string(), outcome) {
                narrator.send(Entry::Line(line));
            }
        }));
    }

    /// Reports the changes of the stores that are declared by now, and Events, as long as the returned
    /// subscriptions live.
    pub(super) fn follow_stores(self: &Arc<Self>, manager: &Manager) -> Vec<Subscription> {
        // Held until it has a subscription.
        let _events = manager.store::<Event>(Scope::all());
        let stores = manager.declared_stores();
        stores.iter().map(|store| store.subscribe(Box::new(Arc::clone(self)))).collect()
    }

    /// Returns the line about a reconcile; `None` if there is no news.
    fn run(&self, controller: &str, key: &str, outcome: &Outcome) -> Option<String> {
        let error = match outcome {
            // The next run of the key reads the newer object.
            Err(error) if error.is_conflict() => return None,
            outcome => outcome.as_ref().err().map(ToString::to_string),
        };
        let known = (controller.to_owned(), key.to_owned());
        let now = Instant::now();
        let mut runs = self.runs.lock();
        let before = runs.get(&known, now).cloned();
        runs.insert(known, error.clone(), now);
        drop(runs);
        match (before, error, outcome) {
            (None, None, Ok(Action::RequeueAfter(wait))) if !wait.is_zero() => {
                Some(format!("{controller}: first reconcile of {key}; next in {wait:?}"))
            }
            (None, None, _) => Some(format!("{controller}: first reconcile of {key}")),
            (Some(Some(_)), None, _) => {
                Some(format!("{controller}: {key} reconciled without an error again"))
            }
            (Some(Some(before)), Some(error), _) if before == error => None,
            (_, Some(error), _) => Some(format!("{controller}: reconcile of {key} failed: {error}")),
            (Some(None), None, _) => None,
        }
    }

    /// Returns the lines about a change of an object, or about a new Event.
    fn lines(&self, old: Option<&View>, new: Option<&View>) -> Vec<String> {
        let Some(latest) = new.or(old) else { return Vec::new() };
        if *latest.kind() == KindId::of::<Event>() {
            let new = old.is_none().then(|| latest.decode::<Event>().ok()).flatten();
            return new.and_then(|event| self.event(&event)).into_iter().collect();
        }
        let kind = latest.kind();
        let own = self.is_own(kind.group(), kind.kind());
        if !(own || self.is_child(latest.meta())) || !self.is_news(latest, new.is_none()) {
            return Vec::new();
        }
        let (kind, name) = (kind.kind(), latest.request());
        lines_about(old, new, own).into_iter().map(|change| format!("{kind} {name}: {change}")).collect()
    }

    fn is_own(&self, group: &str, kind: &str) -> bool {
        self.own.iter().any(|own| own.0 == group && own.1 == kind)
    }

    /// Returns whether an object has a controller of the program's own kinds, or any if it has none of these.
    fn is_child(&self, meta: &Meta) -> bool {
        meta.controller().is_some_and(|owner| {
            let group = owner.api_version.rsplit_once('/').map_or("", |(group, _)| group);
            self.own.is_empty() || self.is_own(group, &owner.kind)
        })
    }

    /// Returns whether this version of the object is another one than the last.
    fn is_news(&self, latest: &View, deleted: bool) -> bool {
        let (key, now) = (latest.object_key(), Instant::now());
        let version = if deleted { ResourceVersion::new("") } else { latest.meta().resource_version.clone() };
        let mut seen = self.seen.lock();
        let is_news = seen.get(&key, now).is_none_or(|before| *before != version);
        seen.insert(key, version, now);
        is_news
    }

    /// Returns the line about a new Event of the program; `None` for an Event of another reporter.
    fn event(&self, event: &Event) -> Option<String> {
        let reporter = event.reporting_controller.as_deref()?.strip_prefix(self.program)?;
        if !reporter.is_empty() && !reporter.starts_with('/') {
            return None;
        }
        let regarding = event.regarding.clone().unwrap_or_default();
        let text = |field: Option<String>| field.unwrap_or_default();
        let name = NamespacedName::new(
            regarding.namespace.as_deref().filter(|namespace| !namespace.is_empty()),
            regarding.name.as_deref().unwrap_or_default(),
        );
        let [kind, level, reason, note] =
            [regarding.kind, event.type_.clone(), event.reason.clone(), event.note.clone()].map(text);
        Some(format!("{kind} {name}: Event {level} {reason}: {note}"))
    }
}

impl DeltaHandler for Arc<Narrator> {
    fn handle(&self, delta: &Delta<'_>) {
        if !delta.initial && !delta.resync {
            self.send(Entry::Change(delta.old.cloned(), delta.new.cloned()));
        }
    }

    fn name(&self) -> &'static str {
        "dev"
    }
}

/// Returns the changes of an object as texts. The plain values of a status are shown for an object of the
/// program's `own` kinds only.
fn lines_about(old: Option<&View>, new: Option<&View>, own: bool) -> Vec<String> {
    let mut lines = Vec::new();
    match (old.map(View::meta), new.map(View::meta)) {
        (None, Some(new)) => lines.push(match new.controller() {
            Some(owner) => format!("created for {} {}", owner.kind, owner.name),
            None => "created".to_owned(),
        }),
        (Some(_), None) => lines.push("deleted".to_owned()),
        (Some(old), Some(new)) if new.deleting && !old.deleting => lines.push("is being deleted".to_owned()),
        _ => {}
    }
    let decoded = |view: &View| view.decode::<Value>().unwrap_or_default();
    if let (Some(old), Some(new)) = (old, new)
        && old.meta().content_hash != new.meta().content_hash
    {
        lines.push(format!("changed{}", changed_fields(&decoded(old), &decoded(new))));
    }
    if let Some(new) = new
        && old.is_none_or(|old| old.meta().status_hash != new.meta().status_hash)
    {
        let status = |view: &View| decoded(view)["status"].clone();
        lines.extend(changes(&old.map_or(Value::Null, status), &status(new), own));
    }
    lines
}

fn print_at(at: Duration, line: &str) {
    // A closed standard output does not stop the command.
    writeln!(io::stdout(), "[{:6.1} s] {}", at.as_secs_f64(), escaped(line)).ok();
}
