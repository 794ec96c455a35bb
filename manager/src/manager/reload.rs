//! Another configuration for a manager that runs.
//!
//! The file is followed on the control thread; what is read is judged and put in force on a thread of its own, because that
//! asks code of users what it sets of its controllers: code that may block for ever, and that finds the runtime of the
//! reconciles around it. A file is accepted as a whole or not at all. Of one that is
//! accepted, the keys that can be applied live are in force at once and for all controllers together; the others are
//! named, and wait for the next start.
//!
//! # Invariants
//! 1. A file that is refused changes nothing but what is said about it: the log, the metrics, an Event, the inspection.
//! 2. One file at a time is judged, in the order in which they were read.
//! 3. What is logged is changed together with what is told of it, by one at a time.

mod metrics;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info, warn};

use super::control::Job;
use super::members::Members;
use super::{Manager, ManagerOptions, SetLogLevel, Shared};
use crate::client::{EventType, Recorder};
use crate::config::{
    Change, ConfigSource, Difference, Loaded, LogFilter, ManagerConfiguration, RefusedFile, ReloadStatus,
    Section, SectionError, Setting,
};
use crate::controller::InCode;
use crate::inspect;
use crate::key::{Chain, panic_text};
use crate::metrics::Registry;
use crate::reconcile::BoxError;
use crate::util::Follower;

use metrics::{Outcome, ReloadMetrics};

/// What Events are recorded about: this is done to the configuration.
const ACTION: &str = "Reload";
/// Problems in the log and in an Event; the inspection shows the others.
const LOGGED: usize = 10;
/// How long a file may be judged before somebody is told that code of a controller does not come back.
const PATIENCE: Duration = Duration::from_secs(10);
/// Code of controllers is caught; what is left is our own.
const PANICKED: &str = "reading it panicked";
/// What a manager may have no say in.
const LOG_LEVEL: &str = "logging.level";

/// Puts configurations in force. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct Reloads {
    members: Members,
    status: watch::Sender<ReloadStatus>,
    /// Kept while the log and what `status` says of it change.
    log_turn: Arc<Mutex<()>>,
    /// `None` where the program has set up its logs by itself.
    log: Option<Arc<dyn SetLogLevel>>,
    metrics: ReloadMetrics,
    events: Recorder,
    /// `None` outside a cluster.
    pod: Option<ObjectReference>,
    /// What the file is followed by; `None` if none is.
    source: Option<ConfigSource>,
    /// The runtime of the reconciles.
    work: Option<Handle>,
}

// === impl Manager ===

impl Manager {
    /// Returns the configuration in force.
    pub fn configuration(&self) -> Arc<ManagerConfiguration> {
        self.shared.members.configuration()
    }

    /// Returns the configuration in force, and tells of every change. The channel ends with the last handle of the
    /// manager.
    ///
    /// ```no_run
    /// # async fn follow(manager: &mainstay::manager::Manager) {
    /// let mut configurations = manager.configurations();
    /// while configurations.changed().await.is_ok() {
    ///     println!("{:?}", configurations.borrow_and_update().shutdown);
    /// }
    /// # }
    /// ```
    pub fn configurations(&self) -> watch::Receiver<Arc<ManagerConfiguration>> {
        self.shared.members.configurations()
    }

    /// Returns a section of the program, and follows it: the channel has the value in force, and each new one while the file
    /// is followed. Keys of the section that apply at the next start keep the values of this start.
    ///
    /// # Errors
    /// If the program has not declared the section, or with another type; see
    /// [`ConfigSchema::section`](crate::config::ConfigSchema::section).
    pub fn section<S: Section>(&self, name: &str) -> Result<watch::Receiver<Arc<S>>, SectionError> {
        self.shared.members.section(name)
    }

    /// Tells how the configuration stands: what is in force, what waits for a restart, and what was refused.
    pub fn reload_status(&self) -> watch::Receiver<ReloadStatus> {
        self.shared.reloads.reload_status()
    }

    /// Logs by another filter until `logging.level` of the file becomes another one.
    ///
    /// # Errors
    /// If the manager was given no [`ManagerOptions::log`].
    pub fn set_log_level(&self, filter: LogFilter) -> Result<(), BoxError> {
        self.shared.reloads.set_log_level(filter)
    }
}

// === impl Reloads ===

impl Reloads {
    pub(super) fn new(
        options: &ManagerOptions,
        loaded: Loaded,
        members: Members,
        events: Recorder,
        registry: &Registry,
    ) -> Self {
        let source = options.source.clone().filter(can_be_followed);
        let file = source.as_ref().map(|source| source.file().to_owned());
        let metrics = ReloadMetrics::register(registry);
        metrics.accepted(0, Timestamp::now());
        Self {
            status: watch::Sender::new(ReloadStatus::new(file, loaded.into())),
            log_turn: Arc::default(),
            members,
            log: options.log.clone(),
            metrics,
            events,
            pod: options.pod.clone(),
            source,
            work: Handle::try_current().ok(),
        }
    }

    /// Tells how the configuration stands.
    pub(super) fn reload_status(&self) -> watch::Receiver<ReloadStatus> {
        self.status.subscribe()
    }

    /// Logs by another filter until `logging.level` of the file becomes another one.
    ///
    /// # Errors
    /// If the logs are not the manager's to change.
    pub(super) fn set_log_level(&self, filter: LogFilter) -> Result<(), BoxError> {
        let _turn = self.log_turn.lock();
        self.set_log(&filter)?;
        self.status.send_modify(|status| status.log_level = Some(filter));
        Ok(())
    }

    fn set_log(&self, filter: &LogFilter) -> Result<(), BoxError> {
        self.log.as_ref().ok_or("the program has set up its logs by itself")?.set_log_level(filter)
    }

    /// Returns every key of every controller there is, with what its code sets. Calls code of users.
    pub(super) fn controllers(&self, loaded: &Loaded) -> Vec<Setting> {
        let of = |(name, code): (Arc<str>, InCode)| {
            let asked =
                catch_unwind(AssertUnwindSafe(|| loaded.controller(&name, |below| code.apply(below))));
            asked.unwrap_or_else(|panic| {
                let panic = panic_text(&*panic);
                warn!(controller = &*name, panic, "what its code sets cannot be shown: it panicked");
                Vec::new()
            })
        };
        self.members.codes().into_iter().flat_map(of).collect()
    }

    /// Returns what changes the log level by hand; `None` where the logs are not the manager's to change.
    pub(super) fn log_level(&self) -> Option<Box<inspect::SetLogLevel>> {
        self.log.as_ref()?;
        let reloads = self.clone();
        Some(Box::new(move |filter| {
            reloads.set_log_level(filter).map_err(|error| Chain(&*error).to_string())
        }))
    }

    /// Follows the file until `stop`.
    async fn follow(self, source: ConfigSource, stop: CancellationToken) {
        let mut follower = Follower::new([source.file().to_owned()]);
        let mut first = true;
        while let Some([read]) = stop.run_until_cancelled(follower.next()).await {
            let not_utf8 =
                |_| io::Error::new(io::ErrorKind::InvalidData, "stream did not contain valid UTF-8");
            let read = read.and_then(|bytes| String::from_utf8(bytes).map_err(not_utf8));
            match stop.run_until_cancelled(self.judge(source.clone(), read)).await {
                // What was there at the start is no news.
                Some(Ok(Outcome::Unchanged)) if first => {}
                Some(Ok(outcome)) => self.metrics.count(outcome),
                Some(Err(problem)) => {
                    self.refuse(vec![problem]);
                    self.metrics.count(Outcome::Refused);
                }
                None => return,
            }
            first = false;
        }
    }

    /// Has what was read judged on a thread of its own: nobody waits for that at the end of the process.
    async fn judge(&self, source: ConfigSource, read: io::Result<String>) -> Result<Outcome, String> {
        let (tell, mut outcome) = oneshot::channel();
        let reloads = self.clone();
        let judge = move || {
            let _within = reloads.work.as_ref().map(Handle::enter);
            // Nobody listens any more where the manager has stopped.
            tell.send(reloads.take(&source, read)).ok();
        };
        let spawned = thread::Builder::new().name("mainstay-config".to_owned()).spawn(judge);
        spawned.map_err(|error| format!("there is no thread to read it on: {error}"))?;
        if let Ok(told) = timeout(PATIENCE, &mut outcome).await {
            return told.map_err(|_| PANICKED.to_owned());
        }
        warn!(
            file = self.file(),
            "the configuration is still being read after {PATIENCE:?}: code of a controller does not come back"
        );
        outcome.await.map_err(|_| PANICKED.to_owned())
    }

    /// Judges what was read, puts it in force if it is good, and says what has come of it.
    fn take(&self, source: &ConfigSource, read: io::Result<String>) -> Outcome {
        let parsed = source.parse(read).map_err(|error| error.lines());
        match parsed.and_then(|next| self.accept(next)) {
            Ok(outcome) => outcome,
            Err(problems) => {
                self.refuse(problems);
                Outcome::Refused
            }
        }
    }

    fn accept(&self, loaded: Loaded) -> Result<Outcome, Vec<String>> {
        let (before, next) = (self.members.configuration(), &loaded.configuration);
        let in_force = before.reloaded(next);
        // Values that wait for the next start may not go with the new ones of the same section.
        let problems = in_force.sections.problems();
        if !problems.is_empty() {
            return Err(problems.iter().map(|problem| format!("until the next start: {problem}")).collect());
        }
        self.members.reconfigure(in_force)?;
        let mut change = Change::between(&before, next);
        let level = (next.logging.level != before.logging.level).then(|| next.logging.level.clone());
        let turn = self.log_turn.lock();
        let kept = level.as_ref().and_then(|level| self.set_log(level).err());
        let kept = kept.map(|error| Chain(&*error).to_string());
        let mut outcome = Outcome::Applied;
        self.status.send_modify(|status| {
            if status.accepted.configuration == loaded.configuration && status.refused.is_none() {
                outcome = Outcome::Unchanged;
            }
            status.accepted = loaded.into();
            status.accepted_at = Instant::now();
            status.refused = None;
            if level.is_some() && kept.is_none() {
                status.log_level = None;
            }
        });
        drop(turn);
        self.metrics.accepted(change.restart.len(), Timestamp::now());
        if kept.is_some() {
            change.live.retain(|difference| difference.path != LOG_LEVEL);
        }
        if outcome == Outcome::Applied {
            self.tell_of(&change, kept.as_deref());
        }
        Ok(outcome)
    }

    /// Says what was applied, what waits, and why the log level is not among it.
    fn tell_of(&self, change: &Change, level_kept: Option<&str>) {
        let list = |differences: &[Difference]| {
            differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let (changed, restart) = (list(&change.live), list(&change.restart));
        let kept = level_kept.map(|reason| format!("{LOG_LEVEL}: {reason}"));
        let file = self.file();
        info!(file, changed, restart, not_applied = kept, "configuration applied");
        let now = if changed.is_empty() { "nothing changed at once" } else { &changed };
        let later =
            if restart.is_empty() { String::new() } else { format!("; at the next start: {restart}") };
        let kept = kept.map_or_else(String::new, |kept| format!("; not applied: {kept}"));
        let note = format!("{file}: {now}{later}{kept}");
        self.record(EventType::Normal, "ConfigApplied", &note);
    }

    /// Says that a file was refused. The configuration in force stays.
    fn refuse(&self, problems: Vec<String>) {
        let text = summary(&problems);
        error!(file = self.file(), error = text, "configuration refused; the one in force stays");
        self.record(EventType::Warning, "ConfigRefused", &text);
        self.metrics.refused();
        self.status.send_modify(|status| {
            status.refused = Some(RefusedFile { at: Instant::now(), problems });
        });
    }

    fn record(&self, kind: EventType, reason: &str, note: &str) {
        if let Some(pod) = &self.pod {
            self.events.event(pod, kind, reason, ACTION, note);
        } else {
            debug!(reason, "no Event: this process does not know the Pod it runs in");
        }
    }

    fn file(&self) -> String {
        self.status.borrow().file.as_ref().map_or_else(String::new, |file| file.display().to_string())
    }
}

// === impl Shared ===

impl Shared {
    /// What follows the file of the configuration, if there is one.
    pub(super) fn follower(&self, stop: &CancellationToken) -> Option<Job> {
        let (source, reloads, stop) = (self.reloads.source.clone()?, self.reloads.clone(), stop.clone());
        let follow = move || async move {
            reloads.follow(source, stop).await;
            Ok(())
        };
        Some(Job::new("config", follow))
    }
}

/// Returns the first of the problems, on one line.
fn summary(problems: &[String]) -> String {
    match problems.split_at_checked(LOGGED) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{}; and more, which /debug/config shows", first.join("; "))
        }
        _ => problems.join("; "),
    }
}

/// Whether a file can be read again as often as one likes. What comes out of a pipe comes once, and is none.
fn can_be_followed(source: &ConfigSource) -> bool {
    let file = source.file();
    // One that cannot be looked at now may be there again later.
    let other = file.metadata().is_ok_and(|found| !found.is_file());
    if other {
        info!(file = %file.display(), "the configuration is not followed: it is no regular file");
    }
    !other
}

#[cfg(test)]
mod tests;
