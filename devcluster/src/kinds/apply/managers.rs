//! The entries of `metadata.managedFields`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::field_set::FieldSet;

/// The largest number of update entries. Older entries are combined when there are more.
const MAX_UPDATERS: usize = 10;
/// The manager name of combined entries.
const ANCIENT: &str = "ancient-changes";

/// The identity of an entry: two writes with equal identities share one entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) manager: String,
    /// The version of an update; `None` for an apply, because all versions of an apply share one entry.
    pub(super) update: Option<String>,
    pub(super) subresource: String,
}

/// The fields that a manager owns: one entry of `metadata.managedFields`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) id: Id,
    pub(super) api_version: String,
    pub(super) fields: FieldSet,
    pub(super) time: Option<Timestamp>,
}

/// All entries of an object, unordered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Managers {
    pub(super) owners: Vec<Owner>,
}

impl Id {
    /// Returns the sort key of the manager: its JSON form. It orders conflicts, and updates with the same
    /// time.
    pub(super) fn order(&self) -> String {
        let operation = if self.update.is_some() { "Update" } else { "Apply" };
        let version = self.update.as_ref().map(|version| format!(",\"apiVersion\":{version:?}"));
        let subresource = match self.subresource.as_str() {
            "" => String::new(),
            subresource => format!(",\"subresource\":{subresource:?}"),
        };
        let version = version.unwrap_or_default();
        format!("{{\"manager\":{:?},\"operation\":\"{operation}\"{version}{subresource}}}", self.manager)
    }

    /// Returns the manager in the form that conflict messages use.
    pub(super) fn display(&self) -> String {
        let subresource = match self.subresource.as_str() {
            "" => String::new(),
            subresource => format!(" with subresource {subresource:?}"),
        };
        let version = self.update.as_ref().map(|version| format!(" using {version}")).unwrap_or_default();
        format!("{:?}{subresource}{version}", self.manager)
    }
}

impl Managers {
    /// Decodes the entries of `metadata.managedFields`.
    ///
    /// # Errors
    ///
    /// Returns the reason for the first invalid entry.
    pub(super) fn decode(entries: &Value) -> Result<Self, String> {
        let mut managers = Self::default();
        for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let text = |name| entry.get(name).and_then(Value::as_str).unwrap_or_default();
            let operation = text("operation");
            if !matches!(operation, "Apply" | "Update") {
                return Err("operation must be `Apply` or `Update`".to_owned());
            }
            let api_version = text("apiVersion").to_owned();
            if api_version.is_empty() {
                return Err("apiVersion must not be empty".to_owned());
            }
            match text("fieldsType") {
                "FieldsV1" => {}
                "" => return Err(format!("missing fieldsType in managed fields entry {index}")),
                other => {
                    return Err(format!("invalid fieldsType {other:?} in managed fields entry {index}"));
                }
            }
            let fields = match entry.get("fieldsV1") {
                None | Some(Value::Null) => FieldSet::default(),
                Some(fields) => FieldSet::from_json(fields)?,
            };
            let id = Id {
                manager: text("manager").to_owned(),
                update: (operation == "Update").then(|| api_version.clone()),
                subresource: text("subresource").to_owned(),
            };
            managers.set(Owner { id, api_version, fields, time: text("time").parse().ok() });
        }
        Ok(managers)
    }

    /// Returns the value of `metadata.managedFields`, sorted like the real server's; `None` without entries.
    pub(super) fn encode(mut self) -> Option<Value> {
        self.owners.sort_by(|a, b| sort_key(a).cmp(&sort_key(b)));
        let entries: Vec<_> = self.owners.iter().map(encode).collect();
        (!entries.is_empty()).then_some(Value::Array(entries))
    }

    pub(super) fn get(&self, id: &Id) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.id == *id)
    }

    /// Adds an entry, or replaces the entry with the same identity.
    pub(super) fn set(&mut self, owner: Owner) {
        match self.owners.iter_mut().find(|present| present.id == owner.id) {
            Some(present) => *present = owner,
            None => self.owners.push(owner),
        }
    }

    /// Removes and returns the entry with this identity; `None` if there is none.
    pub(super) fn take(&mut self, id: &Id) -> Option<Owner> {
        let index = self.owners.iter().position(|owner| owner.id == *id)?;
        Some(self.owners.swap_remove(index))
    }

    /// Combines the oldest updates of the same version until at most [`MAX_UPDATERS`] remain.
    pub(super) fn cap(&mut self) {
        let updaters = self.owners.iter().filter(|owner| owner.id.update.is_some());
        let mut excess = updaters.clone().count().saturating_sub(MAX_UPDATERS);
        if excess == 0 {
            return;
        }
        let mut updaters: Vec<_> = updaters.cloned().collect();
        updaters.sort_by_cached_key(|owner| (seconds(owner.time), owner.id.order()));
        let mut first_of_version = BTreeMap::new();
        for updater in updaters {
            if excess == 0 {
                return;
            }
            let version = updater.api_version.clone();
            let Some(first) = first_of_version.get(&version) else {
                first_of_version.insert(version, updater.id);
                continue;
            };
            let bucket =
                Id { manager: ANCIENT.to_owned(), update: Some(version), subresource: String::new() };
            if self.get(&bucket).is_none()
                && let Some(owner) = self.take(first)
            {
                self.set(Owner { id: bucket.clone(), ..owner });
            }
            let earlier = self.get(&bucket).map(|owner| owner.fields.union(&updater.fields));
            self.take(&updater.id);
            let fields = earlier.unwrap_or_else(|| updater.fields.clone());
            self.set(Owner { id: bucket, fields, ..updater });
            excess -= 1;
        }
    }
}

/// The order of entries: applies before updates, then by time, then by name.
fn sort_key(owner: &Owner) -> impl Ord {
    let Id { manager, update, subresource } = &owner.id;
    (update.is_some(), seconds(owner.time), manager, &owner.api_version, subresource)
}

fn seconds(time: Option<Timestamp>) -> i64 {
    time.map_or(0, Timestamp::as_second)
}

fn encode(owner: &Owner) -> Value {
    let mut entry = Map::new();
    let operation = if owner.id.update.is_some() { "Update" } else { "Apply" };
    entry.insert("manager".to_owned(), owner.id.manager.clone().into());
    entry.insert("operation".to_owned(), operation.into());
    entry.insert("apiVersion".to_owned(), owner.api_version.clone().into());
    if let Some(time) = owner.time {
        entry.insert("time".to_owned(), time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into());
    }
    entry.insert("fieldsType".to_owned(), "FieldsV1".into());
    entry.insert("fieldsV1".to_owned(), owner.fields.to_json());
    if !owner.id.subresource.is_empty() {
        entry.insert("subresource".to_owned(), owner.id.subresource.clone().into());
    }
    Value::Object(entry)
}

/// Returns whether the value drops all entries: an empty list, or a list of one empty entry.
pub(super) fn is_reset(entries: &Value) -> bool {
    *entries == json!([]) || *entries == json!([{}])
}
