//! The differences that stay, each with a reason.

use regex::Regex;

/// Most entries of the list.
const MOST: usize = 40;

/// The committed list.
#[derive(Debug)]
pub(crate) struct Accepted(Vec<Entry>);

#[derive(Debug)]
struct Entry {
    scenario: Regex,
    path: Regex,
}

// === impl Accepted ===

impl Accepted {
    /// Reads lines of the form `scenario | path | reason`, where `*` stands for any text.
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let entries = lines.map(|line| {
            let parts: Vec<_> = line.split(" | ").map(str::trim).collect();
            let [scenario, path, reason] = parts[..] else { panic!("{line}: three parts are needed") };
            assert!(!reason.is_empty(), "{line}: a reason is needed");
            Entry { scenario: pattern(scenario), path: pattern(path) }
        });
        let entries: Vec<_> = entries.collect();
        assert!(
            entries.len() <= MOST,
            "{} differences are accepted; more than {MOST} hide defects",
            entries.len()
        );
        Self(entries)
    }

    /// Whether the list has a difference.
    pub(crate) fn has(&self, scenario: &str, path: &str) -> bool {
        self.0.iter().any(|entry| entry.scenario.is_match(scenario) && entry.path.is_match(path))
    }
}

fn pattern(text: &str) -> Regex {
    let parts: Vec<_> = text.split('*').map(regex::escape).collect();
    Regex::new(&format!("^{}$", parts.join(".*"))).expect("a pattern")
}
