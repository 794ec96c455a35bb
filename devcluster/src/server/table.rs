//! Tables: rows of cells in place of objects, with the columns that `kubectl get` prints.

use serde_json::{Value, json};

use super::accept::Convert;
use super::path::ResourcePath;
use super::represent::{api_version, list_metadata, metadata_only};
use crate::api::{Api, List, Query, Status};
use crate::kinds::Kind;
use crate::kinds::printers::Printer;

/// The annotation of the bookmark after the first events of a watch.
const INITIAL_EVENTS_END: &str = "/metadata/annotations/k8s.io~1initial-events-end";

/// Makes tables of one resource.
#[derive(Debug)]
pub(super) struct Table {
    /// The source of the time for ages.
    api: Api,
    printer: Printer,
    api_version: String,
    include: Include,
    /// Whether the next table of a watch has columns: only the first one does.
    headers: bool,
    /// Describes the metadata of an object in a row.
    metadata: Convert,
}

/// The part of its object that a row has: the option `includeObject`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Include {
    None,
    Metadata,
    Object,
}

// === impl Table ===

impl Table {
    /// Returns the tables of a request.
    ///
    /// # Errors
    /// 400 for an unknown value of `includeObject`.
    pub(super) fn new(
        api: &Api,
        kind: &Kind,
        path: &ResourcePath,
        convert: &Convert,
        query: &Query,
    ) -> Result<Self, Status> {
        let include = match query.get("includeObject").unwrap_or_default() {
            "" | "Metadata" => Include::Metadata,
            "None" => Include::None,
            "Object" => Include::Object,
            other => {
                return Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: includeObject: Invalid value: \"{other}\": \
                     must be 'Metadata', 'Object', 'None', or empty"
                )));
            }
        };
        Ok(Self {
            api: api.clone(),
            printer: api.printer(kind, &path.subresource),
            api_version: api_version(convert),
            include,
            headers: true,
            metadata: Convert { kind: "PartialObjectMetadata".to_owned(), ..convert.clone() },
        })
    }

    /// Returns the table of one object.
    pub(super) fn of_object(&self, value: &Value) -> Value {
        let version = value.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        let metadata = version.map_or_else(|| json!({}), |version| json!({"resourceVersion": version}));
        self.table(&metadata, &[value])
    }

    /// Returns the table of a list.
    pub(super) fn of_list(&self, list: &List) -> Value {
        let objects: Vec<_> = list.items.iter().map(crate::api::Object::value).collect();
        self.table(&list_metadata(list), &objects)
    }

    /// Returns the table of the object in a watch event.
    pub(super) fn of_event(&mut self, value: &Value) -> Value {
        let table = self.of_object(value);
        self.headers = false;
        table
    }

    fn table(&self, metadata: &Value, objects: &[&Value]) -> Value {
        let mut rows = self.printer.rows(objects.iter().copied(), self.api.now());
        for (row, object) in rows.as_array_mut().into_iter().flatten().zip(objects) {
            row["object"] = self.included(object);
        }
        json!({
            "kind": "Table",
            "apiVersion": self.api_version,
            "metadata": metadata,
            "columnDefinitions": self.headers.then(|| self.printer.columns()),
            "rows": rows,
        })
    }

    fn included(&self, object: &Value) -> Value {
        let ends_initial_events = || object.pointer(INITIAL_EVENTS_END).is_some();
        match self.include {
            Include::Object => object.clone(),
            Include::None if !ends_initial_events() => Value::Null,
            Include::None | Include::Metadata => metadata_only(object, &self.metadata),
        }
    }
}
