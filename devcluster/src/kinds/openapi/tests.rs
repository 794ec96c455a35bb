use serde_json::Value;

use super::*;
use crate::kinds::builtin;

#[test]
fn every_document_can_be_unpacked() {
    for document in documents() {
        let text = super::document(&document.path).expect(&document.path);
        assert_eq!(text.len(), document.frame.length);
        let value: Value = serde_json::from_slice(&text).expect("JSON");
        assert_eq!(value["openapi"], "3.0.0", "{}", document.path);
    }
    assert!(super::document("apis/nope/v1").is_none());
    let text = version_2().expect("a document");
    assert_eq!((version_2_hash().len(), text.get(..5)), (128, Some(b"\n\x032.0".as_slice())));
}

#[test]
fn every_version_of_built_in_kinds_has_a_document() {
    for kind in builtin::kinds() {
        let root = if kind.group.is_empty() { "api" } else { "apis" };
        let path = format!("{root}/{}", kind.api_version());
        assert!(documents().iter().any(|document| document.path == path), "{path}");
    }
}
