//! A fuzz target: a configuration that is accepted prints and reads back equal, and a refusal can be printed.

#![expect(clippy::missing_panics_doc, clippy::expect_used, clippy::panic, reason = "a finding is a panic")]

use std::sync::LazyLock;

use super::{ConfigError, ConfigSchema, Overrides};

/// How every file begins.
pub const HEAD: &str = "apiVersion: config.mainstay.dev/v1alpha1\nkind: ManagerConfiguration\n";

static SCHEMA: LazyLock<ConfigSchema> = LazyLock::new(ConfigSchema::new);

/// Reads a file without its first two lines.
pub fn configuration(data: &[u8]) {
    let Ok(body) = std::str::from_utf8(data) else { return };
    let text = format!("{HEAD}{body}");
    let loaded = match SCHEMA.parse(&text, "m.yaml", &Overrides::default()) {
        Ok(loaded) => loaded,
        Err(error) => return refused(&error, &text),
    };
    let mut paths: Vec<_> = loaded.settings().into_iter().map(|setting| setting.path).collect();
    let count = paths.len();
    paths.sort_unstable();
    paths.dedup();
    assert_eq!(paths.len(), count, "a key comes twice");
    // JSON is YAML.
    let tree = loaded.configuration.tree();
    let printed: String = tree
        .as_object()
        .into_iter()
        .flatten()
        .fold(HEAD.to_owned(), |text, (name, value)| format!("{text}{name}: {value}\n"));
    let again = SCHEMA.parse(&printed, "m.yaml", &Overrides::default()).expect("it reads what it prints");
    assert_eq!(again.configuration, loaded.configuration);
    assert_eq!(loaded.configuration.reloaded(&again.configuration), loaded.configuration);
}

fn refused(error: &ConfigError, text: &str) {
    let lines = error.lines();
    assert!((1..=101).contains(&lines.len()), "{} lines", lines.len());
    for line in lines {
        assert!(line.starts_with("m.yaml") && !line.contains(char::is_control), "{line:?}");
    }
    let ConfigError::Invalid { problems, .. } = error else { panic!("no file was read") };
    // YAML ends lines at either; the end of a file may count as a line of its own.
    let most = text.bytes().filter(|byte| matches!(byte, b'\n' | b'\r')).count() as u64 + 2;
    for place in problems.iter().filter_map(|problem| problem.position) {
        assert!((1..=most).contains(&place.line) && place.column > 0, "{place:?}");
    }
}
