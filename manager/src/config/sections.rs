//! The sections of a program: their values, and the channels that publish new values.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;
use tokio::sync::watch;

use super::section::{Channel, SectionValue, TypedSection};
use super::{Problem, Section, SectionError};

/// The values of the sections that a program adds to the configuration, by name.
#[derive(Clone, Default)]
pub(crate) struct Sections(BTreeMap<&'static str, SectionValue>);

/// The channels that publish new values of a program's sections, by name of the section.
pub(crate) struct Channels(BTreeMap<&'static str, Channel>);

// === impl Sections ===

impl Sections {
    pub(super) fn new(sections: impl IntoIterator<Item = (&'static str, SectionValue)>) -> Self {
        Self(sections.into_iter().collect())
    }

    pub(super) fn get<S: Section>(&self, name: &str) -> Result<Arc<S>, SectionError> {
        let value = self.0.get(name).ok_or_else(|| unknown(name, self.0.keys()))?;
        let typed = (&**value as &dyn Any).downcast_ref::<TypedSection<S>>();
        typed.map(|typed| Arc::clone(&typed.section)).ok_or_else(|| wrong_type::<S>(name))
    }

    /// Returns the name of each section and its value as JSON, as the file spells it.
    pub(super) fn trees(&self) -> impl Iterator<Item = (&'static str, &Json)> {
        self.0.iter().map(|(name, value)| (*name, value.tree()))
    }

    /// Returns the keys of the section `name` that apply at the next start; none for an unknown section.
    pub(super) fn restart(&self, name: &str) -> &'static [&'static str] {
        self.0.get(name).map_or(&[], |value| value.restart())
    }

    /// Returns the sections in force after a running process has loaded `new`: keys that apply at the next
    /// start keep their old values.
    pub(super) fn reloaded(&self, new: &Self) -> Self {
        let merged = |(name, old): (&&'static str, &SectionValue)| {
            let new = new.0.get(name)?;
            let mut tree = new.tree().clone();
            for path in old.restart() {
                keep(&mut tree, old.tree(), path);
            }
            // If the merged tree equals one of both, the value is reused, because deserializing its tree
            // might lose something.
            let known = [old, new].into_iter().find(|value| tree == *value.tree()).map(Arc::clone);
            Some((*name, known.or_else(|| old.reread(tree)).unwrap_or_else(|| Arc::clone(old))))
        };
        Self(self.0.iter().filter_map(merged).collect())
    }

    /// Returns all problems of the sections' values: old values that stay until the next start may conflict
    /// with new live values.
    pub(crate) fn problems(&self) -> Vec<Problem> {
        let of = |(name, value): (&&str, &SectionValue)| {
            value.validate().into_iter().map(|problem| problem.below(name)).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(of).collect()
    }
}

/// Copies the old value of the key at `path` into a new section. If only one of both sections has the mapping
/// that contains the key, copies that whole mapping.
fn keep(new: &mut Json, old: &Json, path: &str) {
    if path.is_empty() {
        new.clone_from(old);
        return;
    }
    let (section, key) = path.rsplit_once('.').unwrap_or(("", path));
    let mut pointer = String::new();
    section.split('.').filter(|name| !name.is_empty()).for_each(|name| pointer.extend(["/", name]));
    match (old.pointer(&pointer), new.pointer_mut(&pointer)) {
        (Some(Json::Object(old)), Some(Json::Object(new))) => match old.get(key) {
            Some(value) => drop(new.insert(key.to_owned(), value.clone())),
            None => drop(new.remove(key)),
        },
        _ => keep(new, old, section),
    }
}

impl PartialEq for Sections {
    fn eq(&self, other: &Self) -> bool {
        self.trees().eq(other.trees())
    }
}

impl fmt::Debug for Sections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.trees()).finish()
    }
}

// === impl Channels ===

impl Channels {
    pub(crate) fn new(sections: &Sections) -> Self {
        Self(sections.0.iter().map(|(name, value)| (*name, value.open())).collect())
    }

    /// Returns a channel with the present value of the section `name`, which receives each later value.
    pub(crate) fn subscribe<S: Section>(&self, name: &str) -> Result<watch::Receiver<Arc<S>>, SectionError> {
        let channel = self.0.get(name).ok_or_else(|| unknown(name, self.0.keys()))?;
        let sender = channel.downcast_ref::<watch::Sender<Arc<S>>>();
        sender.map(watch::Sender::subscribe).ok_or_else(|| wrong_type::<S>(name))
    }

    /// Publishes the values of those sections of `now` that differ from `before`.
    pub(crate) fn publish(&self, before: &Sections, now: &Sections) {
        for (name, value) in &now.0 {
            let same = before.0.get(name).is_some_and(|before| before.tree() == value.tree());
            if let Some(channel) = self.0.get(name).filter(|_| !same) {
                value.publish(channel);
            }
        }
    }
}

fn unknown<'a>(name: &str, declared: impl Iterator<Item = &'a &'static str>) -> SectionError {
    SectionError::Unknown { name: name.to_owned(), declared: declared.copied().collect() }
}

fn wrong_type<S>(name: &str) -> SectionError {
    SectionError::Type { name: name.to_owned(), asked: std::any::type_name::<S>() }
}
