//! How entries of `probePolicy.allow` are written: the text of a rule, or a mapping that also names namespaces.

use serde_json::{Value as Json, json};

use super::allow::{self, AllowEntry, AllowRule};
use super::cursor::Cursor;
use super::shape::{List, Name};
use super::walk::Shape;
use crate::key::is_dns_label;

/// What a mapping looks like, for messages.
const MAPPING: &str = "{to: 10.8.0.0/16, namespaces: [shop]}, or the text 10.8.0.0/16 for all namespaces";

/// The name of a namespace.
pub(super) const NAMESPACE: Name = Name {
    expected: "the name of a namespace",
    accepts: is_dns_label,
    pattern: "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
};

/// Something that may be dialled, and by the objects of which namespaces.
pub(super) struct Allowed;

// === impl Allowed ===

impl Shape for Allowed {
    type Value = AllowEntry;

    fn read(&self, cursor: &Cursor<'_>) -> Option<AllowEntry> {
        if !cursor.is_mapping() {
            return cursor.parse::<AllowRule>().map(AllowEntry::from);
        }
        let mut fields = cursor.fields();
        let (to, namespaces) = (fields.cursor("to"), fields.cursor("namespaces"));
        fields.close();
        let (Some(to), Some(namespaces)) = (&to, &namespaces) else {
            cursor.refuse(MAPPING);
            return None;
        };
        let to = to.parse::<AllowRule>();
        let names = List { of: "namespaces", item: NAMESPACE }.read(namespaces)?;
        if names.is_empty() {
            // Nobody, or everybody? Neither is said this way.
            namespaces.refuse("at least one namespace");
            return None;
        }
        Some(AllowEntry { to: to?, namespaces: names })
    }

    fn write(&self, value: &AllowEntry) -> Json {
        let AllowEntry { to, namespaces } = value;
        if namespaces.is_empty() {
            to.to_string().into()
        } else {
            json!({"to": to.to_string(), "namespaces": namespaces})
        }
    }

    fn schema(&self) -> Json {
        let to = json!({"type": "string", "pattern": allow::PATTERN});
        let mut namespaces = List { of: "namespaces", item: NAMESPACE }.schema();
        namespaces["minItems"] = 1.into();
        json!({
            "type": ["string", "object"],
            "pattern": allow::PATTERN,
            "properties": {"to": to, "namespaces": namespaces},
            "required": ["to", "namespaces"],
            "additionalProperties": false,
        })
    }
}
