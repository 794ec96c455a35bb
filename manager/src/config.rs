//! The configuration file: the runtime's own keys, and sections of the program.
//!
//! A file has one mapping per section. Each section is a plain type that serde reads, schemars describes and a
//! [`Section`] judges; a key that is not written has the value of the type's `Default`. The default file, the JSON Schema,
//! the bounds of values and the list of changed keys are all made from these types. Precedence is flag over file over
//! default; of controllers, code stands between the entries of all and of one ([`Controllers`]).
//!
//! # Invariants
//! 1. A file is accepted as a whole or not at all; [`ConfigError`] has the value problems of all sections.
//! 2. A default is written once, in the `Default` of a type; a bound once, in the attributes of a field.
//! 3. Every key does something: there is none for a feature that this release does not have.

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
mod overrides;
mod problem;
mod runtime;
mod schema;
mod section;
mod source;
mod standing;
mod text;
mod units;
mod words;

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;

use serde_json::Value as Json;

pub use bind::BindAddress;
pub use change::{Change, Difference};
pub use controllers::Controllers;
pub use loaded::{Loaded, Origin, Origins, Setting};
pub use log_filter::LogFilter;
pub use overrides::Overrides;
pub use problem::{ConfigError, Position, Problem};
pub use runtime::{Cache, Health, Inspect, LeaderElection, LogFormat, Logging, Metrics, Shutdown};
pub use schema::ConfigSchema;
pub use section::{Applies, Section, SectionError};
pub(crate) use section::{Channels, Sections};
pub use source::Source;
pub use standing::{Refused, Standing};
pub use text::from_text;
pub use units::{Duration, Size};

use crate::controller::ControllerSettings;
use crate::key::is_dns_label;

use schema::RUNTIME;

/// The `apiVersion` of the file.
pub const API_VERSION: &str = "config.mainstay.dev/v1alpha1";
/// The `kind` of the file.
pub const KIND: &str = "ManagerConfiguration";
/// The file looked for in a directory, such as a mounted `ConfigMap`.
pub const FILE_NAME: &str = "manager.yaml";
/// The name under `controllers` that sets the defaults of all.
pub const EVERY_CONTROLLER: &str = "*";

/// All settings of a manager.
///
/// [`ManagerConfiguration::default`] is the meaning of a file without settings.
///
/// ```
/// use mainstay::config::{ConfigSchema, Overrides};
///
/// let read = |settings: &str| {
///     let head = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";
///     ConfigSchema::new().parse(&format!("{head}{settings}"), "manager.yaml", &Overrides::default())
/// };
///
/// let configuration = read("controllers: {\"*\": {workers: 3}, web: {queue: {retryShare: 20}}}")?.configuration;
/// let web = configuration.controller("web");
/// assert_eq!((web.workers, web.queue.retry_share), (3, 20));
///
/// // A value without the shape of its key is reported with its place: the first one of each section.
/// let error = read("shutdown: {gracePeriod: 30}\nlogging: {levle: info}").unwrap_err();
/// assert_eq!(error.lines(), [
///     "manager.yaml:3:25: shutdown.gracePeriod: 30; \
///      expected a duration such as 30s, 5ms, 2m or 1h30m, with a unit: 30s or 30ms",
///     "manager.yaml:4:11: logging.levle: unknown key, set to \"info\"; did you mean level?",
/// ]);
///
/// // Values outside their bounds are reported all together.
/// let error = read("shutdown: {gracePeriod: 9h}\ncontrollers: {web: {workers: 0, queue: {retryShare: 101}}}");
/// assert_eq!(error.unwrap_err().lines(), [
///     "manager.yaml: shutdown.gracePeriod: \"9h\"; expected a duration from 1s to 1h",
///     "manager.yaml: controllers.web.queue.retryShare: 101; expected a whole number from 1 to 100",
///     "manager.yaml: controllers.web.workers: 0; expected a whole number from 1 to 1000",
/// ]);
/// # Ok::<(), mainstay::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ManagerConfiguration {
    /// Whether and how replicas agree on a leader.
    pub leader_election: LeaderElection,
    /// The server of `/livez`, `/readyz` and `/healthz`.
    pub health: Health,
    /// The server of `/metrics`.
    pub metrics: Metrics,
    /// The server of `/debug`.
    pub inspect: Inspect,
    /// Objects that are watched and kept.
    pub cache: Cache,
    /// How long stopping may take.
    pub shutdown: Shutdown,
    /// Log lines.
    pub logging: Logging,
    /// Settings of all controllers, and of single ones.
    pub controllers: Controllers,
    /// The sections of the program.
    pub(crate) sections: Sections,
}

// === impl ManagerConfiguration ===

impl ManagerConfiguration {
    /// Returns the settings of one controller, which the file need not name and whose code sets nothing. For one
    /// whose code does, see [`Controllers::settings`].
    pub fn controller(&self, name: &str) -> ControllerSettings {
        self.controllers.settings(name, |_| {})
    }

    /// Returns a section of the program.
    ///
    /// # Errors
    /// If the configuration has none of this name and type.
    pub fn section<S: Section>(&self, name: &str) -> Result<Arc<S>, SectionError> {
        self.sections.get(name)
    }

    /// Returns what holds in a process that runs by this configuration once another one was loaded: values that apply
    /// live are the other's, the rest stays until the next start.
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

    /// Every value by section and key, as the file spells it. `"*"` is complete; a named controller has only what is
    /// written under its name.
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

    /// Reports everything that is wrong within one of the sections of the runtime; `tree` is the file as it is written.
    fn judge(&self, tree: &Json, problems: &mut Vec<Problem>) {
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
            declared.judge(&tree[declared.name], own, problems);
        }
    }

    /// Reports values that do not fit those of other sections.
    fn check_addresses(&self) -> Vec<Problem> {
        let servers = [
            ("health.bindAddress", self.health.bind_address),
            ("metrics.bindAddress", self.metrics.bind_address),
            ("inspect.bindAddress", self.inspect.bind_address),
        ];
        let mut problems = Vec::new();
        for (index, (path, address)) in servers.iter().enumerate() {
            let collisions = servers.iter().take(index).filter(|(_, other)| address.collides(*other));
            problems.extend(collisions.map(|(other_path, other)| {
                let text = "expected another port or host";
                Problem::message(*path, format!("{address} collides with {other_path} {other}; {text}"))
            }));
        }
        problems
    }
}

/// Returns whether a text is the name of a namespace.
pub fn is_namespace(text: &str) -> bool {
    is_dns_label(text)
}

/// Returns whether a text is a DNS name as Kubernetes takes them: lower-case labels, joined by dots.
pub fn is_dns_name(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_dns_label)
}
