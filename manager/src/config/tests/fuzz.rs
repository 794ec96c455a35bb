//! A fuzz target: an accepted configuration prints and parses to itself, and a refusal can be printed.

#![expect(clippy::missing_panics_doc, clippy::expect_used, reason = "a finding is a panic")]

use std::sync::LazyLock;

use super::{ConfigSchema, Overrides};

/// The two required keys of every file.
pub const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";

static SCHEMA: LazyLock<ConfigSchema> = LazyLock::new(ConfigSchema::new);

/// Parses arbitrary bytes as a configuration file without its first two lines, and checks the result.
pub fn configuration(data: &[u8]) {
    let Ok(body) = std::str::from_utf8(data) else { return };
    let read = |body: &str| SCHEMA.parse(&format!("{HEAD}{body}"), "m.yaml", &Overrides::default());
    let configuration = match read(body) {
        Ok(loaded) => loaded.configuration,
        Err(error) => {
            let lines = error.lines();
            assert!((1..=101).contains(&lines.len()), "{} lines", lines.len());
            for line in lines {
                assert!(!line.contains(char::is_control), "{line:?}");
            }
            return;
        }
    };
    // JSON is YAML.
    let tree = configuration.tree();
    let sections = tree.as_object().into_iter().flatten();
    let printed: Vec<_> = sections.map(|(name, value)| format!("{name}: {value}\n")).collect();
    let printed = printed.concat();
    let again = read(&printed).expect("a printed configuration is valid").configuration;
    assert_eq!(again, configuration);
    assert_eq!(configuration.reloaded(&again), configuration);
}
