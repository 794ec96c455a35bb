//! Settings turned back into what a file would say.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::cursor::child;
use super::raw::RawController;
use super::walk::{Applies, Section, Shape, Walk};

/// One key with its value, in the spelling of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Written {
    /// The whole path.
    pub(super) path: String,
    pub(super) value: Json,
    pub(super) applies: Applies,
}

/// Returns every key of a section that is set, in the order of the file. `path` is where the section stands.
pub(super) fn written(path: &str, section: &mut impl Section) -> Vec<Written> {
    let mut writer = Writer { path: path.to_owned(), keys: Vec::new() };
    section.walk(&mut writer);
    writer.keys
}

struct Writer {
    path: String,
    keys: Vec<Written>,
}

// === impl Writer ===

impl Walk for Writer {
    fn constant(&mut self, _: &'static str, _: &'static str) {}

    fn key<T>(
        &mut self,
        name: &'static str,
        applies: Applies,
        value: &mut Option<T>,
        shape: impl Shape<Value = T>,
    ) {
        if let Some(value) = value {
            let (path, value) = (child(&self.path, name), shape.write(value));
            self.keys.push(Written { path, value, applies });
        }
    }

    fn section(&mut self, name: &'static str, section: &mut impl Section) {
        self.keys.extend(written(&child(&self.path, name), section));
    }

    fn controllers(&mut self, name: &'static str, controllers: &mut BTreeMap<String, RawController>) {
        let path = child(&self.path, name);
        for (name, controller) in controllers {
            self.keys.extend(written(&child(&path, name), controller));
        }
    }
}
