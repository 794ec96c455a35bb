//! A fuzz target: accepted sections stay equal when they are printed and read again.

#![expect(clippy::missing_panics_doc, clippy::expect_used, reason = "a finding is a panic")]

use std::sync::LazyLock;

use mainstay::config::{ConfigError, ConfigSchema, Overrides};

use super::{PROBE_POLICY, ProbePolicy, WAIT_DEPLOYMENT, WaitDeploymentSettings};

static SCHEMA: LazyLock<ConfigSchema> = LazyLock::new(|| {
    ConfigSchema::new()
        .section::<ProbePolicy>(PROBE_POLICY)
        .section::<WaitDeploymentSettings>(WAIT_DEPLOYMENT)
});

/// Fuzzes the parser of a configuration file of this program; `data` is the file without its first two lines.
pub fn sections(data: &[u8]) {
    let Ok(body) = std::str::from_utf8(data) else { return };
    let Ok(read) = sections_of(body) else { return };
    let again = sections_of(&read).expect("a printed section is valid");
    assert_eq!(again, read);
}

/// Parses a configuration file, and returns the sections of this program as text.
fn sections_of(body: &str) -> Result<String, ConfigError> {
    let text = format!("apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n{body}");
    let read = SCHEMA.parse(&text, "m.yaml", &Overrides::default())?.configuration;
    let policy = read.section::<ProbePolicy>(PROBE_POLICY).expect("it is declared");
    let wait = read.section::<WaitDeploymentSettings>(WAIT_DEPLOYMENT).expect("it is declared");
    // JSON is YAML.
    let policy = serde_json::to_string(&*policy).expect("it can be written");
    let wait = serde_json::to_string(&*wait).expect("it can be written");
    Ok(format!("{PROBE_POLICY}: {policy}\n{WAIT_DEPLOYMENT}: {wait}\n"))
}
