//! Changes of the configuration while the manager runs.
//!
//! The control thread follows the file. A new version is validated and put in force on a thread of its own,
//! because that calls user code, which may block for ever and needs the runtime of the reconciles. A file is
//! accepted as a whole or not at all. Its live keys are in force at once and for all controllers together;
//! the other keys are reported, and take effect at the next start.
//!
//! # Invariants
//! 1. A refused file is only reported, in the log, the metrics, an Event and the debug page. It changes no
//!    setting.
//! 2. Files are validated one at a time, in the order in which they were read.
//! 3. The log filter and its status change together, one change at a time.

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

/// The action in the Events about a reload of the configuration.
const ACTION: &str = "Reload";
/// Most problems of a refused configuration file in the log and in an Event; the debug page shows all.
const LOGGED: usize = 10;
/// Time after which the log reports that the validation of a configuration file has not returned.
const PATIENCE: Duration = Duration::from_secs(10);
/// The problem reported when the validation of a configuration file panicked. Panics of user code are caught
/// before; this is one of the runtime.
const PANICKED: &str = "reading it panicked";
/// The key of the log filter, which is not applied if the program has set up its own log.
const LOG_LEVEL: &str = "logging.level";

/// Reloads the configuration of a manager and puts it in force. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct Reloads {
    members: Members,
    status: watch::Sender<ReloadStatus>,
    /// Held while the log filter of the process and its status change.
    log_turn: Arc<Mutex<()>>,
    /// Changes the log filter of the process; `None` if the program has set up its own log.
    log: Option<Arc<dyn SetLogLevel>>,
    metrics: ReloadMetrics,
    events: Recorder,
    /// The Pod of this process, for Events about the configuration; `None` outside a cluster.
    pod: Option<ObjectReference>,
    /// The configuration file to follow; `None` without a file, or if it can be read only once.
    source: Option<ConfigSource>,
    /// The runtime of the reconciles, in which user code is called.
    work: Option<Handle>,
}

// === impl Manager ===

impl Manager {
    /// Returns the configuration of the manager that is in force.
    pub fn configuration(&self) -> Arc<ManagerConfiguration> {
        self.shared.members.configuration()
    }

    /// Returns a channel that publishes the configuration of the manager that is in force. It closes with the
    /// last handle of the manager.
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

    /// Returns a channel that publishes the value of a section of the program's configuration. Keys of the
    /// section that apply at the next start keep the values of this start.
    ///
    /// # Errors
    /// The program has not declared the section, or with another type; see
    /// [`ConfigSchema::section`](crate::config::ConfigSchema::section).
    pub fn section<S: Section>(&self, name: &str) -> Result<watch::Receiver<Arc<S>>, SectionError> {
        self.shared.members.section(name)
    }

    /// Returns a channel with the status of the manager's configuration: the values in force, those that wait
    /// for a restart, and a refused file.
    pub fn reload_status(&self) -> watch::Receiver<ReloadStatus> {
        self.shared.reloads.reload_status()
    }

    /// Sets the log filter of the process until `logging.level` of the configuration file changes.
    ///
    /// # Errors
    /// The manager has no [`ManagerOptions::log`].
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

    /// Returns a channel with the status of the configuration: values in force and a refused file.
    pub(super) fn reload_status(&self) -> watch::Receiver<ReloadStatus> {
        self.status.subscribe()
    }

    /// Sets the log filter of the process until `logging.level` of the configuration file changes.
    ///
    /// # Errors
    /// The program has set up its own log.
    pub(super) fn set_log_level(&self, filter: LogFilter) -> Result<(), BoxError> {
        let _turn = self.log_turn.lock();
        self.set_log(&filter)?;
        self.status.send_modify(|status| status.log_level = Some(filter));
        Ok(())
    }

    fn set_log(&self, filter: &LogFilter) -> Result<(), BoxError> {
        self.log.as_ref().ok_or("the program has set up its own log")?.set_log_level(filter)
    }

    /// Returns the settings of every controller, with the changes of its code. Calls user code.
    pub(super) fn controllers(&self, loaded: &Loaded) -> Vec<Setting> {
        let of = |(name, code): (Arc<str>, InCode)| {
            let asked =
                catch_unwind(AssertUnwindSafe(|| loaded.controller(&name, |below| code.apply(below))));
            asked.unwrap_or_else(|panic| {
                let panic = panic_text(&*panic);
                warn!(controller = &*name, panic, "its settings cannot be shown, because its code panicked");
                Vec::new()
            })
        };
        self.members.codes().into_iter().flat_map(of).collect()
    }

    /// Returns the function that sets the log level by hand; `None` if the program has set up its own log.
    pub(super) fn log_level(&self) -> Option<Box<inspect::SetLogLevel>> {
        self.log.as_ref()?;
        let reloads = self.clone();
        Some(Box::new(move |filter| {
            reloads.set_log_level(filter).map_err(|error| Chain(&*error).to_string())
        }))
    }

    /// Follows the configuration file until `stop`, and applies each version that is valid.
    async fn follow(self, source: ConfigSource, stop: CancellationToken) {
        let mut follower = Follower::new([source.file().to_owned()]);
        let mut first = true;
        while let Some([read]) = stop.run_until_cancelled(follower.next()).await {
            let read = read.and_then(|bytes| io::read_to_string(&*bytes));
            let judged = stop.run_until_cancelled(self.judge(source.clone(), read)).await;
            let Some(judged) = judged else { return };
            let outcome = judged.unwrap_or_else(|problem| self.refuse(vec![problem]));
            // The version at the start is no change.
            if !first || outcome != Outcome::Unchanged {
                self.metrics.count(outcome);
            }
            first = false;
        }
    }

    /// Validates a version of the configuration file on a thread of its own, which the end of the process
    /// does not wait for, and puts it in force if it is valid.
    async fn judge(&self, source: ConfigSource, read: io::Result<String>) -> Result<Outcome, String> {
        let (tell, mut outcome) = oneshot::channel();
        let reloads = self.clone();
        let judge = move || {
            let _within = reloads.work.as_ref().map(Handle::enter);
            // The receiver is dropped once the manager has stopped.
            tell.send(reloads.take(&source, read)).ok();
        };
        let spawned = thread::Builder::new().name("mainstay-config".to_owned()).spawn(judge);
        spawned.map_err(|error| format!("no thread could be started to read it: {error}"))?;
        if let Ok(told) = timeout(PATIENCE, &mut outcome).await {
            return told.map_err(|_| PANICKED.to_owned());
        }
        warn!(
            file = self.file(),
            "the validation of the configuration takes longer than {PATIENCE:?}: \
             a controller's settings callback has not returned"
        );
        outcome.await.map_err(|_| PANICKED.to_owned())
    }

    /// Validates a version of the configuration file, puts it in force if it is valid, and reports the
    /// result.
    fn take(&self, source: &ConfigSource, read: io::Result<String>) -> Outcome {
        let parsed = source.parse(read).map_err(|error| error.lines());
        parsed.and_then(|next| self.accept(next)).unwrap_or_else(|problems| self.refuse(problems))
    }

    fn accept(&self, loaded: Loaded) -> Result<Outcome, Vec<String>> {
        let (before, next) = (self.members.configuration(), &loaded.configuration);
        let in_force = before.reloaded(next);
        // A section mixes live values and values of this start, which may contradict each other.
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

    /// Reports, in the log and as an Event, the applied keys, those that wait for a restart, and why the log
    /// level was not applied.
    fn tell_of(&self, change: &Change, level_kept: Option<&str>) {
        let list = |differences: &[Difference]| {
            differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let (changed, restart) = (list(&change.live), list(&change.restart));
        let kept = level_kept.map(|reason| format!("{LOG_LEVEL}: {reason}"));
        let file = self.file();
        info!(file, changed, restart, not_applied = kept, "configuration applied");
        let now = if changed.is_empty() { "no live key changed" } else { &changed };
        let later =
            if restart.is_empty() { String::new() } else { format!("; at the next start: {restart}") };
        let kept = kept.map_or_else(String::new, |kept| format!("; not applied: {kept}"));
        let note = format!("{file}: {now}{later}{kept}");
        self.record(EventType::Normal, "ConfigApplied", &note);
    }

    /// Reports a refused configuration file, in the log and as an Event. The configuration in force stays.
    fn refuse(&self, problems: Vec<String>) -> Outcome {
        let text = summary(&problems);
        error!(file = self.file(), error = text, "configuration refused; the one in force stays");
        self.record(EventType::Warning, "ConfigRefused", &text);
        self.metrics.refused();
        self.status.send_modify(|status| {
            status.refused = Some(RefusedFile { at: Instant::now(), problems });
        });
        Outcome::Refused
    }

    fn record(&self, kind: EventType, reason: &str, note: &str) {
        if let Some(pod) = &self.pod {
            self.events.event(pod, kind, reason, ACTION, note);
        } else {
            debug!(reason, "no Event: the Pod of this process is unknown");
        }
    }

    fn file(&self) -> String {
        self.status.borrow().file.as_ref().map_or_else(String::new, |file| file.display().to_string())
    }
}

// === impl Shared ===

impl Shared {
    /// Returns the job that follows the configuration file and applies its changes; `None` without a file,
    /// or if the file can be read only once, such as a pipe.
    pub(super) fn follower(&self, stop: &CancellationToken) -> Option<Job> {
        let (source, reloads, stop) = (self.reloads.source.clone()?, self.reloads.clone(), stop.clone());
        let follow = move || async move {
            reloads.follow(source, stop).await;
            Ok(())
        };
        Some(Job::new("config", follow))
    }
}

/// Returns the first ten problems of a configuration file on one line.
fn summary(problems: &[String]) -> String {
    match problems.split_at_checked(LOGGED) {
        Some((first, rest)) if !rest.is_empty() => {
            format!("{}; and more, which /debug/config shows", first.join("; "))
        }
        _ => problems.join("; "),
    }
}

/// Returns whether the configuration file can be read again, unlike a pipe.
fn can_be_followed(source: &ConfigSource) -> bool {
    let file = source.file();
    // A file without readable metadata may be replaced later.
    let other = file.metadata().is_ok_and(|found| !found.is_file());
    if other {
        info!(file = %file.display(), "the configuration is not followed, because it is no regular file");
    }
    !other
}

#[cfg(test)]
mod tests;
