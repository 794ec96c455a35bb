//! The two sections: accepted values, error messages, and when each key applies.

use mainstay::config::{API_VERSION, Change, ConfigSchema, KIND, ManagerConfiguration, Overrides};
use serde_json::json;

use super::*;

const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";

/// Returns the schema of a program with the two sections `probePolicy` and `waitDeployment`.
fn sections() -> ConfigSchema {
    ConfigSchema::new()
        .section::<ProbePolicy>(PROBE_POLICY)
        .section::<WaitDeploymentSettings>(WAIT_DEPLOYMENT)
}

fn read(body: &str) -> Result<ManagerConfiguration, Vec<String>> {
    let loaded = sections().parse(&format!("{HEAD}{body}"), "m.yaml", &Overrides::default());
    loaded.map(|loaded| loaded.configuration).map_err(|error| error.lines())
}

#[track_caller]
fn refused(body: &str, expected: &[&str]) {
    assert_eq!(read(body).expect_err("accepted"), expected);
}

#[test]
fn a_policy_is_read_with_all_its_entries() {
    let body = r#"
probePolicy:
  mode: AllowList
  allow: [10.8.0.0/16, "2001:db8::/32", 192.0.2.1, DB.example.com, {to: .example.org, namespaces: [shop]}]
  denied: [10.8.1.0/24, "::ffff:10.0.0.0/104"]
  minPeriod: 1s
waitDeployment: {notPassedOn: [team, example.com/*]}
"#;
    let configuration = read(body).unwrap();
    let policy = configuration.section::<ProbePolicy>(PROBE_POLICY).unwrap();
    let allow: Vec<_> = policy.allow.iter().map(|entry| entry.to.to_string()).collect();
    assert_eq!(allow, ["10.8.0.0/16", "2001:db8::/32", "192.0.2.1/32", "db.example.com", ".example.org"]);
    assert_eq!(policy.allow[4].namespaces, ["shop"]);
    assert_eq!(policy.denied[1].to_string(), "10.0.0.0/8");
    assert_eq!(policy.max_per_second, 200);
    let again = serde_json::to_value(&*policy).unwrap();
    assert_eq!(serde_json::from_value::<ProbePolicy>(again).unwrap(), *policy);
    let settings = configuration.section::<WaitDeploymentSettings>(WAIT_DEPLOYMENT).unwrap();
    assert_eq!(settings.not_passed_on, ["team", "example.com/*"]);
}

#[test]
fn all_invalid_values_are_refused_together() {
    refused(
        r#"probePolicy:
  mode: AllowList
  crossNamespace: ["**", pay, pay]
  dnsSuffixes: [.example.com]
  resources: [jobs]
  deniedPorts: [22, 0]
  minPeriod: 10ms
  maxPerSecond: 0
waitDeployment: {notPassedOn: ["*"]}
shutdown: {gracePeriod: 9h}
"#,
        &[
            r#"m.yaml: shutdown.gracePeriod: "9h"; expected a duration from 1s to 1h"#,
            r#"m.yaml: probePolicy.crossNamespace[2]: "pay"; already listed"#,
            "m.yaml: probePolicy.deniedPorts[1]: 0; expected a whole number from 1 to 65535",
            "m.yaml: probePolicy.maxPerSecond: 0; expected a whole number from 1 to 100000",
            r#"m.yaml: probePolicy.minPeriod: "10ms"; expected a duration from 1s to 1h"#,
            "m.yaml: probePolicy.crossNamespace[0]: \"**\"; \
             expected the name of a namespace, or \"*\" for every one",
            r#"m.yaml: probePolicy.dnsSuffixes[0]: ".example.com"; expected a domain such as example.com"#,
            r#"m.yaml: probePolicy.resources[0]: "jobs"; expected a kind such as Pod or Job.batch"#,
            "m.yaml: probePolicy.allow: []; \
             expected at least one entry with mode AllowList, or mode ServicesOnly",
            "m.yaml: waitDeployment.notPassedOn[0]: \"*\"; expected a key such as team or example.com/team, \
             or a domain with all its keys, such as example.com/*",
        ],
    );
    refused(
        "probePolicy: {allow: [10.0.0.0/8]}\n",
        &["m.yaml: probePolicy.allow: a list of 1; \
             expected [] with mode ServicesOnly, which does not read it, or mode AllowList"],
    );
}

#[test]
fn entries_of_wrong_types_are_refused_with_their_path() {
    for (body, expected) in [
        ("allow: [{to: 10.0.0.0/8}]", "m.yaml:3:24: probePolicy.allow[0]: has no namespaces"),
        (
            "allow: [{to: 10.0.0.0/33, namespaces: [a]}]",
            r#"m.yaml:3:28: probePolicy.allow[0].to: "10.0.0.0/33"; expected a prefix of at most 32 bits"#,
        ),
        (
            "allow: [{to: x.y, namespaces: []}]",
            "probePolicy.allow[0]: a mapping of 2; expected at least one namespace",
        ),
        (
            "allow: [{to: x.y, namespaces: [A]}]",
            r#"probePolicy.allow[0]: a mapping of 2; expected names of namespaces, which "A" is not"#,
        ),
        (
            "allow: [{to: x.y, for: 1}]",
            "probePolicy.allow[0].for: unknown key, set to 1; expected to or namespaces",
        ),
        ("allow: [[]]", "probePolicy.allow[0]: []; "),
        ("allow: [7]", "probePolicy.allow[0]: 7; "),
        (
            "denied: [10.8.0.1/16]",
            "m.yaml:3:24: probePolicy.denied[0]: \"10.8.0.1/16\"; \
             expected the network's own address, 10.8.0.0/16",
        ),
        (
            "denied: [example.com]",
            "m.yaml:3:24: probePolicy.denied[0]: \"example.com\"; \
             expected a network such as 10.8.0.0/16 or 2001:db8::/32, or an IP address",
        ),
        (
            "mode: any",
            "m.yaml:3:21: probePolicy.mode: \"any\"; \
             expected ServicesOnly, AllowList or Any; did you mean Any?",
        ),
    ] {
        let lines = read(&format!("probePolicy: {{{body}}}")).unwrap_err();
        assert!(lines.len() == 1 && lines[0].contains(expected), "{lines:?}");
    }
}

#[test]
fn the_schema_has_the_patterns_and_bounds_of_the_sections() {
    let schema = sections().json();
    let policy = &schema["properties"]["probePolicy"]["properties"];
    assert_eq!(policy["deniedPorts"]["items"]["minimum"], 1);
    assert_eq!(policy["minPeriod"]["x-mainstay-range"], json!(["1s", "1h"]));
    for list in ["allow", "crossNamespace", "dnsSuffixes", "resources", "denied"] {
        assert!(
            policy[list]["items"]["pattern"].is_string() && policy[list]["uniqueItems"] == true,
            "{list}"
        );
    }
}

#[test]
fn each_key_alone_applies_when_the_schema_says() {
    let rich = json!({
        "probePolicy": {
            "mode": "Any", "allow": ["10.8.0.0/16"], "crossNamespace": ["pay"],
            "dnsSuffixes": ["example.com"],
            "resources": ["Pod"], "allowLoopback": true, "denied": ["10.8.1.0/24"], "deniedPorts": [22],
            "minPeriod": "1s", "maxPerSecond": 7, "maxPerSecondPerNamespace": 3, "maxPerSecondPerAddress": 2,
            "maxTargetsPerNamespace": 9,
        },
        "waitDeployment": {"notPassedOn": ["team"]},
    });
    let (old, schema) = (read("").unwrap(), sections().json());
    for section in [PROBE_POLICY, WAIT_DEPLOYMENT] {
        for (name, key) in schema["properties"][section]["properties"].as_object().unwrap() {
            let path = format!("{section}.{name}");
            let mut document = json!({section: {name: &rich[section][name]}});
            // A non-empty allow is valid only with this mode.
            if name == "allow" {
                document[section]["mode"] = "AllowList".into();
            }
            (document["apiVersion"], document["kind"]) = (API_VERSION.into(), KIND.into());
            let new = sections().parse(&document.to_string(), "m.yaml", &Overrides::default());
            let new = new.unwrap_or_else(|error| panic!("{path}: {error}")).configuration;
            let Change { live, restart } = Change::between(&old, &new);
            let (applied, waits, in_force) = match key["x-mainstay-applies"].as_str() {
                Some("live") => (live, restart, &new),
                Some("restart") => (restart, live, &old),
                other => panic!("{path}: {other:?}"),
            };
            assert!(applied.iter().any(|difference| difference.path == path), "{path}: {applied:?}");
            assert!(waits.is_empty(), "{path}: {waits:?}");
            assert_eq!(old.reloaded(&new), *in_force, "{path}");
        }
    }
    assert_eq!(rich["probePolicy"].as_object().map(serde_json::Map::len), Some(13), "all keys");
}
