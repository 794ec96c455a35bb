//! Label and field selectors of lists, watches and collection deletions.

mod fields;
mod labels;

use serde_json::Value;

use super::Status;
use super::request::Query;
use crate::kinds::Kind;

pub use labels::LabelSelector;

use fields::FieldSelector;

/// The selectors of a request; an object must match both.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    labels: LabelSelector,
    fields: FieldSelector,
}

// === impl Selector ===

impl Selector {
    /// Parses the options `labelSelector` and `fieldSelector`.
    pub(super) fn parse(kind: &Kind, query: &Query) -> Result<Self, Status> {
        let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default());
        let labels = labels.map_err(Status::bad_request)?;
        let fields = FieldSelector::parse(kind, query.get("fieldSelector").unwrap_or_default());
        Ok(Self { labels, fields: fields.map_err(Status::bad_request)? })
    }

    /// Returns whether every object matches.
    pub(super) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns whether an object matches.
    pub(super) fn matches(&self, object: &Value) -> bool {
        self.labels.matches(object.pointer("/metadata/labels")) && self.fields.matches(object)
    }
}

#[cfg(test)]
mod tests;
