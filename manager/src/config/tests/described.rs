//! The JSON Schema against the readers it is derived from.

use serde_json::{Value as Json, json};

use super::*;
use crate::config::tree::{self, Node, Value};

/// Returns what is wrong with a document by a schema: every keyword that ours uses, and a panic for any other.
fn violations(schema: &Json, root: &Json, document: &Json, path: &str, found: &mut Vec<String>) {
    if *schema == false {
        found.push(format!("{path}: unknown"));
    }
    for (keyword, rule) in schema.as_object().into_iter().flatten() {
        let holds = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" => true,
            "$ref" => {
                let target = root.pointer(rule.as_str().unwrap().strip_prefix('#').unwrap()).unwrap();
                violations(target, root, document, path, found);
                continue;
            }
            "type" => match rule {
                Json::Array(types) => types.iter().any(|name| is_a(document, name.as_str().unwrap())),
                name => is_a(document, name.as_str().unwrap()),
            },
            "const" => document == rule,
            "enum" => rule.as_array().unwrap().contains(document),
            "minimum" => document.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => document.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "pattern" => {
                let pattern = regex::Regex::new(rule.as_str().unwrap()).unwrap();
                document.as_str().is_none_or(|text| pattern.is_match(text))
            }
            "minItems" => {
                document.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap())
            }
            "uniqueItems" => document.as_array().is_none_or(|items| {
                items.iter().enumerate().all(|(index, item)| !items[..index].contains(item))
            }),
            "items" => {
                for (index, item) in document.as_array().into_iter().flatten().enumerate() {
                    violations(rule, root, item, &format!("{path}[{index}]"), found);
                }
                continue;
            }
            "required" => document.as_object().is_none_or(|keys| {
                rule.as_array().unwrap().iter().all(|name| keys.contains_key(name.as_str().unwrap()))
            }),
            "properties" | "propertyNames" | "additionalProperties" => {
                for (name, value) in document.as_object().into_iter().flatten() {
                    let below = format!("{path}.{name}");
                    let named = schema.get("properties").and_then(|all| all.get(name));
                    let (rule, value) = match (keyword.as_str(), named) {
                        ("propertyNames", _) => (rule, &json!(name)),
                        ("properties", Some(named)) => (named, value),
                        ("additionalProperties", None) => (rule, value),
                        _ => continue,
                    };
                    violations(rule, root, value, &below, found);
                }
                continue;
            }
            other => panic!("this validator does not know {other}"),
        };
        if !holds {
            found.push(format!("{path}: {keyword}"));
        }
    }
}

fn is_a(document: &Json, name: &str) -> bool {
    match document {
        Json::Null => name == "null",
        Json::Bool(_) => name == "boolean",
        Json::Number(number) => name == "number" || name == "integer" && !number.is_f64(),
        Json::String(_) => name == "string",
        Json::Array(_) => name == "array",
        Json::Object(_) => name == "object",
    }
}

/// Returns a document as an editor would hand it to its validator.
fn json_of(node: &Node) -> Json {
    match &node.value {
        Value::Null => Json::Null,
        Value::Bool(value) => (*value).into(),
        Value::Whole(value) => i64::try_from(*value).map_or_else(|_| json!(1e30), Json::from),
        Value::Fraction(value) => (*value).into(),
        Value::Text(text) => text.as_str().into(),
        Value::List(items) => items.iter().map(json_of).collect(),
        Value::Map(pairs) => {
            let key = |node: &Node| json_of(node).as_str().unwrap_or("?").to_owned();
            Json::Object(pairs.iter().map(|(name, value)| (key(name), json_of(value))).collect())
        }
    }
}

/// What the schema says of a text.
pub(super) fn judged(schema: &Json, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    violations(schema, schema, &json_of(&tree::parse(text).unwrap()), "", &mut found);
    found
}

#[test]
fn the_schema_accepts_every_shipped_file() {
    let schema = schema(Some(&["wait-deployment", "status-mirror"]));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config");
    let mut seen = 0;
    for file in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        assert_eq!(judged(&schema, &text), [] as [&str; 0], "{text}");
        seen += 1;
    }
    assert_eq!(seen, 4);
    let deployed = include_str!("../../../../deploy/base/config.yaml");
    let deployed: k8s_openapi::api::core::v1::ConfigMap = serde_saphyr::from_str(deployed).unwrap();
    assert_eq!(judged(&schema, &deployed.data.unwrap()[FILE_NAME]), [] as [&str; 0]);
    assert_eq!(
        judged(&schema, &format!("{HEAD}{}", changes::RICH.replace("web", "status-mirror"))),
        [] as [&str; 0]
    );
}

#[test]
fn the_schema_refuses_what_a_schema_can() {
    let schema = schema(Some(&["web"]));
    for (body, expected) in [
        ("surprise: 1", ".surprise: unknown"),
        ("health: {port: 1}", ".health.port: unknown"),
        ("health: {bindAddress: ':8081'}", ".health.bindAddress: pattern"),
        ("health: {bindAddress: 8081}", ".health.bindAddress: type"),
        ("metrics: {auth: yes}", ".metrics.auth: type"),
        ("metrics: {tlsDir: tls}", ".metrics.tlsDir: pattern"),
        ("leaderElection: {onLost: exit}", ".leaderElection.onLost: enum"),
        ("leaderElection: {leaseName: A_b}", ".leaderElection.leaseName: pattern"),
        ("leaderElection: {leaseDuration: 15}", ".leaderElection.leaseDuration: type"),
        ("shutdown: {gracePeriod: 1.5h}", ".shutdown.gracePeriod: pattern"),
        ("cache: {maxObjectBytes: 8M}", ".cache.maxObjectBytes: pattern"),
        ("cache: {namespaces: [shop, shop]}", ".cache.namespaces: uniqueItems"),
        ("cache: {namespaces: [Shop]}", ".cache.namespaces[0]: pattern"),
        ("cache: {kinds: {pods: {}}}", ".cache.kinds.pods: pattern"),
        ("cache: {kinds: {Pod: {packs: Auto}}}", ".cache.kinds.Pod.packs: unknown"),
        ("logging: {level: inof}", ".logging.level: pattern"),
        ("probePolicy: {allow: ['*.example.com']}", ".probePolicy.allow[0]: pattern"),
        ("probePolicy: {allow: [{to: 10.0.0.0/8}]}", ".probePolicy.allow[0]: required"),
        (
            "probePolicy: {allow: [{to: 10.0.0.0/8, namespaces: []}]}",
            ".probePolicy.allow[0].namespaces: minItems",
        ),
        ("probePolicy: {denied: [example.com]}", ".probePolicy.denied[0]: pattern"),
        ("probePolicy: {crossNamespace: [a.b]}", ".probePolicy.crossNamespace[0]: pattern"),
        ("probePolicy: {dnsSuffixes: [.example.com]}", ".probePolicy.dnsSuffixes[0]: pattern"),
        ("probePolicy: {resources: [jobs]}", ".probePolicy.resources[0]: pattern"),
        ("probePolicy: {deniedPorts: [0]}", ".probePolicy.deniedPorts[0]: minimum"),
        ("waitDeployment: {notPassedOn: ['*']}", ".waitDeployment.notPassedOn[0]: pattern"),
        ("controllers: {wbe: {workers: 1}}", ".controllers.wbe: unknown"),
        ("controllers: {web: {workers: 1001}}", ".controllers.web.workers: maximum"),
        ("controllers: {'*': {workers: two}}", ".controllers.*.workers: type"),
        ("controllers: {'*': {queue: {retry: {factor: 0.5}}}}", ".controllers.*.queue.retry.factor: minimum"),
        ("controllers: {'*': {queue: {retryRate: 5}}}", ".controllers.*.queue.retryRate: type"),
        (
            "controllers: {'*': {queue: {retryRate: {burst: 0}}}}",
            ".controllers.*.queue.retryRate.burst: minimum",
        ),
    ] {
        assert!(parse_for(body, Some(&["web"])).is_err(), "{body}");
        assert_eq!(judged(&schema, &format!("{HEAD}{body}\n")), [expected], "{body}");
    }
    assert_eq!(judged(&schema, "kind: ManagerConfiguration\n"), [": required"]);
    assert!(
        judged(&super::schema(None), &format!("{HEAD}controllers: {{wbe: {{workers: 1}}}}\n")).is_empty()
    );
}

/// A schema that refuses what is right would be worse than none.
#[test]
fn the_schema_refuses_nothing_that_is_accepted() {
    let (schema, body, mut random) = (schema(None), edits::every_key(), fastrand::Rng::with_seed(7));
    let mut accepted = 0;
    for _ in 0..1000 {
        let text = edits::edit(&body, &mut random);
        if ManagerConfiguration::parse(&text, "m.yaml", &Overrides::default(), None).is_ok() {
            assert_eq!(judged(&schema, &text), [] as [&str; 0], "{text}");
            accepted += 1;
        }
    }
    assert!(accepted > 50, "{accepted} accepted");
}

#[test]
fn every_key_of_the_schema_is_described_and_has_its_default() {
    let schema = schema(Some(&[]));
    for Setting { path, value, .. } in Loaded::from(ManagerConfiguration::default()).settings() {
        let (root, keys) = match path.strip_prefix(r#"controllers["*"]."#) {
            Some(keys) => ("/$defs/controller", keys),
            None => ("", &*path),
        };
        let pointer = keys.split('.').fold(root.to_owned(), |above, key| format!("{above}/properties/{key}"));
        let key = schema.pointer(&pointer).unwrap_or_else(|| panic!("{path} is not at {pointer}"));
        assert_eq!(key.get("default"), Some(&value), "{path}");
        let words = key["description"].as_str().unwrap_or_default();
        assert!(words.contains(" Applied ") && !words.contains("Default:"), "{path}: {words}");
    }
}
