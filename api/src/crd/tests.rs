use super::*;

fn version() -> Value {
    let crd = serde_json::to_value(crd()).unwrap();
    crd["spec"]["versions"][0].clone()
}

fn walk<'a>(value: &'a Value, path: &str, visit: &mut impl FnMut(&str, &'a serde_json::Map<String, Value>)) {
    match value {
        Value::Object(map) => {
            visit(path, map);
            for (key, value) in map {
                walk(value, &format!("{path}.{key}"), visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, path, visit)),
        _ => {}
    }
}

#[test]
fn the_crd_has_a_short_name_and_categories() {
    let crd = crd();
    assert_eq!(crd.metadata.name.as_deref(), Some("waitdeployments.apps.mainstay.dev"));
    assert_eq!(crd.spec.names.short_names, Some(vec!["wdeploy".to_owned()]));
    assert_eq!(crd.spec.names.categories, Some(vec!["all".to_owned(), "mainstay".to_owned()]));
}

#[test]
fn the_template_is_open_at_every_level() {
    let version = version();
    let template = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["template"];
    assert!(template["description"].is_string(), "the template itself is described");
    walk(template, "template", &mut |path, map| {
        if map.get("type") == Some(&json!("object")) {
            assert_eq!(map.get("x-kubernetes-preserve-unknown-fields"), Some(&json!(true)), "{path}");
        }
        assert!(!map.contains_key("x-kubernetes-validations"), "{path}");
        assert!(path == "template" || !map.contains_key("description"), "{path}");
    });
}

#[test]
fn the_schema_is_structural_and_described() {
    let version = version();
    let schema = &version["schema"]["openAPIV3Schema"];
    walk(schema, "", &mut |path, map| {
        for key in ["$ref", "$schema", "title", "definitions", "oneOf", "anyOf", "allOf"] {
            let is_keyword = !path.ends_with(".properties");
            assert!(!(is_keyword && map.contains_key(key)), "{path} has {key}");
        }
        let both = map.contains_key("properties") && map.contains_key("additionalProperties");
        assert!(!both, "{path} has properties and additionalProperties");
    });
    for (name, property) in ["spec", "status", "waitProbe"]
        .iter()
        .flat_map(|part| schema["properties"][part]["properties"].as_object().unwrap())
    {
        assert!(property["description"].is_string(), "{name} has no description");
    }
    assert_eq!(schema["required"], json!(["spec"]));
    let timeout = &schema["properties"]["waitProbe"]["properties"]["timeout"];
    assert_eq!(timeout["x-kubernetes-int-or-string"], json!(true));
    assert_eq!(timeout.get("type"), None, "the API server refuses a type beside int-or-string");
    assert_eq!(schema["properties"]["spec"]["properties"]["replicas"].get("default"), None);
}

#[test]
fn lists_of_status_merge_by_key() {
    let version = version();
    let status = &version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"];
    assert_eq!(status["conditions"]["x-kubernetes-list-map-keys"], json!(["type"]));
    assert_eq!(status["dependencies"]["x-kubernetes-list-map-keys"], json!(["name"]));
    assert_eq!(status["conditions"]["items"]["required"], json!(["status", "type"]));
}

#[test]
fn the_crd_fits_client_side_apply() {
    let bytes = serde_json::to_vec(&crd()).unwrap().len();
    assert!(bytes < 64 * 1024, "{bytes} bytes");
}

/// The API server estimates the cost of rules from the bounds, and refuses a CRD without them.
#[test]
fn everything_below_wait_for_is_bounded() {
    let version = version();
    let wait_for = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["waitFor"];
    let mut checked = 0;
    walk(wait_for, "waitFor", &mut |path, map| {
        let is_any = |keys: &[&str]| keys.iter().any(|key| map.contains_key(*key));
        let bounded = match map.get("type").and_then(Value::as_str) {
            Some("string") => is_any(&["maxLength", "enum"]),
            Some("array") => is_any(&["maxItems"]),
            Some("integer") => is_any(&["minimum"]) && is_any(&["maximum"]),
            Some("object") if is_any(&["additionalProperties"]) => is_any(&["maxProperties"]),
            Some("object") => is_any(&["properties"]),
            _ => return,
        };
        assert!(bounded, "{path} has no bounds");
        checked += 1;
    });
    assert!(checked > 50, "{checked} schemas");
}

#[test]
fn defaults_equal_the_meaning_of_absent_fields() {
    let version = version();
    let mut defaults = Vec::new();
    walk(&version["schema"], "", &mut |path, map| {
        if let Some(default) = map.get("default").filter(|_| !path.ends_with(".properties")) {
            let (_, field) = path.rsplit_once('.').unwrap();
            defaults.push(format!("{field}: {default}"));
        }
    });
    defaults.sort();
    let expected = [
        r#"adoption: "IfUnowned""#,
        "failureThreshold: 3",
        "initialDelaySeconds: 0",
        r#"key: "ca.crt""#,
        r#"match: "All""#,
        "minReadyEndpoints: 1",
        "minRecords: 1",
        "observedGeneration: -1",
        r#"onDeadline: "Fail""#,
        r#"onLoss: "Report""#,
        r#"path: "/""#,
        "periodSeconds: 10",
        r#"record: "Address""#,
        r#"scheme: "HTTP""#,
        r#"service: """#,
        // Marks a new object as not yet reconciled.
        r#"status: {"observedGeneration":-1}"#,
        "successThreshold: 1",
        r#"tlsMode: "Plaintext""#,
    ];
    // No default for replicas, which an autoscaler may own; for timeoutSeconds, which depends on the period;
    // and for gates, since server-side apply would merge the default set with one that a user applies later.
    assert_eq!(defaults, expected);
}

#[test]
fn a_null_below_wait_for_counts_as_absent() {
    let version = version();
    let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
    walk(&spec["waitFor"], "waitFor", &mut |path, map| {
        assert!(!map.contains_key("nullable"), "{path} would keep a null");
    });
    assert_eq!(spec["replicas"]["nullable"], json!(true), "server-side apply of a null stays admitted");
}
