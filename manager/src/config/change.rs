//! What two configurations differ in, and which of it a running process takes over.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value as Json;

use super::raw::RawManager;
use super::walk::Applies;
use super::written::{Written, written};
use super::{Logging, ManagerConfiguration};

/// What two configurations differ in, key by key, in the order of the file.
///
/// ```
/// use mainstay::config::{Change, ManagerConfiguration, Overrides};
///
/// let read = |settings: &str| {
///     let head = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";
///     ManagerConfiguration::parse(&format!("{head}{settings}"), "manager.yaml", &Overrides::default(), None)
/// };
///
/// let (old, new) = (read("")?, read("cache: {resync: 1h}\ncontrollers: {\"*\": {workers: 16}, web: {workers: 1}}")?);
/// let change = Change::between(&old, &new);
/// assert_eq!(change.live[0].to_string(), r#"controllers["*"].workers 2 -> 16"#);
/// assert_eq!(change.live[1].to_string(), "controllers.web.workers unset -> 1");
/// assert_eq!(change.restart[0].to_string(), "cache.resync 10h -> 1h");
///
/// // What holds in a process that was started with the old one and has been told the new one:
/// let in_force = old.reloaded(&new);
/// assert_eq!(Change::between(&in_force, &new).restart, change.restart);
/// # Ok::<(), mainstay::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// What applies while the process runs.
    pub live: Vec<Difference>,
    /// What applies when the process is started again.
    pub restart: Vec<Difference>,
}

/// One key whose value differs.
///
/// Displays as `PATH OLD -> NEW`, where nothing written is `unset`.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The key, such as `controllers["*"].workers`.
    pub path: String,
    /// The value before, as the file spells it; `None` where a controller has no such entry of its own.
    pub old: Option<Json>,
    /// The value after.
    pub new: Option<Json>,
}

// === impl Change ===

impl Change {
    /// Compares two configurations. What the code of a controller sets is in neither.
    pub fn between(old: &ManagerConfiguration, new: &ManagerConfiguration) -> Self {
        let keys = |configuration: &ManagerConfiguration| written("", &mut RawManager::from(configuration));
        let (before, after) = (keys(old), keys(new));
        let mut left: BTreeMap<&str, &Written> = before.iter().map(|key| (&*key.path, key)).collect();
        let mut change = Self::default();
        for key in &after {
            let old = left.remove(&*key.path).map(|old| &old.value);
            change.note(key, old, Some(&key.value));
        }
        // Entries of controllers that are no longer there.
        for key in before.iter().filter(|key| left.contains_key(&*key.path)) {
            change.note(key, Some(&key.value), None);
        }
        change
    }

    /// Returns whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.restart.is_empty()
    }

    fn note(&mut self, key: &Written, old: Option<&Json>, new: Option<&Json>) {
        if old == new {
            return;
        }
        let list = match key.applies {
            Applies::Live => &mut self.live,
            Applies::AtNextStart => &mut self.restart,
        };
        list.push(Difference { path: key.path.clone(), old: old.cloned(), new: new.cloned() });
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [old, new] = [&self.old, &self.new].map(|value| match value {
            None => "unset".to_owned(),
            Some(Json::String(text)) if !text.is_empty() => text.clone(),
            Some(value) => value.to_string(),
        });
        write!(f, "{} {old} -> {new}", self.path)
    }
}

// === impl ManagerConfiguration ===

impl ManagerConfiguration {
    /// Returns what holds in a process that runs by this configuration once another one was loaded: what applies live is
    /// the other's, the rest stays until the next start.
    #[must_use]
    pub fn reloaded(&self, new: &Self) -> Self {
        Self {
            leader_election: self.leader_election.clone(),
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            inspect: self.inspect.clone(),
            cache: self.cache.clone(),
            shutdown: new.shutdown.clone(),
            logging: Logging { format: self.logging.format, level: new.logging.level.clone() },
            probe_policy: new.probe_policy.clone(),
            wait_deployment: self.wait_deployment.clone(),
            controllers: new.controllers.clone(),
        }
    }
}
