//! Converts API responses into the accepted representation: complete objects, their metadata only, or tables.

use serde_json::{Map, Value, json};

use super::accept::{Accepted, Convert, Format};
use super::answer::Answer;
use super::path::ResourcePath;
use super::stream::{self, Limits};
use super::table::Table;
use crate::api::{Api, Content, List, Object, Query, Response, Status, Watch};
use crate::kinds::Kind;
use crate::kinds::json::decode;

const STREAM_TYPES: &str = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";

/// The size of the pieces of a list; a shorter list is sent as a whole.
const PIECE_BYTES: usize = 64 << 10;

/// The representation of objects in an answer, other than complete.
#[derive(Debug)]
pub(super) enum Conversion {
    /// Only the metadata, as an object of this kind.
    Metadata(Convert),
    /// The rows of a table.
    Table(Table),
}

/// Returns the HTTP response to a successful request. `kind` is the kind of the endpoint.
///
/// # Errors
/// 406 if the content cannot be converted into the accepted representation.
pub(super) fn answer(
    response: Response,
    kind: &Kind,
    accepted: &Accepted,
    convert: Option<Conversion>,
    limits: Limits,
) -> Result<Answer, Status> {
    let code = response.code;
    let mut answer = match response.content {
        Content::Object(object) => of_object(code, &object, kind, accepted, convert)?,
        Content::List(list) => of_list(code, list, accepted, convert)?,
        Content::Watch(watch) => of_watch(watch, accepted, convert, limits)?,
    };
    for warning in &response.warnings {
        answer.warn(warning);
    }
    Ok(answer)
}

fn of_object(
    code: u16,
    object: &Object,
    kind: &Kind,
    accepted: &Accepted,
    convert: Option<Conversion>,
) -> Result<Answer, Status> {
    let value = object.value();
    if code == 204 {
        return Ok(Answer::empty(code));
    }
    let is_status = value.get("kind").is_some_and(|kind| kind == "Status");
    match convert.filter(|_| !is_status) {
        Some(Conversion::Metadata(convert)) if convert.kind == "PartialObjectMetadataList" => {
            Err(not_a_list(kind))
        }
        Some(Conversion::Metadata(convert)) => {
            Ok(Answer::value(code, &metadata_only(value, &convert), accepted))
        }
        Some(Conversion::Table(table)) => Ok(Answer::value(code, &table.of_object(value), accepted)),
        _ if is_plain(accepted) => Ok(Answer::json(code, object.json())),
        _ => Ok(Answer::value(code, value, accepted)),
    }
}

fn of_list(
    code: u16,
    list: List,
    accepted: &Accepted,
    convert: Option<Conversion>,
) -> Result<Answer, Status> {
    let convert = match convert {
        Some(Conversion::Metadata(convert)) => convert,
        Some(Conversion::Table(table)) => return Ok(Answer::value(code, &table.of_list(&list), accepted)),
        None if is_plain(accepted) => return Ok(Answer::pieces(code, list.pieces(PIECE_BYTES))),
        None => {
            let json = list.json();
            let decoded = decode(&json).map_err(Status::unclassified)?;
            return Ok(Answer::value(code, &decoded.value, accepted));
        }
    };
    if convert.kind == "PartialObjectMetadata" {
        let of = go_type(&list.kind, "List");
        let message =
            format!("you requested PartialObjectMetadata, but the requested object is a list ({of})");
        return Err(Status::new(406, "NotAcceptable", message));
    }
    let item = Convert { kind: "PartialObjectMetadata".to_owned(), ..convert.clone() };
    let items: Vec<_> = list.items.iter().map(|object| metadata_only(object.value(), &item)).collect();
    let metadata = list_metadata(&list);
    let value = json!({
        "kind": convert.kind,
        "apiVersion": api_version(&convert),
        "metadata": metadata,
        // Go writes a list that was never filled as null.
        "items": if items.is_empty() { Value::Null } else { items.into() },
    });
    Ok(Answer::value(code, &value, accepted))
}

/// Returns the metadata of a list in place of which another kind is sent.
pub(super) fn list_metadata(list: &List) -> Value {
    let mut metadata = list.metadata();
    if let Value::Object(metadata) = &mut metadata
        && list.continue_token.is_empty()
    {
        metadata.remove("continue");
    }
    metadata
}

fn of_watch(
    watch: Watch,
    accepted: &Accepted,
    convert: Option<Conversion>,
    limits: Limits,
) -> Result<Answer, Status> {
    if accepted.format != Format::Json {
        let message = format!("only the following media types are accepted: {STREAM_TYPES}");
        return Err(Status::new(406, "NotAcceptable", message));
    }
    let convert = convert.map(|convert| match convert {
        Conversion::Metadata(convert) => {
            Conversion::Metadata(Convert { kind: "PartialObjectMetadata".to_owned(), ..convert })
        }
        table @ Conversion::Table(_) => table,
    });
    Ok(Answer::stream(stream::frames(watch, convert, limits)))
}

// === impl Conversion ===

impl Conversion {
    /// Returns the conversion of a request for a resource; `None` if it accepts whole objects.
    ///
    /// # Errors
    /// 400 for an option of tables that is malformed.
    pub(super) fn of_request(
        accepted: &Accepted,
        api: &Api,
        kind: &Kind,
        path: &ResourcePath,
        query: &Query,
    ) -> Result<Option<Self>, Status> {
        match &accepted.convert {
            Some(convert) if convert.is_table() => {
                Table::new(api, kind, path, convert, query).map(|table| Some(Self::Table(table)))
            }
            convert => Ok(convert.clone().map(Self::Metadata)),
        }
    }

    /// Returns what is sent in place of the object of a watch event.
    pub(super) fn of_event(&mut self, value: &Value) -> Value {
        match self {
            Self::Metadata(convert) => metadata_only(value, convert),
            Self::Table(table) => table.of_event(value),
        }
    }
}

/// Returns the metadata of an object as a `PartialObjectMetadata`.
pub(super) fn metadata_only(value: &Value, convert: &Convert) -> Value {
    let mut partial = Map::new();
    partial.insert("kind".to_owned(), json!(convert.kind));
    partial.insert("apiVersion".to_owned(), json!(api_version(convert)));
    partial.insert("metadata".to_owned(), value.get("metadata").cloned().unwrap_or_else(|| json!({})));
    Value::Object(partial)
}

pub(super) fn api_version(convert: &Convert) -> String {
    format!("{}/{}", convert.group, convert.version)
}

fn is_plain(accepted: &Accepted) -> bool {
    accepted.format == Format::Json && !accepted.pretty
}

fn not_a_list(kind: &Kind) -> Status {
    if kind.type_name.is_none() {
        return Status::unclassified("content is not a list");
    }
    let of = go_type(kind, "");
    let message =
        format!("you requested PartialObjectMetadataList, but the requested object is not a list ({of})");
    Status::new(406, "NotAcceptable", message)
}

/// Returns the internal Go type of an object, which error texts of kube-apiserver contain.
fn go_type(kind: &Kind, suffix: &str) -> String {
    if kind.type_name.is_none() {
        return format!("*unstructured.Unstructured{suffix}");
    }
    let package = match kind.group.as_str() {
        "" | "events.k8s.io" => "core",
        group => group.split('.').next().unwrap_or(group),
    };
    format!("*{package}.{}{suffix}", kind.kind)
}
