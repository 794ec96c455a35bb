//! A fuzz target: sections that are accepted print and read back equal.

#![expect(clippy::missing_panics_doc, clippy::expect_used, reason = "a finding is a panic")]

use std::sync::LazyLock;

use mainstay::config::{ConfigSchema, ManagerConfiguration, Overrides};

use super::{PROBE_POLICY, ProbePolicy, WAIT_DEPLOYMENT, WaitDeploymentSettings};

const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";

static SCHEMA: LazyLock<ConfigSchema> = LazyLock::new(crate::config_schema);

/// Reads a file of this program without its first two lines.
pub fn sections(data: &[u8]) {
    let Ok(body) = std::str::from_utf8(data) else { return };
    let read = |body: &str| {
        let read = SCHEMA.parse(&format!("{HEAD}{body}"), "m.yaml", &Overrides::default());
        read.map(|loaded| loaded.configuration)
    };
    let Ok(configuration) = read(body) else { return };
    let of = |configuration: &ManagerConfiguration| {
        let policy = configuration.section::<ProbePolicy>(PROBE_POLICY).expect("it is declared");
        (policy, configuration.section::<WaitDeploymentSettings>(WAIT_DEPLOYMENT).expect("it is declared"))
    };
    let (policy, wait) = of(&configuration);
    let json = |section| serde_json::to_string(section).expect("it can be written");
    let printed = format!(
        "{PROBE_POLICY}: {}\n{WAIT_DEPLOYMENT}: {}\n",
        json(&*policy),
        serde_json::to_string(&*wait).expect("it can be written")
    );
    let again = read(&printed).expect("it reads what it prints");
    assert_eq!(of(&again), (policy, wait));
}
