//! The ownership of `replicas`, a field that an object and its `scale` subresource share.

use serde_json::Value;

use super::element::Element;
use super::field_set::FieldSet;
use super::managers::{Managers, Owner};

const SCALE_VERSION: &str = "autoscaling/v1";

/// The paths of `replicas` in the versions of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Scale<'a> {
    /// The version of the request, as in `apps/v1`.
    pub api_version: &'a str,
    /// The path of replicas in each served version; `None` for a version without a `scale` subresource.
    pub replicas: &'a [(String, Option<Vec<String>>)],
}

impl Scale<'_> {
    /// Returns the `managedFields` of the Scale: the entries of the object that own its replicas. `None` if
    /// no entry does.
    #[must_use]
    pub fn from_object(&self, entries: &Value) -> Option<Value> {
        let mut managers = Managers::decode(entries).unwrap_or_default();
        managers.owners.retain_mut(|owner| {
            let owns = self.path(&owner.api_version).is_some_and(|path| owner.fields.contains(&path));
            SCALE_VERSION.clone_into(&mut owner.api_version);
            owner.fields = replicas();
            owns
        });
        managers.encode()
    }

    /// Returns the `managedFields` of the object after a write to its Scale. `scale` has the entries of the
    /// written Scale; `entries` has those of the object before. `None` if no entry remains.
    #[must_use]
    pub fn to_object(&self, entries: &Value, scale: &Value) -> Option<Value> {
        let mut written = Managers::decode(scale).unwrap_or_default();
        let before = Managers::decode(entries).unwrap_or_default();
        let mut managers = Managers::default();
        for mut owner in before.owners.clone() {
            if !self.replicas.iter().any(|(version, _)| *version == owner.api_version) {
                continue;
            }
            let path = self.path(&owner.api_version).filter(|path| owner.fields.contains(path));
            if let Some(path) = path
                && written.take(&owner.id).is_none()
            {
                owner.fields = owner.fields.difference(&one(path));
            }
            if !owner.fields.is_empty() {
                managers.set(owner);
            }
        }
        let owns = |owner: &Owner| !owner.fields.intersection(&replicas()).is_empty();
        for owner in written.owners.into_iter().filter(owns) {
            let Some(path) = self.path(self.api_version) else { continue };
            let api_version = self.api_version.to_owned();
            // The real server searches the time in the object's old entries, so a new entry has none.
            let time = before.get(&owner.id).and_then(|owner| owner.time);
            managers.set(Owner { api_version, fields: one(path), time, ..owner });
        }
        managers.encode()
    }

    /// Returns the path of replicas in a version; `None` if the version has no `scale` subresource.
    fn path(&self, api_version: &str) -> Option<Vec<Element>> {
        let (_, path) = self.replicas.iter().find(|(version, _)| *version == api_version)?;
        path.as_ref().map(|path| path.iter().cloned().map(Element::Field).collect())
    }
}

fn one(path: Vec<Element>) -> FieldSet {
    let mut set = FieldSet::default();
    set.insert(path);
    set
}

fn replicas() -> FieldSet {
    FieldSet::of(&[&["spec", "replicas"]])
}
