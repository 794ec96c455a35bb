//! Differences between two configurations: keys that apply live, and keys that apply at the next start.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value as Json};

use super::ManagerConfiguration;
use super::controllers::RESTART;
use super::messages::child;
use super::schema::RUNTIME;
use super::section::{Applies, applies};

/// The differences between two configurations, key by key, in the order of their paths.
///
/// ```
/// use mainstay::config::{Change, ConfigSchema, Overrides};
///
/// let read = |settings: &str| {
///     let head = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";
///     let loaded =
///         ConfigSchema::new().parse(&format!("{head}{settings}"), "manager.yaml", &Overrides::default());
///     loaded.map(|loaded| loaded.configuration)
/// };
///
/// let old = read("")?;
/// let new = read("cache: {resync: 1h}\ncontrollers: {\"*\": {workers: 16}, web: {workers: 1}}")?;
/// let change = Change::between(&old, &new);
/// assert_eq!(change.live[0].to_string(), r#"controllers["*"].workers 2 -> 16"#);
/// assert_eq!(change.live[1].to_string(), "controllers.web.workers unset -> 1");
/// assert_eq!(change.restart[0].to_string(), "cache.resync 10h -> 1h");
///
/// // The configuration in force in a process that started with `old` and then loaded `new`:
/// let in_force = old.reloaded(&new);
/// assert_eq!(Change::between(&in_force, &new).restart, change.restart);
/// # Ok::<(), mainstay::config::ConfigError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Change {
    /// Changed keys with new values that apply while the process runs.
    pub live: Vec<Difference>,
    /// Changed keys with new values that apply only when the process is started again.
    pub restart: Vec<Difference>,
}

/// One configuration key with different values in two configurations.
///
/// Displays as `PATH OLD -> NEW`; an absent key is `unset`.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// The path of the changed key, such as `controllers["*"].workers`.
    pub path: String,
    /// The value of the key before the change, as the file spells it; `None` if the entry of a controller
    /// does not set the key.
    pub old: Option<Json>,
    /// The value of the key after the change; `None` if the entry of a controller does not set the key.
    pub new: Option<Json>,
}

// === impl Change ===

impl Change {
    /// Returns the differences between two configurations. Settings that controllers make in code are not
    /// part of them.
    pub fn between(old: &ManagerConfiguration, new: &ManagerConfiguration) -> Self {
        let mut differences = Vec::new();
        compare(String::new(), Some(&old.tree()), Some(&new.tree()), &mut differences);
        let (restart, live) = differences
            .into_iter()
            .partition(|difference| new.applies(&difference.path) == Applies::AtNextStart);
        Self { live, restart }
    }

    /// Returns whether the two configurations have no differences.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty() && self.restart.is_empty()
    }
}

/// Adds the keys with different values in two trees to `differences`. A mapping is compared key by key with a
/// mapping or with an absent value, and as one value with anything else.
fn compare(path: String, old: Option<&Json>, new: Option<&Json>, differences: &mut Vec<Difference>) {
    let is_mapping = |value: Option<&Json>| value.is_none_or(Json::is_object);
    if is_mapping(old) && is_mapping(new) {
        let keys = [old, new].into_iter().flatten().filter_map(Json::as_object).flat_map(Map::keys);
        for name in keys.collect::<BTreeSet<_>>() {
            let [old, new] = [old, new].map(|value| value?.get(name));
            compare(child(&path, name), old, new, differences);
        }
    } else if old != new {
        differences.push(Difference { path, old: old.cloned(), new: new.cloned() });
    }
}

/// Returns the paths of all keys of a JSON tree with their values, in the order of the paths. A list counts
/// as one value, as does an empty mapping.
pub(super) fn leaves(tree: &Json) -> Vec<(String, Json)> {
    fn collect(path: String, value: &Json, leaves: &mut Vec<(String, Json)>) {
        match value {
            Json::Object(keys) if !keys.is_empty() => {
                for (name, value) in keys {
                    collect(child(&path, name), value, leaves);
                }
            }
            value => leaves.push((path, value.clone())),
        }
    }
    let mut leaves = Vec::new();
    collect(String::new(), tree, &mut leaves);
    leaves
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
    /// Returns when a change of the key at `path` applies: at once or at the next start.
    pub(super) fn applies(&self, path: &str) -> Applies {
        let (section, rest) = path.split_at(path.find(['.', '[']).unwrap_or(path.len()));
        if section == "controllers" {
            // The key follows the controller's name, which is quoted if it is not alphanumeric.
            let after = if rest.starts_with('[') { rest.find("\"]").map(|end| end + 2) } else { None };
            let below = after.map_or_else(|| rest.trim_start_matches('.').find('.').map(|end| end + 1), Some);
            let key = below.and_then(|below| rest.get(below..)).unwrap_or_default();
            return applies(key.trim_start_matches('.'), RESTART);
        }
        let own = RUNTIME.iter().find(|declared| declared.name == section);
        let restart = own.map_or_else(|| self.sections.restart(section), |own| own.default.restart());
        applies(rest.trim_start_matches('.'), restart)
    }
}
