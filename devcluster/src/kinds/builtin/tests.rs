use base64::Engine;
use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::kinds::json;

/// An object, and the results of the server's own code.
#[derive(Deserialize)]
struct Sample {
    name: String,
    r#in: String,
    error: Option<String>,
    #[serde(default)]
    strict: Vec<String>,
    typed: Option<Value>,
    out: Option<Value>,
    old: Option<String>,
    /// Reason, field and message of each error.
    #[serde(default)]
    invalid: Vec<(String, String, String)>,
}

fn samples() -> Vec<Sample> {
    include_str!("tests/samples.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn kind_of(value: &Value) -> &'static Arc<Kind> {
    let api_version = value["apiVersion"].as_str().unwrap();
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    find(group, version, value["kind"].as_str().unwrap()).unwrap()
}

/// Returns the paths at which two values differ.
fn differences(found: &Value, expected: &Value) -> Vec<String> {
    fn walk(path: &str, found: &Value, expected: &Value, out: &mut Vec<String>) {
        match (found, expected) {
            (Value::Object(a), Value::Object(b)) => {
                let names: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
                for name in names {
                    let path = format!("{path}.{name}");
                    match (a.get(name), b.get(name)) {
                        (Some(a), Some(b)) => walk(&path, a, b, out),
                        (a, b) => out.push(format!("{path}: {a:?} instead of {b:?}")),
                    }
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (i, (a, b)) in a.iter().zip(b).enumerate() {
                    walk(&format!("{path}[{i}]"), a, b, out);
                }
            }
            (a, b) if a != b => out.push(format!("{path}: {a} instead of {b}")),
            _ => {}
        }
    }
    let mut out = Vec::new();
    walk("", found, expected, &mut out);
    out
}

#[test]
fn all_lines_of_the_table_parse() {
    assert!(release().starts_with("v1."));
    assert_eq!(table::header().hash.len(), 64);
    assert!(kinds().len() > 50);
    for kind in kinds() {
        let of = typed::type_of(kind).unwrap();
        assert!(!of.fields.is_empty(), "{}", kind.kind);
        assert!(matches!(kind.schema.get().form, crate::kinds::Form::Object(_)), "{}", kind.kind);
    }
    for name in table::type_lines().keys() {
        assert!(find_type(name).is_some(), "{name}");
    }
}

#[test]
fn typed_form_and_errors_equal_those_of_the_server() {
    let mut problems = Vec::new();
    for sample in samples() {
        let parsed = json::decode(sample.r#in.as_bytes()).unwrap();
        let of = typed::type_of(kind_of(&parsed.value)).unwrap();
        match (typed::convert(of, parsed.value), sample.error) {
            (Err(found), Some(expected)) if found.0 == expected => {}
            (Ok(found), None) => {
                for difference in differences(&found.value, &sample.typed.unwrap()) {
                    problems.push(format!("{}: {difference}", sample.name));
                }
                let mut strict: Vec<_> =
                    found.unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
                strict.extend(parsed.duplicates.iter().map(|path| format!("duplicate field \"{path}\"")));
                strict.sort();
                let mut expected = sample.strict;
                expected.sort();
                if strict != expected {
                    problems.push(format!("{}: {strict:?} instead of {expected:?}", sample.name));
                }
            }
            (found, expected) => problems.push(format!("{}: {found:?}\n  {expected:?}", sample.name)),
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn defaults_equal_those_of_the_server() {
    let mut problems = Vec::new();
    for sample in samples() {
        let (Some(mut typed), Some(out)) = (sample.typed, sample.out) else { continue };
        defaults::apply(kind_of(&typed), &mut typed);
        for difference in differences(&typed, &out) {
            problems.push(format!("{}: {difference}", sample.name));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// Errors of other parts of the server: metadata, allocated addresses and ports, and the content of registry
/// credentials.
const ELSEWHERE: [&str; 6] = [
    "metadata",
    "spec.clusterIPs",
    "spec.healthCheckNodePort",
    "data[.docker",
    "spec.limited",
    "spec.ports Required",
];

#[test]
fn validation_errors_equal_those_of_the_server() {
    let mut problems = Vec::new();
    for sample in samples() {
        let Some(out) = sample.out else { continue };
        let kind = kind_of(&out);
        let found = match sample.old {
            None => validation::check(kind, &out),
            Some(old) => {
                let of = typed::type_of(kind).unwrap();
                let mut old = typed::convert(of, serde_json::from_str(&old).unwrap()).unwrap().value;
                defaults::apply(kind, &mut old);
                validation::check_update(kind, &out, &old)
            }
        };
        // The fields of a quoted object may come in another order, so only the text around it is compared.
        let first = |text: &str| {
            let line = text.lines().next().unwrap_or_default();
            match (line.find(": {"), line.rfind("}: ")) {
                (Some(start), Some(end)) => format!("{}{}", &line[..start], &line[end..]),
                _ => line.to_owned(),
            }
        };
        let line = |reason: &str, field: &str, text: &str| format!("{reason} {field} {}", first(text));
        let mut found: Vec<_> =
            found.iter().map(|error| line(error.reason.cause(), &error.path, &error.message)).collect();
        let mut expected: Vec<_> =
            sample.invalid.iter().map(|(reason, field, text)| line(reason, field, text)).collect();
        for lines in [&mut found, &mut expected] {
            lines.retain(|line| {
                let (_, rest) = line.split_once(' ').unwrap();
                !ELSEWHERE.iter().any(|start| rest.starts_with(start))
            });
            lines.sort();
        }
        for line in found.iter().filter(|line| !expected.contains(line)) {
            problems.push(format!("{}: too much: {line}", sample.name));
        }
        for line in expected.iter().filter(|line| !found.contains(line)) {
            problems.push(format!("{}: missing: {line}", sample.name));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// An object with every field set, as protobuf and as JSON.
#[derive(Deserialize)]
struct Fixture {
    kind: String,
    protobuf: String,
    json: Value,
}

fn fixtures() -> Vec<Fixture> {
    include_str!("tests/fixtures.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn protobuf_and_json_decode_to_the_same_object() {
    let mut problems = Vec::new();
    for fixture in fixtures() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(&fixture.protobuf).unwrap();
        let found = protobuf::decode(&bytes).unwrap();
        let of = typed::type_of(kind_of(&found)).unwrap();
        let found = typed::convert(of, found).unwrap();
        let expected = typed::convert(of, fixture.json.clone()).unwrap();
        for difference in differences(&found.value, &expected.value) {
            problems.push(format!("{}: {difference}", fixture.kind));
        }
        for difference in differences(&expected.value, &fixture.json) {
            problems.push(format!("{} from JSON: {difference}", fixture.kind));
        }
    }
    assert!(problems.is_empty(), "{} {}", problems.len(), problems.join("\n"));
}

#[test]
fn malformed_protobuf_gives_errors() {
    let fixture = fixtures().into_iter().find(|fixture| fixture.kind == "Lease").unwrap();
    let bytes = base64::engine::general_purpose::STANDARD.decode(&fixture.protobuf).unwrap();
    let whole = protobuf::decode(&bytes);
    for end in 0..bytes.len() {
        // A message may end after any of its fields, so a cut there is no error, but fields are missing. The
        // last four bytes are two empty fields of the envelope.
        if end < bytes.len() - 4 {
            assert_ne!(protobuf::decode(&bytes[..end]), whole, "cut after {end} bytes");
        }
        let mut broken = bytes.clone();
        broken[end] ^= 0xff;
        drop(protobuf::decode(&broken));
    }
    assert_eq!(protobuf::decode(b"{}"), Err(protobuf::ProtobufError::Prefix));
}
