//! Decodes request bodies: size limit, media types, and the error texts for bodies that are no objects.

use http_body_util::BodyExt as _;
use serde_json::Value;

use super::accept::MEDIA_TYPES;
use super::path::ResourcePath;
use super::route::unsupported_media_type;
use super::yaml;
use crate::api::{Body, PatchType, Status};
use crate::kinds::builtin::protobuf::{self, ProtobufError};
use crate::kinds::{Kind, go, json};

/// Largest request body in bytes, as in kube-apiserver.
const LIMIT_BYTES: usize = 3 << 20;

/// Number of bytes of a body that an error text quotes.
const QUOTED_BYTES: usize = 30;

/// The Go struct that kube-apiserver decodes a body into first; its error texts contain this name.
const TYPE_META: &str =
    r#"struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;

/// The kind that an endpoint expects in a body.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    kind: &'a str,
    /// Whether the kind is a custom resource.
    custom: bool,
}

/// The format of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MediaType {
    Json,
    Yaml,
    Protobuf,
}

// === impl Expected ===

impl<'a> Expected<'a> {
    /// Returns the kind of an endpoint. A subresource other than `status` has its own, built-in kind.
    pub(crate) fn new(kind: &'a Kind, path: &ResourcePath) -> Self {
        let subresource = path.subresource.as_str();
        let found = kind.subresources.iter().find(|known| known.name == subresource);
        match (subresource, found) {
            ("scale", _) => Self { kind: "Scale", custom: false },
            (_, Some(found)) => Self { kind: &found.kind, custom: false },
            _ => Self { kind: &kind.kind, custom: kind.type_name.is_none() },
        }
    }
}

/// Reads a complete body of at most 3 MiB.
///
/// # Errors
/// 413 if the body is larger, 400 if the client closes the connection early.
pub(crate) async fn read<B>(body: B) -> Result<Vec<u8>, Status>
where
    B: http_body::Body,
{
    let mut out = Vec::new();
    let mut body = std::pin::pin!(body);
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return Err(Status::bad_request("unexpected EOF")) };
        let Ok(mut data) = frame.into_data() else { continue };
        while bytes::Buf::has_remaining(&data) {
            let chunk = bytes::Buf::chunk(&data);
            if out.len() + chunk.len() > LIMIT_BYTES {
                let message = format!("Request entity too large: limit is {LIMIT_BYTES}");
                return Err(Status::new(413, "RequestEntityTooLarge", message));
            }
            out.extend_from_slice(chunk);
            let length = chunk.len();
            bytes::Buf::advance(&mut data, length);
        }
    }
    Ok(out)
}

/// Returns the format of a body from its `Content-Type`; an empty type means JSON.
pub(crate) fn media_type(content_type: &str) -> Result<MediaType, Status> {
    let name = content_type.split(';').next().unwrap_or_default().trim();
    match name.to_ascii_lowercase().as_str() {
        "" if content_type.is_empty() => Ok(MediaType::Json),
        "application/json" => Ok(MediaType::Json),
        "application/yaml" => Ok(MediaType::Yaml),
        "application/vnd.kubernetes.protobuf" => Ok(MediaType::Protobuf),
        _ => Err(unsupported_media_type(MEDIA_TYPES)),
    }
}

/// Decodes the object in the body of a create or an update.
pub(crate) fn object(text: &[u8], media_type: MediaType, expected: &Expected<'_>) -> Result<Body, Status> {
    let unrecognized = |why: String| {
        let (kind, quoted) = (expected.kind, quoted(text));
        Status::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): {why} ({quoted})"
        ))
    };
    let custom = expected.custom;
    let body = decode(text, media_type, !custom).map_err(unrecognized)?;
    let body = match body.value {
        // A null counts as an object without fields, except for custom resources, which need a kind.
        Value::Null if !custom => Body { value: Value::Object(serde_json::Map::new()), ..body },
        _ => body,
    };
    let missing = |field: &str| body.value.get(field).is_none_or(|value| value.is_null() || value == "");
    if custom && missing("kind") {
        let shown = match media_type {
            MediaType::Json => String::from_utf8_lossy(text).into_owned(),
            _ => body.value.to_string(),
        };
        return Err(unrecognized(format!("Object 'Kind' is missing in '{shown}'")));
    }
    Ok(body)
}

/// Decodes the `DeleteOptions` in the body of a deletion; `None` for an empty body or null.
pub(crate) fn delete_options(text: &[u8], content_type: &str) -> Result<Option<Body>, Status> {
    if text.is_empty() {
        return Ok(None);
    }
    let body = decode(text, media_type(content_type)?, true).map_err(Status::bad_request)?;
    Ok(Some(body).filter(|body| !body.value.is_null()))
}

/// Decodes the body of a patch.
pub(crate) fn patch(text: &[u8], patch_type: PatchType) -> Result<Body, Status> {
    let prefix = match patch_type {
        PatchType::Json | PatchType::Merge => "error decoding patch: ",
        PatchType::Strategic => "",
        PatchType::Apply => return apply_patch(text),
    };
    let refuse = |why: String| Status::bad_request(format!("{prefix}{why}"));
    let decoded = json::decode(text).map_err(refuse)?;
    // A null is refused with another text when it is merged.
    let null = patch_type == PatchType::Merge && decoded.value.is_null();
    if patch_type != PatchType::Json && !decoded.value.is_object() && !null {
        return Err(refuse(not_a_map(&decoded.value)));
    }
    Ok(from_json(decoded))
}

fn apply_patch(text: &[u8]) -> Result<Body, Status> {
    // Most clients send JSON. The slower YAML parser is needed otherwise, and to report duplicate keys.
    if let Ok(decoded) = json::decode(text)
        && decoded.value.is_object()
        && decoded.duplicates.is_empty()
    {
        return Ok(from_json(decoded));
    }
    let refuse = |why: String| Status::bad_request(format!("error decoding YAML: {why}"));
    let decoded =
        yaml::decode(text).map_err(|why| refuse(format!("error converting YAML to JSON: {why}")))?;
    let body = from_yaml(decoded);
    match body.value {
        Value::Null => Ok(Body { value: Value::Object(serde_json::Map::new()), ..body }),
        Value::Object(_) => Ok(body),
        other => {
            let why = not_a_map(&other);
            Err(refuse(format!("error unmarshaling JSON: while decoding JSON: {why}")))
        }
    }
}

/// Decodes an object; errors have the texts of kube-apiserver's decoder.
fn decode(text: &[u8], media_type: MediaType, built_in: bool) -> Result<Body, String> {
    let body = match media_type {
        MediaType::Json => {
            let failed = |why| format!("couldn't get version/kind; json parse error: {why}");
            let decoded = if built_in { json::decode_for_type(text) } else { json::decode(text) };
            from_json(decoded.map_err(failed)?)
        }
        MediaType::Yaml => {
            let prefix = if built_in { "" } else { "error converting YAML to JSON: " };
            let failed = |why| format!("{prefix}{why}");
            from_yaml(yaml::decode(text).map_err(failed)?)
        }
        MediaType::Protobuf => from_protobuf(text)?,
    };
    let failed = |why: String| {
        Err(format!("couldn't get version/kind; json parse error: json: cannot unmarshal {why}"))
    };
    match &body.value {
        Value::Null => {}
        Value::Object(object) => {
            for field in ["apiVersion", "kind"] {
                if let Some(value) = object.get(field).filter(|value| !value.is_string() && !value.is_null())
                {
                    let type_name = go::json_type(value);
                    return failed(format!("{type_name} into Go struct field .{field} of type string"));
                }
            }
        }
        other => return failed(format!("{} into Go value of type {TYPE_META}", go::json_type(other))),
    }
    Ok(body)
}

fn from_protobuf(text: &[u8]) -> Result<Body, String> {
    let value = protobuf::decode(text).map_err(|error| match error {
        ProtobufError::Prefix => {
            "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
                .to_owned()
        }
        error => error.to_string(),
    })?;
    Ok(Body { value, strict_errors: Vec::new() })
}

fn from_json(decoded: json::Decoded) -> Body {
    let strict_errors = decoded.duplicates.iter().map(|path| format!("duplicate field \"{path}\"")).collect();
    Body { value: decoded.value, strict_errors }
}

fn from_yaml(decoded: yaml::Decoded) -> Body {
    Body { value: decoded.value, strict_errors: decoded.duplicate.into_iter().collect() }
}

fn not_a_map(value: &Value) -> String {
    format!("json: cannot unmarshal {} into Go value of type map[string]interface {{}}", go::json_type(value))
}

/// Returns the start of a body for an error text: a JSON object as text, any other body in hexadecimal.
fn quoted(text: &[u8]) -> String {
    let start = text.get(..QUOTED_BYTES).unwrap_or(text);
    let more = if start.len() < text.len() { " ..." } else { "" };
    match text.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{more}", String::from_utf8_lossy(start)),
        Some(_) => {
            let digits: Vec<String> = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{}{more}", digits.concat())
        }
    }
}

#[cfg(test)]
mod tests;
