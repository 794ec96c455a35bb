//! Content negotiation: chooses the representation of a response from the header `Accept`.
//!
//! Clauses are tried in the order of their weight; a clause that the server cannot fulfil is skipped if a
//! later one fits. Responses are never protobuf: every client that accepts protobuf decodes the response by
//! its `Content-Type`.

use crate::api::{Details, Status};

/// The media types that kube-apiserver lists in its 406 and 415 errors.
pub(crate) const MEDIA_TYPES: &str =
    "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The representation that was chosen for a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) format: Format,
    /// Whether JSON is indented.
    pub(crate) pretty: bool,
    /// The kind into which the object is converted; `None` for the object itself.
    pub(crate) convert: Option<Convert>,
}

/// The encoding of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    #[default]
    Json,
    Yaml,
}

/// A kind into which an object is converted, from the parameters `as`, `v` and `g`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Convert {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
}

/// One clause of the header `Accept`.
struct Clause<'a> {
    kind: &'a str,
    subtype: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    weight: f32,
}

// === impl Format ===

impl Format {
    /// Returns the value of `Content-Type`.
    pub(crate) fn content_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::Yaml => "application/yaml",
        }
    }
}

// === impl Convert ===

impl Convert {
    /// Whether every resource offers the kind: `PartialObjectMetadata`, its list, or `Table`.
    pub(crate) fn is_of_resources(&self) -> bool {
        self.group == "meta.k8s.io"
            && matches!(self.version.as_str(), "v1" | "v1beta1")
            && matches!(self.kind.as_str(), "PartialObjectMetadata" | "PartialObjectMetadataList" | "Table")
    }

    /// Whether the kind is a table.
    pub(crate) fn is_table(&self) -> bool {
        self.kind == "Table"
    }

    /// Whether the kind is the aggregated form of discovery.
    pub(crate) fn is_discovery(&self) -> bool {
        self.group == "apidiscovery.k8s.io" && self.version == "v2" && self.kind == "APIGroupDiscoveryList"
    }
}

/// Chooses the representation of a response; `allows` returns whether the endpoint offers a conversion.
///
/// # Errors
/// 406 if no clause can be fulfilled.
pub(crate) fn negotiate(header: &str, allows: impl Fn(&Convert) -> bool) -> Result<Accepted, Status> {
    if header.is_empty() {
        return Ok(Accepted::default());
    }
    let clauses = clauses(header);
    // JSON in place of protobuf comes last, so that any clause with a supported type is preferred.
    let chosen = clauses.iter().find_map(|clause| accept(clause, &allows));
    let chosen = chosen.or_else(|| clauses.iter().find_map(|clause| accept_protobuf(clause, &allows)));
    chosen.ok_or_else(|| {
        let message = format!("only the following media types are accepted: {MEDIA_TYPES}");
        Status::new(406, "NotAcceptable", message)
    })
}

/// Whether an endpoint that has only JSON may answer.
pub(crate) fn takes_json(header: &str) -> bool {
    let takes =
        |clause: &Clause<'_>| matches!((clause.kind, clause.subtype), ("application" | "*", "json" | "*"));
    header.is_empty() || clauses(header).iter().any(takes)
}

/// Whether an endpoint that has only the protobuf of `OpenAPI` v2 may answer.
pub(crate) fn takes_openapi_protobuf(header: &str) -> bool {
    let forms =
        ["com.github.proto-openapi.spec.v2.v1.0+protobuf", "com.github.proto-openapi.spec.v2@v1.0+protobuf"];
    clauses(header).iter().any(|clause| clause.kind == "application" && forms.contains(&clause.subtype))
}

/// Checks that some clause names a media type of the endpoint, as the router of built-in kinds does.
///
/// # Errors
/// 406 if no clause does.
pub(crate) fn refuse_unknown(header: &str, watchable: bool) -> Result<(), Status> {
    let known = |clause: &Clause<'_>| {
        let produced = matches!(clause.subtype, "json" | "yaml" | "vnd.kubernetes.protobuf" | "*");
        (clause.kind == "application" && produced) || (clause.kind == "*" && clause.subtype == "*")
    };
    if header.is_empty() || clauses(header).iter().any(known) {
        return Ok(());
    }
    let streams = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
    let available = if watchable { format!("{MEDIA_TYPES}, {streams}") } else { MEDIA_TYPES.to_owned() };
    let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
    Err(Status::new(406, "NotAcceptable", message).with_details(Details::default()))
}

fn clauses(header: &str) -> Vec<Clause<'_>> {
    let mut clauses: Vec<_> = header.split(',').filter_map(clause).collect();
    // The sort is stable: clauses of equal weight keep the order of the header, with wildcards last.
    clauses.sort_by(|a, b| {
        let wildcards = |clause: &Clause<'_>| u8::from(clause.kind == "*") + u8::from(clause.subtype == "*");
        b.weight.total_cmp(&a.weight).then_with(|| wildcards(a).cmp(&wildcards(b)))
    });
    clauses
}

fn clause(text: &str) -> Option<Clause<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let (kind, subtype) = match parts.next()? {
        "" => return None,
        "*" => ("*", "*"),
        name => name.split_once('/')?,
    };
    let mut clause = Clause { kind, subtype, parameters: Vec::new(), weight: 1.0 };
    for (name, value) in parts.filter_map(|part| part.split_once('=')) {
        let (name, value) = (name.trim(), value.trim().trim_matches('"'));
        match name {
            "q" => clause.weight = value.parse().unwrap_or(1.0),
            _ => clause.parameters.push((name, value)),
        }
    }
    Some(clause)
}

fn accept(clause: &Clause<'_>, allows: &impl Fn(&Convert) -> bool) -> Option<Accepted> {
    let format = match (clause.kind, clause.subtype) {
        ("application" | "*", "*") | ("application", "json") => Format::Json,
        ("application", "yaml") => Format::Yaml,
        _ => return None,
    };
    with_parameters(format, clause, allows)
}

fn accept_protobuf(clause: &Clause<'_>, allows: &impl Fn(&Convert) -> bool) -> Option<Accepted> {
    let protobuf = clause.kind == "application" && clause.subtype == "vnd.kubernetes.protobuf";
    // There is no protobuf of a table.
    let allows = |convert: &Convert| !convert.is_table() && allows(convert);
    if protobuf { with_parameters(Format::Json, clause, &allows) } else { None }
}

fn with_parameters(
    format: Format,
    clause: &Clause<'_>,
    allows: &impl Fn(&Convert) -> bool,
) -> Option<Accepted> {
    let mut accepted = Accepted { format, ..Accepted::default() };
    let mut convert = Convert { group: String::new(), version: String::new(), kind: String::new() };
    let mut converts = false;
    for (name, value) in &clause.parameters {
        match *name {
            "as" | "g" | "v" => {
                converts = true;
                let field = match *name {
                    "as" => &mut convert.kind,
                    "g" => &mut convert.group,
                    _ => &mut convert.version,
                };
                (*value).clone_into(field);
            }
            "stream" if !matches!(*value, "" | "watch") => return None,
            "sv" if !matches!(*value, "" | "v1") => return None,
            "pretty" => accepted.pretty = *value == "1",
            _ => {}
        }
    }
    if converts {
        if !allows(&convert) {
            return None;
        }
        accepted.convert = Some(convert);
    }
    Some(accepted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTIAL: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";

    fn metadata(header: &str) -> Result<Accepted, Status> {
        negotiate(header, Convert::is_of_resources)
    }

    #[test]
    fn json_is_the_default() {
        for header in ["", "*/*", "application/json", "application/*", "application/json;charset=utf-8", "*"]
        {
            assert_eq!(metadata(header).expect(header), Accepted::default());
        }
    }

    #[test]
    fn weight_decides_before_order() {
        let format = |header: &str| metadata(header).expect(header).format;
        assert_eq!(format("application/json;q=0.1,application/yaml"), Format::Yaml);
        assert_eq!(format("application/yaml,application/json"), Format::Yaml);
        assert_eq!(format("*/*,application/yaml"), Format::Yaml);
    }

    #[test]
    fn protobuf_is_answered_in_json() {
        let header = "application/vnd.kubernetes.protobuf,application/json";
        assert_eq!(metadata(header).expect(header), Accepted::default());
        assert_eq!(metadata("application/vnd.kubernetes.protobuf").expect("alone"), Accepted::default());
    }

    #[test]
    fn a_conversion_that_is_not_offered_is_skipped() {
        let table = "application/json;as=Table;v=v2;g=meta.k8s.io";
        let status = metadata(table).expect_err("no such version");
        assert_eq!(
            status.message(),
            "only the following media types are accepted: application/json, application/yaml, \
             application/vnd.kubernetes.protobuf"
        );
        assert_eq!(metadata(&format!("{table},application/json")).expect("json"), Accepted::default());
        let convert =
            metadata(&format!("{table},{PARTIAL}")).expect("partial").convert.expect("a conversion");
        assert_eq!(convert.kind, "PartialObjectMetadata");
    }

    #[test]
    fn unknown_types_are_refused_by_the_router_of_built_in_kinds() {
        assert!(refuse_unknown("", false).is_ok());
        assert!(refuse_unknown("text/html, */*", false).is_ok());
        let status = refuse_unknown("text/html", true).expect_err("html");
        assert!(status.message().ends_with("application/vnd.kubernetes.protobuf;stream=watch"));
        assert!(metadata("application/json;stream=foo").is_err());
    }
}
