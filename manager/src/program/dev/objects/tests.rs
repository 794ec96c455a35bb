use super::*;

#[track_caller]
fn read_text(text: &str) -> Vec<Result<String, String>> {
    let described = |sample: Sample| format!("{} {sample} {}", sample.place, sample.kind.api_version());
    documents("a.yaml", text).into_iter().map(|sample| sample.map(described)).collect()
}

#[test]
fn every_document_is_read_in_order() {
    let text = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n---\napiVersion: apps/v1\n\
                kind: Deployment\nmetadata: {name: tea, namespace: shop}\n";
    let read = ["a.yaml, document 1 Namespace shop v1", "a.yaml, document 2 Deployment shop/tea apps/v1"];
    assert_eq!(read_text(text), read.map(|line| Ok(line.to_owned())));
    assert!(read_text("# nothing\n").is_empty());
}

#[test]
fn a_problem_names_file_and_document_or_line() {
    let problem = |text: &str| read_text(text).pop().unwrap().unwrap_err();
    assert_eq!(problem("[1]"), "a.yaml, document 1: apiVersion is missing");
    assert_eq!(problem("apiVersion: v1\nkind: 1"), "a.yaml, document 1: kind is 1; expected a text");
    let named = "apiVersion: v1\nkind: Secret\nmetadata: {namespace: shop}\n";
    assert_eq!(problem(named), "a.yaml, document 1: metadata.name is missing");
    assert!(problem("a: b\n c: d\n").starts_with("a.yaml:2: "), "{}", problem("a: b\n c: d\n"));
}
