use http_body_util::Full;
use serde_json::json;

use super::*;
use crate::kinds::builtin;

fn config_map() -> Expected<'static> {
    let kind = builtin::find("", "v1", "ConfigMap").expect("ConfigMap is built in");
    Expected::new(kind, &ResourcePath::default())
}

fn refused(text: &[u8], media_type: MediaType) -> String {
    object(text, media_type, &config_map()).expect_err("refused").message().to_owned()
}

const UNRECOGNIZED: &str = "the object provided is unrecognized (must be of type ConfigMap): ";

#[test]
fn broken_json_is_refused_with_its_start() {
    let text = |text: &[u8]| refused(text, MediaType::Json).replace(UNRECOGNIZED, "");
    let parse = "couldn't get version/kind; json parse error: ";
    assert_eq!(text(b""), format!("{parse}unexpected end of JSON input (<empty>)"));
    assert_eq!(text(b"{"), format!("{parse}unexpected end of JSON input ({{)"));
    assert_eq!(text(b"x"), format!("{parse}invalid character 'x' looking for beginning of value (78)"));
    assert_eq!(
        text(b"[]"),
        format!(
            "{parse}json: cannot unmarshal array into Go value of type struct {{ APIVersion string \
             \"json:\\\"apiVersion,omitempty\\\"\"; Kind string \"json:\\\"kind,omitempty\\\"\" }} (5b5d)"
        )
    );
    assert_eq!(
        text(b"{\"metadata\":{\"name\":\"a\"}} trailing"),
        format!(
            "{parse}invalid character 't' after top-level value \
             ({{\"metadata\":{{\"name\":\"a\"}}}} trai ...)"
        )
    );
    assert_eq!(
        text(b"{\"kind\":1}"),
        format!(
            "{parse}json: cannot unmarshal number into Go struct field .kind of type string ({{\"kind\":1}})"
        )
    );
}

#[test]
fn a_body_that_only_claims_to_be_protobuf_is_refused() {
    let expected =
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0] (7878)";
    assert_eq!(refused(b"xx", MediaType::Protobuf), format!("{UNRECOGNIZED}{expected}"));
}

#[test]
fn null_is_an_empty_object() {
    let body = object(b"null", MediaType::Json, &config_map()).expect("accepted");
    assert_eq!(body.value, json!({}));
}

#[test]
fn duplicate_keys_are_reported() {
    let text = br#"{"metadata":{"name":"a","name":"b"}}"#;
    let body = object(text, MediaType::Json, &config_map()).expect("accepted");
    assert_eq!(body.strict_errors, ["duplicate field \"metadata.name\""]);
    let body = object(text, MediaType::Yaml, &config_map()).expect("accepted");
    assert_eq!(body.strict_errors, ["yaml: unmarshal errors:\n  line 1: key \"name\" already set in map"]);
}

#[test]
fn unknown_media_types_are_refused() {
    assert_eq!(media_type(""), Ok(MediaType::Json));
    assert_eq!(media_type("Application/JSON; charset=utf-8"), Ok(MediaType::Json));
    let status = media_type("text/plain").expect_err("refused");
    assert_eq!(
        (status.code(), status.message()),
        (
            415,
            "the body of the request was in an unknown format - accepted media types include: \
             application/json, application/yaml, application/vnd.kubernetes.protobuf"
        )
    );
}

#[test]
fn broken_patches_are_refused_by_their_type() {
    let refused = |text: &str, patch_type| {
        patch(text.as_bytes(), patch_type).expect_err("refused").message().to_owned()
    };
    let go_map = "into Go value of type map[string]interface {}";
    assert_eq!(refused("", PatchType::Merge), "error decoding patch: unexpected end of JSON input");
    assert_eq!(refused("{", PatchType::Strategic), "unexpected end of JSON input");
    assert_eq!(
        refused("[]", PatchType::Merge),
        format!("error decoding patch: json: cannot unmarshal array {go_map}")
    );
    assert_eq!(
        refused("x", PatchType::Apply),
        format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: \
             cannot unmarshal string {go_map}"
        )
    );
    assert!(
        refused("{", PatchType::Apply)
            .starts_with("error decoding YAML: error converting YAML to JSON: yaml: ")
    );
    assert_eq!(patch(b"", PatchType::Apply).expect("accepted").value, json!({}));
    assert_eq!(patch(b"a: {b: 1}", PatchType::Apply).expect("accepted").value, json!({"a": {"b": 1}}));
    assert!(patch(b"[]", PatchType::Json).is_ok());
}

#[test]
fn options_of_a_deletion_are_optional() {
    assert_eq!(delete_options(b"", "text/plain"), Ok(None));
    assert_eq!(delete_options(b"{}", "text/plain").expect_err("refused").code(), 415);
    let status = delete_options(b"{", "").expect_err("refused");
    assert_eq!(status.message(), "couldn't get version/kind; json parse error: unexpected end of JSON input");
}

#[tokio::test]
async fn bodies_have_a_limit() {
    let body = |length: usize| Full::new(bytes::Bytes::from(vec![b'x'; length]));
    assert_eq!(read(body(LIMIT_BYTES)).await.map(|text| text.len()), Ok(LIMIT_BYTES));
    let status = read(body(LIMIT_BYTES + 1)).await.expect_err("refused");
    assert_eq!((status.code(), status.message()), (413, "Request entity too large: limit is 3145728"));
}
