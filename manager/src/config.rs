//! The configuration file: the runtime's own keys, and sections of the program.
//!
//! A file has one mapping per section. Each section is a plain type: serde reads it, schemars describes it
//! and [`Section::validate`] checks it; an absent key has the value of the type's `Default`. The default
//! file, the JSON Schema, the bounds of values and the list of changed keys are all derived from these types.
//! Flags override the file, and the file overrides defaults. For controllers, code overrides the file's `"*"`
//! and the file's entry of one controller overrides code ([`Controllers`]).
//!
//! # Invariants
//! 1. A file is accepted as a whole or not at all; [`ConfigError`] has the value problems of all sections.
//! 2. A default is written once, in the `Default` of a type; a bound once, in the attributes of a field.
//! 3. Every key has an effect: a feature that this release does not have gets no key.

mod bind;
mod change;
mod check;
mod controllers;
mod default_file;
mod document;
#[cfg(any(test, fuzzing))]
#[path = "config/tests/fuzz.rs"]
pub mod fuzz;
mod loaded;
mod log_filter;
mod messages;
mod overrides;
mod problem;
mod reload_status;
mod runtime;
mod schema;
mod section;
mod sections;
mod text;
mod units;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use serde_json::Value as Json;

pub use bind::BindAddress;
pub use change::{Change, Difference};
pub use controllers::Controllers;
pub use loaded::{ConfigSource, Loaded, Origin, Origins, Setting};
pub use log_filter::LogFilter;
pub use overrides::Overrides;
pub use problem::{ConfigError, Position, Problem};
pub use reload_status::{RefusedFile, ReloadStatus};
pub use runtime::{Cache, Health, Inspect, LeaderElection, LogFormat, Logging, Metrics, Shutdown};
pub use schema::ConfigSchema;
pub use section::{Applies, Section, SectionError};
pub(crate) use sections::{Channels, Sections};
pub use text::{as_text, from_text};
pub use units::{Duration, Size};

use crate::controller::ControllerSettings;
use crate::key::is_dns_label;

use schema::RUNTIME;

/// The `apiVersion` of a manager's configuration file.
pub const API_VERSION: &str = "config.mainstay.dev/v1alpha1";
/// The `kind` of a manager's configuration file.
pub const KIND: &str = "ManagerConfiguration";
/// The name of the configuration file to read if the given path is a directory, such as a mounted
/// `ConfigMap`.
pub const FILE_NAME: &str = "manager.yaml";
/// The name under `controllers` in the configuration file for the entry that applies to every controller.
pub const EVERY_CONTROLLER: &str = "*";

/// All settings of a manager, as its configuration file has them.
///
/// [`ManagerConfiguration::default`] equals a file without settings.
///
/// ```
/// use mainstay::config::{ConfigSchema, Overrides};
///
/// let read = |settings: &str| {
///     let head = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";
///     ConfigSchema::new().parse(&format!("{head}{settings}"), "manager.yaml", &Overrides::default())
/// };
///
/// let loaded = read("controllers: {\"*\": {workers: 3}, web: {queue: {retryShare: 20}}}")?;
/// let web = loaded.configuration.controller("web");
/// assert_eq!((web.workers, web.queue.retry_share), (3, 20));
///
/// // The first value of the wrong type in each section is reported with its line and column.
/// let error = read("shutdown: {gracePeriod: 30}\nlogging: {levle: info}").unwrap_err();
/// assert_eq!(error.lines(), [
///     "manager.yaml:3:25: shutdown.gracePeriod: 30; \
///      expected a duration such as 30s, 5ms, 2m or 1h30m, with a unit: 30s or 30ms",
///     "manager.yaml:4:11: logging.levle: unknown key, set to \"info\"; did you mean level?",
/// ]);
///
/// // All values outside their bounds are reported at once.
/// let wrong = "shutdown: {gracePeriod: 9h}\ncontrollers: {web: {workers: 0, queue: {retryShare: 101}}}";
/// assert_eq!(read(wrong).unwrap_err().lines(), [
///     "manager.yaml: shutdown.gracePeriod: \"9h\"; expected a duration from 1s to 1h",
///     "manager.yaml: controllers.web.queue.retryShare: 101; expected a whole number from 1 to 100",
///     "manager.yaml: controllers.web.workers: 0; expected a whole number from 1 to 1000",
/// ]);
/// # Ok::<(), mainstay::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagerConfiguration {
    /// Settings of the election of a leader among the replicas.
    pub leader_election: LeaderElection,
    /// Settings of the server of `/livez`, `/readyz` and `/healthz`.
    pub health: Health,
    /// Settings of the server of `/metrics`.
    pub metrics: Metrics,
    /// Settings of the server of the debug pages under `/debug`.
    pub inspect: Inspect,
    /// Settings of the cache of watched objects, such as namespaces and limits of memory.
    pub cache: Cache,
    /// Settings of a shutdown: its deadline.
    pub shutdown: Shutdown,
    /// Settings of log lines: format and level.
    pub logging: Logging,
    /// Settings of all controllers, and of single controllers.
    pub controllers: Controllers,
    /// The sections that the program adds to the configuration file, with their values.
    pub(crate) sections: Sections,
}

// === impl ManagerConfiguration ===

impl ManagerConfiguration {
    /// Returns the settings of the controller `name`, for a controller that sets none in its code; the file
    /// need not name the controller. For settings from code see [`Controllers::settings`].
    pub fn controller(&self, name: &str) -> ControllerSettings {
        self.controllers.settings(name, |_| {})
    }

    /// Returns the value of a section that the program adds to the configuration file.
    ///
    /// # Errors
    /// If the program declares no section of this name and type.
    pub fn section<S: Section>(&self, name: &str) -> Result<Arc<S>, SectionError> {
        self.sections.get(name)
    }

    /// Returns the configuration in force after a running process has loaded `new`: live values come from
    /// `new`, all others stay as they are until the next start.
    #[must_use]
    pub fn reloaded(&self, new: &Self) -> Self {
        Self {
            shutdown: new.shutdown.clone(),
            logging: Logging { format: self.logging.format, level: new.logging.level.clone() },
            controllers: self.controllers.reloaded(&new.controllers),
            sections: self.sections.reloaded(&new.sections),
            ..self.clone()
        }
    }

    /// Returns every value of the configuration as JSON, by section and key, as the file spells it. `"*"` has
    /// all keys; a named controller has only the keys that are written under its name.
    fn tree(&self) -> Json {
        let Self { leader_election, health, metrics, inspect, cache, shutdown, logging, .. } = self;
        let mut tree = serde_json::json!({
            "leaderElection": leader_election, "health": health, "metrics": metrics, "inspect": inspect,
            "cache": cache, "shutdown": shutdown, "logging": logging, "controllers": self.controllers.tree(),
        });
        for (name, value) in self.sections.trees() {
            tree[name] = value.clone();
        }
        tree
    }

    /// Adds every problem within a single section of the runtime to `problems`; `tree` is the file as it is
    /// written.
    fn check_sections(&self, tree: &Json, problems: &mut Vec<Problem>) {
        let own = [
            self.leader_election.validate(),
            self.health.validate(),
            self.metrics.validate(),
            self.inspect.validate(),
            self.cache.validate(),
            self.shutdown.validate(),
            self.logging.validate(),
        ];
        for (declared, own) in RUNTIME.iter().zip(own) {
            declared.check(&tree[declared.name], own, problems);
        }
    }

    /// Returns a problem for each pair of servers that cannot listen at the same time.
    fn check_addresses(&self) -> impl Iterator<Item = Problem> {
        let health = ("health.bindAddress", self.health.bind_address);
        let metrics = ("metrics.bindAddress", self.metrics.bind_address);
        let inspect = ("inspect.bindAddress", self.inspect.bind_address);
        let pairs = [(metrics, health), (inspect, health), (inspect, metrics)];
        let colliding = pairs.into_iter().filter(|((_, address), (_, other))| address.collides(*other));
        colliding.map(|((path, address), (other_path, other))| {
            let text = "expected another port or host";
            Problem::message(path, format!("{address} collides with {other_path} {other}; {text}"))
        })
    }
}

/// Returns whether a text is a valid name of a namespace.
pub fn is_namespace(text: &str) -> bool {
    is_dns_label(text)
}

/// Returns whether a text is a DNS name that Kubernetes accepts: lower-case labels, joined by dots.
pub fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}
