//! Another configuration for a manager that runs.
//!
//! The file is followed on the control thread; what is read is judged and put in force on a blocking thread, because that
//! asks code of users what it sets of its controllers. A file is accepted as a whole or not at all. Of one that is
//! accepted, the keys that can be applied live are in force at once and for all controllers together; the others are
//! named, and wait for the next start.
//!
//! # Invariants
//! 1. A file that is refused changes nothing but what is said about it: the log, the metrics, an Event, the inspection.
//! 2. One file at a time is judged, in the order in which they were read.

mod metrics;

use std::io;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, info};

use super::control::Job;
use super::members::Members;
use super::{Manager, ManagerOptions, Shared};
use crate::cli::logging::{LogHandle, LoggingError};
use crate::client::{EventType, Recorder};
use crate::config::{
    Change, Difference, Follower, Loaded, LogFilter, ManagerConfiguration, Refused, Source, Standing,
};
use crate::key::Chain;
use crate::metrics::Registry;

use metrics::{Outcome, ReloadMetrics};

/// What Events are recorded about: this is done to the configuration.
const ACTION: &str = "Reload";

/// Puts configurations in force. Cheap to clone; all clones are one.
#[derive(Clone)]
pub(super) struct Reloads {
    members: Members,
    standing: watch::Sender<Standing>,
    /// `None` where the program has set up its logs by itself.
    log: Option<LogHandle>,
    metrics: ReloadMetrics,
    events: Recorder,
    /// `None` outside a cluster.
    pod: Option<ObjectReference>,
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
    ///     println!("{:?}", configurations.borrow_and_update().probe_policy);
    /// }
    /// # }
    /// ```
    pub fn configurations(&self) -> watch::Receiver<Arc<ManagerConfiguration>> {
        self.shared.members.configurations()
    }

    /// Tells how the configuration stands: what is in force, what waits for a restart, and what was refused.
    pub fn standing(&self) -> watch::Receiver<Standing> {
        self.shared.reloads.standing()
    }

    /// Logs by another filter until `logging.level` of the file becomes another one.
    ///
    /// # Errors
    /// If the manager was given no [`ManagerOptions::log`].
    pub fn set_log_level(&self, filter: LogFilter) -> Result<(), LoggingError> {
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
        let file = options.source.as_ref().map(|source| source.file().to_owned());
        let metrics = ReloadMetrics::register(registry);
        metrics.accepted(0, Timestamp::now());
        Self {
            standing: watch::Sender::new(Standing::new(file, loaded.into())),
            members,
            log: options.log.clone(),
            metrics,
            events,
            pod: options.pod.clone(),
        }
    }

    /// Tells how the configuration stands.
    pub(super) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// Logs by another filter until `logging.level` of the file becomes another one.
    ///
    /// # Errors
    /// If the logs are not the manager's to change.
    pub(super) fn set_log_level(&self, filter: LogFilter) -> Result<(), LoggingError> {
        self.log.as_ref().ok_or(LoggingError::Gone)?.set(&filter)?;
        self.standing.send_modify(|standing| standing.log_level = Some(filter));
        Ok(())
    }

    /// Returns what changes the log level by hand; `None` where the logs are not the manager's to change.
    pub(super) fn log_level(&self) -> Option<impl Fn(LogFilter) -> Result<(), String> + use<>> {
        self.log.as_ref()?;
        let reloads = self.clone();
        Some(move |filter| reloads.set_log_level(filter).map_err(|error| Chain(&error).to_string()))
    }

    /// Follows the file until `stop`.
    async fn follow(self, source: Source, stop: CancellationToken) {
        let mut follower = Follower::new(source.file().to_owned());
        let mut first = true;
        while let Some(read) = stop.run_until_cancelled(follower.next()).await {
            let (reloads, source) = (self.clone(), source.clone());
            let outcome = spawn_blocking(move || reloads.take(&source, read));
            match stop.run_until_cancelled(outcome).await {
                // What was there at the start is no news.
                Some(Ok(Outcome::Unchanged)) if first => {}
                Some(Ok(outcome)) => self.metrics.count(outcome),
                Some(Err(panic)) => {
                    self.refuse(vec![format!("reading it panicked: {panic}")]);
                    self.metrics.count(Outcome::Refused);
                }
                None => return,
            }
            first = false;
        }
    }

    /// Judges what was read, puts it in force if it is good, and says what has come of it.
    fn take(&self, source: &Source, read: io::Result<String>) -> Outcome {
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
        self.members.reconfigure(before.reloaded(next))?;
        let change = Change::between(&before, next);
        let level = (next.logging.level != before.logging.level).then(|| next.logging.level.clone());
        if let (Some(log), Some(level)) = (&self.log, &level)
            && let Err(error) = log.set(level)
        {
            error!(error = %Chain(&error), "the log level of the configuration cannot be applied");
        }
        let mut outcome = Outcome::Applied;
        self.standing.send_modify(|standing| {
            if standing.accepted.configuration == loaded.configuration && standing.refused.is_none() {
                outcome = Outcome::Unchanged;
            }
            standing.accepted = loaded.into();
            standing.accepted_at = Instant::now();
            standing.refused = None;
            if level.is_some() {
                standing.log_level = None;
            }
        });
        self.metrics.accepted(change.restart.len(), Timestamp::now());
        if outcome == Outcome::Applied {
            self.tell_of(&change);
        }
        Ok(outcome)
    }

    fn tell_of(&self, change: &Change) {
        let list = |differences: &[Difference]| {
            differences.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let (changed, restart) = (list(&change.live), list(&change.restart));
        let file = self.file();
        info!(file, changed, restart, "configuration applied");
        let now = if changed.is_empty() { "nothing changed at once" } else { &changed };
        let later =
            if restart.is_empty() { String::new() } else { format!("; at the next start: {restart}") };
        let note = format!("{file}: {now}{later}");
        self.record(EventType::Normal, "ConfigApplied", &note);
    }

    /// Says that a file was refused. The configuration in force stays.
    fn refuse(&self, problems: Vec<String>) {
        let text = problems.join("; ");
        error!(file = self.file(), error = text, "configuration refused; the one in force stays");
        self.record(EventType::Warning, "ConfigRefused", &text);
        self.metrics.refused();
        self.standing.send_modify(|standing| {
            standing.refused = Some(Refused { at: Instant::now(), problems });
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
        self.standing.borrow().file.as_ref().map_or_else(String::new, |file| file.display().to_string())
    }
}

// === impl Shared ===

impl Shared {
    /// What follows the file of the configuration, if there is one.
    pub(super) fn follower(&self, stop: &CancellationToken) -> Option<Job> {
        let (source, reloads, stop) = (self.options.source.clone()?, self.reloads.clone(), stop.clone());
        let follow = move || async move {
            reloads.follow(source, stop).await;
            Ok(())
        };
        Some(Job::new("config", follow))
    }
}

#[cfg(test)]
mod tests;
