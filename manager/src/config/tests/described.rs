//! The JSON Schema accepts and refuses the same files as the parser.

use serde_json::{Value as Json, json};

use super::*;
use crate::config::document::Document;

/// Adds the violations of a schema by a document. Panics at a keyword that the configuration's schema does
/// not use.
fn violations(schema: &Json, root: &Json, document: &Json, path: &str, found: &mut Vec<String>) {
    if *schema == false {
        found.push(format!("{path}: unknown"));
    }
    for (keyword, rule) in schema.as_object().into_iter().flatten() {
        let holds = match keyword.as_str() {
            "$schema" | "$defs" | "title" | "description" | "default" | "format" => true,
            extension if extension.starts_with("x-mainstay-") => true,
            "oneOf" => rule.as_array().unwrap().iter().any(|rule| {
                let mut wrong = Vec::new();
                violations(rule, root, document, path, &mut wrong);
                wrong.is_empty()
            }),
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
            other => panic!("keyword {other} is not supported"),
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

/// Returns the violations of a schema by a text.
pub(super) fn violations_of(schema: &Json, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    violations(schema, schema, &Document::parse(text).unwrap().tree, "", &mut found);
    found
}

#[test]
fn the_schema_accepts_the_default_file_and_a_file_with_other_values() {
    let schema = shop_schema();
    for text in [schema.default_file("shop"), format!("{HEAD}{}", changes::RICH)] {
        assert_eq!(violations_of(&schema.json(), &text), [] as [&str; 0], "{text}");
    }
}

#[test]
fn the_schema_refuses_unknown_keys_wrong_types_and_values_out_of_bounds() {
    let declared = shop_schema().controllers(["web"]);
    let schema = declared.json();
    for (body, expected) in [
        ("surprise: 1", ".surprise: unknown"),
        ("health: {port: 1}", ".health.port: unknown"),
        ("health: {bindAddress: ':8081'}", ".health.bindAddress: pattern"),
        ("health: {bindAddress: 8081}", ".health.bindAddress: type"),
        ("metrics: {auth: yes}", ".metrics.auth: type"),
        ("metrics: {tlsDir: tls}", ".metrics.tlsDir: pattern"),
        ("leaderElection: {onLost: exit}", ".leaderElection.onLost: oneOf"),
        ("leaderElection: {leaseName: A_b}", ".leaderElection.leaseName: pattern"),
        ("leaderElection: {leaseDuration: 15}", ".leaderElection.leaseDuration: type"),
        ("shutdown: {gracePeriod: 1 h}", ".shutdown.gracePeriod: pattern"),
        ("cache: {maxObjectBytes: 8M}", ".cache.maxObjectBytes: pattern"),
        ("cache: {namespaces: [shop, shop]}", ".cache.namespaces: uniqueItems"),
        ("cache: {namespaces: [Shop]}", ".cache.namespaces[0]: pattern"),
        ("cache: {packs: Auto}", ".cache.packs: unknown"),
        ("logging: {level: inof}", ".logging.level: pattern"),
        ("shop: {counter: {regions: [a, a]}}", ".shop.counter.regions: uniqueItems"),
        ("shop: {counter: {opne: true}}", ".shop.counter.opne: unknown"),
        ("shop: {maxOrders: 0}", ".shop.maxOrders: minimum"),
        ("shop: {patience: 5}", ".shop.patience: type"),
        ("shop: {prices: {apple: cheap}}", ".shop.prices.apple: type"),
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
        assert!(parse_for(body, &declared).is_err(), "{body}");
        assert_eq!(violations_of(&schema, &format!("{HEAD}{body}\n")), [expected], "{body}");
    }
    assert_eq!(violations_of(&schema, "kind: ManagerConfiguration\n"), [": required"]);
    assert!(
        violations_of(&shop_schema().json(), &format!("{HEAD}controllers: {{wbe: {{workers: 1}}}}\n"))
            .is_empty()
    );
}

/// A schema that refuses a valid file would be worse than no schema.
#[test]
fn the_schema_accepts_every_accepted_file() {
    let (schema, body, mut random) = (shop_schema().json(), edits::every_key(), fastrand::Rng::with_seed(7));
    let mut accepted = 0;
    for _ in 0..1000 {
        let text = edits::edit(&body, &mut random);
        if shop_schema().parse(&text, "m.yaml", &Overrides::default()).is_ok() {
            assert_eq!(violations_of(&schema, &text), [] as [&str; 0], "{text}");
            accepted += 1;
        }
    }
    assert!(accepted > 50, "{accepted} accepted");
}

#[test]
fn every_key_of_the_schema_is_described_and_has_its_default() {
    let schema = shop_schema().json();
    let loaded = shop_schema().from_overrides(&Overrides::default()).unwrap();
    for Setting { path, value, applies, .. } in loaded.settings() {
        let (root, keys) = match path.strip_prefix(r#"controllers["*"]."#) {
            Some(keys) => ("/$defs/controller", keys),
            None => ("", &*path),
        };
        let pointer = keys.split('.').fold(root.to_owned(), |above, key| format!("{above}/properties/{key}"));
        let key = schema.pointer(&pointer).unwrap_or_else(|| panic!("{path} is not at {pointer}"));
        assert_eq!(key.get("default"), Some(&value), "{path}");
        let words = key["description"].as_str().unwrap_or_default();
        assert!(!words.is_empty(), "{path}");
        let when = if applies == Applies::Live { "live" } else { "restart" };
        assert_eq!(key["x-mainstay-applies"], when, "{path}");
    }
}
